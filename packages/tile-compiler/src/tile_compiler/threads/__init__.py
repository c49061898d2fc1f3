"""A block's threads on a target that runs the block in one thread: what differs between lanes, and who meets whom."""
