"""Memory for what a call on a CPU keeps between its kernels, the same for each call of a thread.

malloc gives pages of megabytes back to the system and takes new ones for the next call, 3 us for each 4 KiB: 4 MB of them cost as
much as a product of 128 rows by 1024 x 1024 (docs/performance/cpu.md).
"""

from __future__ import annotations

import threading

import torch

#: Bytes that a thread keeps at most; more are taken anew.
KEPT = 16 << 20


class _Memory(threading.local):
    held: torch.Tensor | None = None


_memory = _Memory()


def scratch(elements: int) -> torch.Tensor:
    """So many float32 or more in one row, undefined, this thread's alone until it calls again."""
    held = _memory.held
    if held is None or held.numel() < elements:
        held = torch.empty(elements, dtype=torch.float32)
        if held.nbytes <= KEPT:
            _memory.held = held
    return held
