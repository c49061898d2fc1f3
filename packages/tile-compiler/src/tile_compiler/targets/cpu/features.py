"""CPU feature levels that code is generated for.

A level is the portable name that a manifest carries (`x86-64-v3`, ...) plus the extra instruction sets that the GEMM
lowering asks about. Levels for prebuilt code: v3, v4, v4 + bf16 + vnni (`/docs/internals/runtime.md`, *CPU launches*).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CpuFeatures:
    """The instruction sets that generated code may use.

    `level` is an LLVM CPU name; `extra` LLVM feature names on top of it (`avx512bf16`, `avx512vnni`).
    """

    level: str = "x86-64-v3"
    extra: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.level not in ("x86-64-v3", "x86-64-v4"):
            raise ValueError(f"unknown CPU level {self.level!r}: x86-64-v3 or x86-64-v4")
        unknown = set(self.extra) - {"avx512bf16", "avx512vnni"}
        if unknown:
            raise ValueError(f"unknown CPU features {sorted(unknown)}")
        if self.extra and self.level != "x86-64-v4":
            raise ValueError("avx512bf16 and avx512vnni need x86-64-v4")

    @property
    def vector_bits(self) -> int:
        """Width of one vector register in bits."""
        return 512 if self.level == "x86-64-v4" else 256

    @property
    def registers(self) -> int:
        """Number of vector registers."""
        return 32 if self.level == "x86-64-v4" else 16

    @property
    def bf16(self) -> bool:
        """Whether `vdpbf16ps` may be used."""
        return "avx512bf16" in self.extra

    @property
    def vnni(self) -> bool:
        """Whether `vpdpbusd` may be used."""
        return "avx512vnni" in self.extra

    def lanes(self, bits: int) -> int:
        """Elements of `bits` bits in one vector register."""
        return self.vector_bits // bits

    def target(self, opt_level: int = 3) -> dict[str, object]:
        """The TVM target dict."""
        attrs = ["+" + name for name in self.extra]
        if self.level == "x86-64-v4":
            # The generic v4 model prefers 256-bit vectors (an old Skylake worry); our tiles are 512 bits wide.
            attrs.append("-prefer-256-bit")
        return {
            "kind": "llvm",
            "mtriple": "x86_64-unknown-linux-gnu",
            "mcpu": self.level,
            "mattr": attrs,
            "opt-level": opt_level,
        }


V3 = CpuFeatures("x86-64-v3")
V4 = CpuFeatures("x86-64-v4")
V4_BF16_VNNI = CpuFeatures("x86-64-v4", ("avx512bf16", "avx512vnni"))
LEVELS = (V3, V4, V4_BF16_VNNI)


def host_features() -> CpuFeatures:
    """The highest level that the machine of this process has (asks LLVM, so it imports TVM)."""
    from tvm.target import Target
    from tvm.target.codegen import llvm_cpu_has_features, llvm_get_system_cpu

    host = Target({"kind": "llvm", "mcpu": str(llvm_get_system_cpu())})
    if not llvm_cpu_has_features(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"], host):
        return V3
    return V4_BF16_VNNI if llvm_cpu_has_features(["avx512bf16", "avx512vnni"], host) else V4
