"""What threads do to the memory of other blocks of their cluster, and whether those are still there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tile_compiler.simt.checker.knowledge import Clock, Knowledge
from tile_compiler.simt.thread_values import Array

REMOTE_SUM = "tl::add_remote<"  # registers += elements of another block: count, stride, width


def is_remote(name: str) -> bool:
    """Whether a function of the device header uses memory of other blocks of the cluster."""
    return any(part in name for part in ("_multicast", "_cluster", REMOTE_SUM))


@dataclass
class Remote:
    """`last[b, t]`: when thread t last did something to block b, another one than its own; `site`: which statement."""

    last: Clock
    site: Clock

    @classmethod
    def none(cls, blocks: int, threads: int) -> Remote:
        return cls(np.zeros((blocks, threads), np.int32), np.zeros((blocks, threads), np.int32))

    def copy(self) -> Remote:
        return Remote(self.last.copy(), self.site.copy())

    def merge(self, other: Remote) -> None:
        self.site = np.where(self.last >= other.last, self.site, other.site)
        self.last = np.maximum(self.last, other.last)

    def note(self, threads: Array, block: Array, own: Array, now: int, site: int) -> None:
        """Each of the threads, of block `own`, does something to `block`."""
        mine = np.flatnonzero(threads & (block != own))
        self.last[block[mine], mine] = now
        self.site[block[mine], mine] = site

    def unseen(self, knowledge: Knowledge, own: Array) -> int | None:
        """The statement of an access that a block may not live to see: none of its threads knows of it at its end."""
        for block in range(len(self.last)):
            threads = np.flatnonzero(own == block)[:, None]
            known = knowledge.so_far(threads, np.arange(knowledge.agents.lanes)).max(axis=0)
            late = np.flatnonzero(self.last[block] > known)
            if len(late):
                return int(self.site[block, late[0]])
        return None
