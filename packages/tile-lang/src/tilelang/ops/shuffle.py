"""Values of other threads of a warp: `tl.shuffle`, an expression.

`tl.shuffle(value, source)` is the `value` that the thread with the number `source` of the block has there. That thread is
of the same warp (32 threads) and comes by too.
"""

from __future__ import annotations

SHUFFLE = "tl.shuffle"
WARP = 32
