"""The proof that a block has no race: its threads are enumerated, and what each of them knows of the others is followed."""
