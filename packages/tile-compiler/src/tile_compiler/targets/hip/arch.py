"""Facts about AMD architectures.

Sources: "AMD Instinct MI200 Instruction Set Architecture" and "AMD Instinct MI300 Instruction Set Architecture" (CDNA3),
chapters "Kernel State", "Data Share" and "Matrix Arithmetic Instructions" (https://gpuopen.com/amd-isa-documentation/);
waves and granules: LLVM's "User Guide for AMDGPU Backend", "Occupancy" and "Code Object V5 Metadata"
(https://llvm.org/docs/AMDGPUUsage.html).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilelang.errors import UnknownTarget
from tilelang.target import DEFAULT_ARCH

WAVE_SIZE = 64
SIMDS = 4  # of a compute unit
MAX_REGISTERS = 512  # of a lane: vector registers and accumulators, one file


@dataclass(frozen=True)
class HipArch:
    """One architecture. Sizes in bytes; `features` as a manifest names them."""

    name: str
    lds_per_block: int
    lds_per_compute_unit: int
    waves_per_simd: int
    features: frozenset[str]

    def waves(self, registers: int) -> int:
        """Waves of one SIMD at once: its 512 vector registers per lane go out in steps of 8."""
        return min(self.waves_per_simd, MAX_REGISTERS // max(8, -(-registers // 8) * 8))

    def occupancy(self, threads: int, registers: int, lds: int) -> int:
        """Blocks that run on one compute unit at once. LDS goes out in steps of 512; 16 blocks can wait at barriers."""
        waves = -(-threads // WAVE_SIZE)
        by_registers = SIMDS * self.waves(registers) // waves
        by_lds = self.lds_per_compute_unit // (-(-lds // 512) * 512) if lds else by_registers
        return min(by_registers, by_lds, SIMDS * self.waves_per_simd if waves == 1 else 16)


_CDNA2 = frozenset({"mfma", "mfma_bf16", "mfma_i8", "mfma_f64", "dot4", "atomic_add_f32", "atomic_add_f16x2"})
_CDNA3 = _CDNA2 | {"mfma_fp8", "mfma_xf32", "load_to_lds", "atomic_add_bf16x2", "cvt_fp8"}
_K = 1 << 10
_TABLE = {
    a.name: a for a in (HipArch("gfx90a", 64 * _K, 64 * _K, 8, _CDNA2), HipArch("gfx942", 64 * _K, 64 * _K, 8, _CDNA3))
}
_OLD = ("gfx8", "gfx900", "gfx902", "gfx906", "gfx908")


def hip_arch(name: str) -> HipArch:
    """The facts of an architecture, `""` for the default one. UnknownTarget for one too old or unknown."""
    found = _TABLE.get(name or DEFAULT_ARCH["hip"])
    if found is not None:
        return found
    why = "is too old: CDNA2 is the first that kernels are built for" if name.startswith(_OLD) else "is not known here"
    raise UnknownTarget(
        f"the architecture {name} {why}",
        found=name,
        expected=f"one of {', '.join(_TABLE)}",
        repair=f'target="hip -mcpu={DEFAULT_ARCH["hip"]}"',
    )
