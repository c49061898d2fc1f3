"""CPU feature levels that code is generated for.

A level is the portable name that a manifest carries (`x86-64-v3`, ...) plus the extra instruction sets that the GEMM
lowering asks about. Levels for prebuilt code: v3, v4, v4 + bf16 + vnni, and that + amx (`/docs/internals/runtime.md`,
*CPU launches*).
"""

from __future__ import annotations

from dataclasses import dataclass

from tile_runtime import registry
from tile_runtime.errors import DeviceNotFound

#: Short names of extra instruction sets, as the names of levels have them, and LLVM's names of their features.
EXTRA = {"bf16": ("avx512bf16",), "vnni": ("avx512vnni",), "amx": ("amx-tile", "amx-bf16", "amx-int8")}
_FEATURES = tuple(name for names in EXTRA.values() for name in names)


@dataclass(frozen=True)
class CpuFeatures:
    """The instruction sets that generated code may use.

    `level` is an LLVM CPU name; `extra` LLVM feature names on top of it (`avx512bf16`, `amx-tile`, ...).
    """

    level: str = "x86-64-v3"
    extra: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.level not in ("x86-64-v3", "x86-64-v4"):
            raise ValueError(f"unknown CPU level {self.level!r}: x86-64-v3 or x86-64-v4")
        unknown = set(self.extra) - set(_FEATURES)
        if unknown:
            raise ValueError(f"unknown CPU features {sorted(unknown)}")
        if self.extra and self.level != "x86-64-v4":
            raise ValueError(f"{', '.join(self.extra)} need x86-64-v4")

    @classmethod
    def of_level(cls, text: str) -> CpuFeatures:
        """The features that a level's name promises: `x86-64-v4+bf16+vnni`. LLVM's names may stand after `+` as well."""
        level, *extra = text.split("+")
        return cls(level, tuple(name for short in extra for name in EXTRA.get(short, (short,))))

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

    @property
    def amx(self) -> bool:
        """Whether tile registers may be used."""
        return "amx-tile" in self.extra

    @property
    def scales(self) -> bool:
        """Whether `vscalefps` may be used."""
        return self.level == "x86-64-v4"

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
V4_BF16_VNNI = CpuFeatures.of_level("x86-64-v4+bf16+vnni")
V4_AMX = CpuFeatures.of_level("x86-64-v4+bf16+vnni+amx")
LEVELS = (V3, V4, V4_BF16_VNNI, V4_AMX)


def host_features() -> CpuFeatures:
    """The highest level of this machine, as its CPU runtime has it; the lowest where none is installed.

    The runtime and not LLVM: LLVM goes by the processor's model number, which a virtual machine may give as it likes, and
    the operating system has a say in AMX.
    """
    try:
        return CpuFeatures.of_level(registry.device("cpu").arch())
    except (DeviceNotFound, ValueError):  # no runtime; an older processor, for which nothing is generated
        return V3
