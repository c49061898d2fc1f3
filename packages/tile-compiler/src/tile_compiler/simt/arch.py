"""Facts about a GPU architecture that the passes ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Arch:
    """`shared_limit`: bytes of shared memory that one block may ask for. `number`: 80 for sm_80, 0 for AMD's.

    `warp`: threads that run in step (AMD: a wave). `barriers`: how many a block has; with 1 it is that of all threads.
    """

    name: str
    number: int
    shared_limit: int
    warp: int = 32
    barriers: int = 16

    @property
    def has_cp_async(self) -> bool:
        return self.number >= 80

    @property
    def has_tma(self) -> bool:
        """Tensor maps and mbarriers, in code for sm_90a only: that is what the passes for Hopper make."""
        return self.name == "sm_90a"

    @property
    def has_wgmma(self) -> bool:
        """Matrix instructions of warpgroups; what no other architecture than sm_90a has."""
        return self.name == "sm_90a"

    @property
    def has_cache_hints(self) -> bool:
        """Whether the header has loads that say what the caches shall do with the line."""
        return self.number >= 90

    @property
    def has_load_to_lds(self) -> bool:
        """Whether loads can go from global memory straight to shared memory, four bytes a lane (CDNA3)."""
        return self.name == "gfx942"

    def atomic_neighbours(self, dtype: str) -> int:
        """How many neighbours in global memory one atomic addition updates at most, each by itself; 1 for none.

        PTX ISA, "red" (pairs of f16 since sm_60, the others of sm_90); CDNA2 and CDNA3 ISA, `GLOBAL_ATOMIC_PK_ADD_*`.
        """
        if self.number >= 90:
            return {"float32": 4, "float16": 4, "bfloat16": 4}.get(dtype, 1)
        pairs = {"float16", "bfloat16"} if self.name == "gfx942" else {"float16"}
        return 2 if dtype in pairs else 1

    @property
    def has_fp8_mma(self) -> bool:
        return self.number >= 89

    def registers(self, threads: int) -> int:
        """How many 32-bit registers each thread of a block can have.

        Programming guide, "Technical Specifications per Compute Capability"; CDNA3 ISA, "VGPRs": 512 for each lane of a
        SIMD, accumulators among them, and four SIMDs.
        """
        file, most = (65536, 255) if self.number else (131072, 512)
        return min(most, file // threads)


# Programming guide, table "Technical Specifications per Compute Capability": maximum per block, opted in.
_SHARED = {75: 64 << 10, 80: 163 << 10, 86: 99 << 10, 89: 99 << 10, 90: 227 << 10, 100: 227 << 10}


# CDNA2 and CDNA3 ISA, "Data Share": 64 KB of LDS; waves of 64; S_BARRIER is the block's only barrier.
_AMD = {name: Arch(name, 0, 64 << 10, warp=64, barriers=1) for name in ("gfx90a", "gfx942")}


def arch_of(name: str) -> Arch:
    """`sm_80`, `gfx942` -> its facts; ValueError for an architecture that nobody described."""
    if name in _AMD:
        return _AMD[name]
    digits = name.removeprefix("sm_").rstrip("af")
    number = int(digits) if name.startswith("sm_") and digits.isdigit() else 0
    if number not in _SHARED:
        known = ", ".join([*(f"sm_{n}" for n in _SHARED), *_AMD])
        raise ValueError(f"{name} is no architecture that this compiler knows. Use one of {known}.")
    return Arch(name, number, _SHARED[number])
