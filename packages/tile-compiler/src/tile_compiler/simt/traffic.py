"""What a kernel's accesses cost, as figures: count_traffic.py makes them, the report and its bound read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Access:
    """One access of the text, over the whole grid. `kind`: read, write, copy, atomic, ldmatrix, stmatrix.

    `wavefronts` and `conflict_free` (what the same requests cost without conflicts) are of shared memory, `sectors` of
    global memory.
    """

    at: str
    buffer: str
    space: str
    kind: str
    width: int  # bytes of one thread
    requests: int = 0  # of warps
    bytes: int = 0
    wavefronts: int = 0
    conflict_free: int = 0
    sectors: int = 0
    exact: bool = True
    by: str = ""  # what moves it without the thread: cp_async, load_to_lds, tma
    tensor_bytes: int = 0  # of the whole tensor; 0: not known

    def to_json(self) -> dict[str, Any]:
        found = {"at": self.at, "buffer": self.buffer, "space": self.space, "kind": self.kind, "width": self.width}
        found |= {"by": self.by} if self.by else {}
        found |= {"requests": self.requests, "bytes": self.bytes, "exact": self.exact}
        if self.space == "global":
            return found | {"sectors": self.sectors}
        return found | {"wavefronts": self.wavefronts, "conflict_free": self.conflict_free}


@dataclass
class Traffic:
    """The accesses of a kernel in the order of its text, and how often warps run each kind of instruction."""

    accesses: list[Access] = field(default_factory=list)
    instructions: dict[str, int] = field(default_factory=dict)
    tensor_flops: dict[str, int] = field(default_factory=dict)  # of matrix instructions, by the type of their operands
    flops: int = 0  # of floating point arithmetic in threads; a function of the math library counts as one
    exact: bool = True

    barriers: int = 0  # of all threads that meet, in a block or a cluster

    def total(self, space: str, what: str, *kinds: str) -> int:
        """The sum of a figure over the accesses of these kinds."""
        return sum(int(getattr(a, what)) for a in self.accesses if a.space == space and a.kind in kinds)

    def counters(self, warp: int = 32) -> dict[str, int]:
        """What the emulator counts of the same launch, by its names (docs/internals/emulator.md)."""
        of = self.total

        def run(*starts: str) -> int:
            return sum(count for name, count in self.instructions.items() if name.startswith(starts))

        return {
            "global_read_bytes": of("global", "bytes", "read"),
            "global_written_bytes": of("global", "bytes", "write", "atomic"),
            "global_requests": sum(a.requests for a in self.accesses if self._by_thread(a)),
            "global_sectors": of("global", "sectors", "read", "write"),
            "shared_requests": of("shared", "requests", "read", "write"),
            "shared_wavefronts": of("shared", "wavefronts", "read", "write"),
            "cp_async_bytes": sum(a.bytes for a in self._reads_by("cp_async")),
            "direct_loads": sum(a.bytes // a.width for a in self._reads_by("load_to_lds")),
            "tma_loads": sum(a.requests for a in self._reads_by("tma")),
            "tma_stores": sum(a.requests for a in self.accesses if a.by == "tma" and a.kind == "write"),
            "tma_bytes": sum(a.requests * a.width for a in self.accesses if a.by == "tma"),
            "cp_async_requests": of("shared", "requests", "copy"),
            "cp_async_wavefronts": of("shared", "wavefronts", "copy"),
            "ldmatrix": run("ldmatrix"),
            "ldmatrix_wavefronts": of("shared", "wavefronts", "ldmatrix"),
            "stmatrix": run("stmatrix"),
            "stmatrix_wavefronts": of("shared", "wavefronts", "stmatrix"),
            "mma": run("mma", "mfma"),
            "wgmma": run("wgmma_m64") // (128 // warp),
            "shuffles": run("shfl", "uniform") + 4 * run("transpose_quad"),
            "votes": run("vote"),
            "barriers": self.barriers,
        }

    def _reads_by(self, what: str) -> list[Access]:
        return [a for a in self.accesses if a.by == what and a.kind == "read"]

    @staticmethod
    def _by_thread(access: Access) -> bool:
        return access.space == "global" and access.kind in ("read", "write") and access.by != "tma"
