"""What is measured on a GPU: shapes, the work that they imply, and the configurations of our kernels. Plain data.

GEMM shapes M0 to M7 are those of the paper's Table 2, attention shapes FA0 to FA4 those of its Table 3.
"""

from __future__ import annotations

from dataclasses import dataclass

# NVIDIA H200 SXM datasheet, dense: the bound of a case is the larger of its two times.
PEAK_TFLOPS = {"float16": 989.0, "bfloat16": 989.0, "tf32": 494.0, "int8": 1979.0, "float8_e4m3fn": 1979.0}
PEAK_GBS = 4800.0
BYTES = {"float16": 2, "bfloat16": 2, "tf32": 4, "int8": 1, "float8_e4m3fn": 1, "float32": 4, "int32": 4}


@dataclass(frozen=True)
class Gemm:
    """C (m, n) = A (m, k) @ B; B is (k, n), or (n, k) with `transpose_b`."""

    label: str
    m: int
    n: int
    k: int
    dtype: str = "float16"
    transpose_b: bool = False

    @property
    def name(self) -> str:
        return f"gemm-{self.dtype}-{self.m}x{self.n}x{self.k}{'-nt' if self.transpose_b else ''}"

    @property
    def out_dtype(self) -> str:
        return {"int8": "int32", "tf32": "float32", "float8_e4m3fn": "bfloat16"}.get(self.dtype, self.dtype)

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k

    @property
    def bytes(self) -> float:
        """Each operand read once, the result written once."""
        return (self.m + self.n) * self.k * BYTES[self.dtype] + self.m * self.n * BYTES[self.out_dtype]


@dataclass(frozen=True)
class Attention:
    """softmax(Q K^T / sqrt(dim)) V over (batch, heads, tokens, dim); K and V have `heads_kv` heads."""

    label: str
    batch: int
    heads: int
    heads_kv: int
    tokens: int
    causal: bool
    dim: int = 128
    dtype: str = "float16"

    @property
    def name(self) -> str:
        heads = f"h{self.heads}" + (f"-{self.heads_kv}" if self.heads_kv != self.heads else "")
        return f"attention-{self.dtype}-b{self.batch}-{heads}-s{self.tokens}-d{self.dim}-{'causal' if self.causal else 'full'}"

    @property
    def flops(self) -> float:
        """Of the two products; half of them with `causal`."""
        return 4.0 * self.batch * self.heads * self.tokens**2 * self.dim * (0.5 if self.causal else 1.0)

    @property
    def bytes(self) -> float:
        return 2.0 * self.batch * (self.heads + self.heads_kv) * self.tokens * self.dim * BYTES[self.dtype]


Case = Gemm | Attention


def bound_ms(case: Case) -> float:
    """The time below which no kernel can go, by the datasheet's rates."""
    return max(case.flops / PEAK_TFLOPS[case.dtype] / 1e9, case.bytes / PEAK_GBS / 1e6)


SQUARE = (Gemm("square", 4096, 4096, 4096), Gemm("square", 8192, 8192, 8192))
TABLE_2 = tuple(
    Gemm(f"M{i}", m, n, k)
    for i, (m, n, k) in enumerate(
        (m, n, k) for m in (4096, 8192) for n, k in ((1024, 8192), (8192, 8192), (28672, 8192), (8192, 28672))
    )
)
OTHER_TYPES = (
    Gemm("square", 4096, 4096, 4096, "bfloat16"),
    Gemm("square", 4096, 4096, 4096, "tf32"),
    Gemm("square", 4096, 4096, 4096, "int8", transpose_b=True),
    Gemm("square", 4096, 4096, 4096, "float8_e4m3fn", transpose_b=True),
)
ATTENTION = tuple(
    Attention(label, *shape)
    for label, shape in (
        ("FA0", (1, 32, 32, 512, True)),
        ("FA1", (1, 32, 32, 512, False)),
        ("FA2", (1, 32, 32, 1024, True)),
        ("FA3", (1, 32, 32, 1024, False)),
        ("FA4", (1, 32, 32, 4096, True)),
        ("L4k", (4, 32, 32, 4096, True)),
        ("L4k", (4, 32, 32, 4096, False)),
        ("GQA4k", (4, 32, 8, 4096, True)),
    )
)
GROUPS: dict[str, tuple[Case, ...]] = {
    "gemm": (*SQUARE, *OTHER_TYPES),
    "table2": TABLE_2,
    "attention": ATTENTION,
}


@dataclass(frozen=True)
class GemmConfig:
    """Tile, stages of the pipeline, threads; `panel` blocks wide walks through the grid, 0 for rows."""

    block_m: int = 128
    block_n: int = 128
    block_k: int = 32
    stages: int = 3
    threads: int = 128
    panel: int = 0

    @property
    def name(self) -> str:
        return f"{self.block_m}x{self.block_n}x{self.block_k}-{self.stages}-{self.threads}-p{self.panel}"


@dataclass(frozen=True)
class AttentionConfig:
    """Queries and keys of a block's tile, stages of the pipeline, threads."""

    block_m: int = 128
    block_n: int = 64
    stages: int = 2
    threads: int = 128

    @property
    def name(self) -> str:
        return f"{self.block_m}x{self.block_n}-{self.stages}-{self.threads}"


Config = GemmConfig | AttentionConfig


def configs(case: Case, sweep: bool = False) -> tuple[Config, ...]:
    """The configuration that is measured for a case; with `sweep` every one that was tried."""
    if isinstance(case, Attention):
        tried: tuple[Config, ...] = (
            AttentionConfig(128, 64, 2, 128),
            AttentionConfig(128, 32, 2, 128),
            AttentionConfig(64, 64, 2, 128),
            AttentionConfig(128, 64, 1, 128),
            AttentionConfig(128, 64, 2, 256),
        )
        return tried if sweep else tried[:1]
    deep = 32 * 2 // BYTES[case.dtype]  # 64 bytes of k in a tile's row
    tried = (
        GemmConfig(128, 128, deep, 3, 128),
        GemmConfig(128, 128, deep, 4, 128),
        GemmConfig(128, 128, deep * 2, 3, 128),
        GemmConfig(128, 128, deep, 3, 128, panel=8),
        GemmConfig(128, 256, deep, 3, 256),
        GemmConfig(128, 256, deep, 4, 256, panel=8),
        GemmConfig(256, 128, deep, 3, 256, panel=8),
    )
    return tried if sweep else tried[3:4]
