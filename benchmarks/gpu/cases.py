"""What is measured on a GPU: shapes, and the work that they imply. Plain data; `configs.py` has the configurations.

GEMM shapes M0 to M7 and V0 to V7 are those of the paper's Table 2, attention shapes FA0 to FA4 those of its Table 3.
"""

from __future__ import annotations

from dataclasses import dataclass

# NVIDIA H200 SXM datasheet, dense.
PEAK_TFLOPS = {
    "float16": 989.0,
    "bfloat16": 989.0,
    "tf32": 494.0,
    "float32": 67.0,
    "int8": 1979.0,
    "float8_e4m3fn": 1979.0,
}
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

    unit = "TFLOP/s"

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
class Gemv:
    """y (n) = W (n, k) @ x (k): reading W."""

    label: str
    n: int
    k: int
    dtype: str = "float16"

    unit = "GB/s"

    @property
    def name(self) -> str:
        return f"gemv-{self.dtype}-{self.n}x{self.k}"

    @property
    def flops(self) -> float:
        return 2.0 * self.n * self.k

    @property
    def bytes(self) -> float:
        return (self.n * self.k + self.n + self.k) * BYTES[self.dtype]


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

    unit = "TFLOP/s"

    @property
    def name(self) -> str:
        heads = f"h{self.heads}" + (f"-{self.heads_kv}" if self.heads_kv != self.heads else "")
        mask = "causal" if self.causal else "full"
        return f"attention-{self.dtype}-b{self.batch}-{heads}-s{self.tokens}-d{self.dim}-{mask}"

    @property
    def flops(self) -> float:
        """Of the two products; half of them with `causal`."""
        return 4.0 * self.batch * self.heads * self.tokens**2 * self.dim * (0.5 if self.causal else 1.0)

    @property
    def bytes(self) -> float:
        return 2.0 * self.batch * (self.heads + self.heads_kv) * self.tokens * self.dim * BYTES[self.dtype]


@dataclass(frozen=True)
class Mla:
    """Latent attention, decoding: one query for each of `heads`, one latent (dim + pe_dim) for each of `tokens`."""

    label: str
    batch: int
    tokens: int
    heads: int = 128
    dim: int = 512
    pe_dim: int = 64
    dtype: str = "float16"

    unit = "TFLOP/s"

    @property
    def name(self) -> str:
        return f"mla-{self.dtype}-b{self.batch}-h{self.heads}-s{self.tokens}"

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.heads * self.tokens * (2 * self.dim + self.pe_dim)

    @property
    def bytes(self) -> float:
        queries = self.batch * self.heads * (2 * self.dim + self.pe_dim)
        return (queries + self.batch * self.tokens * (self.dim + self.pe_dim)) * BYTES[self.dtype]


Case = Gemm | Gemv | Attention | Mla


def bound_ms(case: Case, gbs: float = PEAK_GBS) -> tuple[float, str]:
    """The time below which no kernel can go, at the datasheet's arithmetic and `gbs` of memory; what sets it."""
    arithmetic, memory = case.flops / PEAK_TFLOPS[case.dtype] / 1e9, case.bytes / gbs / 1e6
    return (memory, "memory") if memory > arithmetic else (arithmetic, "arithmetic")


def rate(case: Case, ms: float) -> float:
    """In the case's unit."""
    return case.bytes / ms / 1e6 if case.unit == "GB/s" else case.flops / ms / 1e9


_M = [(m, n, k) for m in (4096, 8192) for n, k in ((1024, 8192), (8192, 8192), (28672, 8192), (8192, 28672))]
_V = [
    (16384, 16384),
    (43008, 14336),
    (14336, 14336),
    (57344, 14336),
    (14336, 57344),
    (9216, 9216),
    (36864, 9216),
    (9216, 36864),
]
_FA = [(512, True), (512, False), (1024, True), (1024, False), (4096, True)]

GROUPS: dict[str, tuple[Case, ...]] = {
    "gemm": tuple(Gemm(f"M{i}", *shape, dtype) for dtype in ("float16", "bfloat16") for i, shape in enumerate(_M)),
    "fp8": tuple(Gemm(f"M{i}", *_M[i], "float8_e4m3fn", transpose_b=True) for i in (1, 2, 5, 7)),
    "gemv": tuple(Gemv(f"V{i}", *shape) for i, shape in enumerate(_V)),
    "attention": (
        *(Attention(f"FA{i}", 1, 32, 32, tokens, causal) for i, (tokens, causal) in enumerate(_FA)),
        *(Attention("L", 4, 32, 32, tokens, causal) for tokens in (4096, 8192, 16384) for causal in (True, False)),
        *(Attention("GQA", 4, 32, 8, tokens, causal) for tokens in (4096, 8192) for causal in (True, False)),
        *(Attention("D64", 4, 32, 32, 4096, causal, dim=64) for causal in (True, False)),
        *(Attention("D256", 4, 16, 16, 4096, causal, dim=256) for causal in (True, False)),
    ),
    "mla": tuple(Mla(f"b{b}", b, tokens) for b in (64, 128) for tokens in (1024, 2048, 4096, 8192, 16384)),
    "types": (
        Gemm("square", 4096, 4096, 4096, "tf32"),
        Gemm("square", 4096, 4096, 4096, "int8", transpose_b=True),
        Gemm("square", 4096, 4096, 4096, "float8_e4m3fn", transpose_b=True),
        Gemm("square", 8192, 8192, 8192),
    ),
}


def chosen(groups: list[str] | None, parts: list[str] | None) -> list[tuple[str, Case]]:
    """The cases of these groups (all of them) whose label and name contain one of `parts` (any)."""
    found = [(group, case) for group in groups or GROUPS for case in GROUPS[group]]
    return [(g, c) for g, c in found if not parts or any(part in f"{c.label} {c.name}" for part in parts)]
