"""Facts about NVIDIA architectures.

Source: CUDA C++ Programming Guide, "Compute Capabilities", tables "Feature Support per Compute Capability" and
"Technical Specifications per Compute Capability" (https://docs.nvidia.com/cuda/cuda-c-programming-guide/).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilelang.errors import UnknownTarget
from tilelang.target import DEFAULT_ARCH

WARP_SIZE = 32
STATIC_SHARED = 48 << 10  # what a block may have without asking for more
MAX_REGISTERS = 255  # of a thread


@dataclass(frozen=True)
class CudaArch:
    """One architecture. Sizes in bytes; `features` as a manifest names them."""

    name: str
    shared_per_block: int  # with the opt-in
    shared_per_multiprocessor: int
    threads_per_multiprocessor: int
    registers_per_multiprocessor: int
    features: frozenset[str]

    @property
    def number(self) -> int:
        """80 for sm_80, 90 for sm_90a."""
        return int(self.name.removeprefix("sm_").rstrip("af"))

    def occupancy(self, threads: int, registers: int, shared: int) -> int:
        """Blocks that run on one multiprocessor at once."""
        return min(self.occupancy_limits(threads, registers, shared).values())

    def occupancy_limits(self, threads: int, registers: int, shared: int) -> dict[str, int]:
        """Blocks on one multiprocessor, by what limits them. Registers go out in steps of 256 to a warp, shared memory
        in steps of 1024 after 1024 for the system (sm_75: none)."""
        warps = -(-threads // WARP_SIZE)
        by_threads = self.threads_per_multiprocessor // (warps * WARP_SIZE)
        per_warp = -(-registers * WARP_SIZE // 256) * 256
        by_registers = self.registers_per_multiprocessor // per_warp // warps if per_warp else by_threads
        reserved = 1024 if self.number >= 80 else 0
        by_shared = self.shared_per_multiprocessor // (-(-(shared + reserved) // 1024) * 1024 or 1024)
        most = 16 if self.number in (75, 86) else 24 if self.number == 89 else 32
        return {"threads": by_threads, "registers": by_registers, "shared memory": by_shared, "blocks": most}


_TURING = frozenset({"mma", "ldmatrix", "dp4a"})
_AMPERE = _TURING | {"cp_async", "mma_bf16", "mma_tf32"}
_ADA = _AMPERE | {"mma_fp8"}
_HOPPER = _ADA | {"stmatrix", "tma", "mbarrier", "cluster"}
_K = 1 << 10
_TABLE = {
    a.name: a
    for a in (
        CudaArch("sm_75", 64 * _K, 64 * _K, 1024, 64 * _K, _TURING),
        CudaArch("sm_80", 163 * _K, 164 * _K, 2048, 64 * _K, _AMPERE),
        CudaArch("sm_86", 99 * _K, 100 * _K, 1536, 64 * _K, _AMPERE),
        CudaArch("sm_89", 99 * _K, 100 * _K, 1536, 64 * _K, _ADA),
        CudaArch("sm_90", 227 * _K, 228 * _K, 2048, 64 * _K, _HOPPER),
        CudaArch("sm_90a", 227 * _K, 228 * _K, 2048, 64 * _K, _HOPPER | {"wgmma", "setmaxnreg"}),
        CudaArch("sm_100", 227 * _K, 228 * _K, 2048, 64 * _K, _HOPPER),
        CudaArch("sm_100a", 227 * _K, 228 * _K, 2048, 64 * _K, _HOPPER | {"tcgen05", "setmaxnreg"}),
    )
}


def cuda_arch(name: str) -> CudaArch:
    """The facts of an architecture, `""` for the default one. UnknownTarget for one too old or unknown."""
    found = _TABLE.get(name or DEFAULT_ARCH["cuda"])
    if found is not None:
        return found
    known = ", ".join(_TABLE)
    number = re.fullmatch(r"sm_(\d+)[af]?", name)
    why = (
        "is not known here"
        if number is None or int(number[1]) >= 75
        else "is too old: CUDA 13 builds for sm_75 and newer"
    )
    raise UnknownTarget(
        f"the architecture {name} {why}",
        found=name,
        expected=f"one of {known}",
        repair=f'target="cuda -arch={DEFAULT_ARCH["cuda"]}"',
    )
