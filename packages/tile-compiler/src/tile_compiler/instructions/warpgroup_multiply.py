"""`WarpgroupMultiply`: what an asynchronous matrix instruction of a warpgroup is, said once.

It differs from `MatrixMultiply` in that B, and A if one likes, stay in shared memory, where a descriptor tells the
hardware how they lie, and that it comes in many widths n.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tile_compiler.instructions.architectures import check, in_words, runs_on
from tile_compiler.instructions.matrix_multiply import Array, Meaning, sum_of_products
from tilelang.ir.dtypes import dtype_of
from tilelang.layout import Fragment

WARPGROUP = 128
ROWS = 64


@dataclass(frozen=True)
class WarpgroupMultiply:
    """`C (64, n) += A (64, k) @ B (k, n)`, started together by 128 threads and waited for later.

    `name`: the function of the device header, `name<n[, majors]>(void* c, a, b, bool scale_d)`; a and b are
    descriptors of shared memory, and with `_rs` after the name a is the thread's registers. `text`: the mnemonic.
    `widths`: the legal n, ascending. `a`, `b`, `c`: element types. `either_major`: whether operands in shared memory may
    lie along m or n as well as along k. `architectures`: as `runs_on` reads them. `source`: the chapter that says all
    this. `meaning(c, a, b)`: the new C in numpy, on whole matrices.

    Construction proves that the fragments of A and of the widest C fill the threads' arrays, every element exactly
    once, and that a step along k is 32 bytes of both operands; ValueError otherwise.
    """

    name: str
    text: str
    k: int
    a: str
    b: str
    c: str
    widths: tuple[int, ...]
    either_major: bool
    architectures: tuple[str, ...]
    source: str
    meaning: Meaning = sum_of_products

    m = ROWS
    lanes = WARPGROUP

    def __post_init__(self) -> None:
        check(self.architectures)
        if self.widths != tuple(sorted(set(self.widths))) or any(n % 8 for n in self.widths):
            raise ValueError(f"{self.name}: widths {self.widths}; expected ascending multiples of 8")
        for dtype in (self.a, self.b):
            if self.k * dtype_of(dtype).bits != 256:
                raise ValueError(f"{self.name}: {self.k} elements of {dtype} are not 32 bytes")
        for what, fragment in (("A", self.a_fragment), ("C", self.c_fragment(self.widths[-1]))):
            fault = _fault(fragment)
            if fault is not None:
                raise ValueError(f"{self.name}: {what}: {fault}")

    @property
    def a_fragment(self) -> Fragment:
        """A in registers, (64, k)."""
        return _a_fragment(32 // dtype_of(self.a).bits)

    def c_fragment(self, n: int) -> Fragment:
        """C, (64, n)."""
        return _c_fragment(n)

    def runs_on(self, architecture: str) -> bool:
        """Whether `sm_90a`, ... has the instruction."""
        return runs_on(self.architectures, architecture)

    @property
    def label(self) -> str:
        """The name without its namespace, for reports."""
        return self.name.rsplit("::", 1)[-1]

    @property
    def where(self) -> str:
        """The architectures in words."""
        return in_words(self.architectures)

    def compute(self, c: Array, a: Array, b: Array) -> Array:
        """The new C."""
        return self.meaning(c, a, b)


@lru_cache
def _a_fragment(per: int) -> Fragment:
    """A (64, 8 * per), for `per` elements in a register: warp w holds rows 16 w to 16 w + 15 as `mma.sync` has them."""
    piece = 4 * per
    return Fragment(
        (ROWS, 2 * piece),
        lambda i, k: (
            i // 16 * 32 + i % 8 * 4 + k % piece // per,
            k % per + i % 16 // 8 * per + k // piece * (2 * per),
        ),
    )


@lru_cache
def _c_fragment(n: int) -> Fragment:
    """C (64, n): warp w holds rows 16 w to 16 w + 15, pieces of eight columns one after another."""
    return Fragment(
        (ROWS, n), lambda i, j: (i // 16 * 32 + i % 8 * 4 + j % 8 // 2, j % 2 + i % 16 // 8 * 2 + j // 8 * 4)
    )


def _fault(fragment: Fragment) -> str | None:
    """What is wrong with a fragment of a warpgroup."""
    if fragment.local_size * WARPGROUP != fragment.shape[0] * fragment.shape[1]:
        return f"its elements do not fill the arrays of {WARPGROUP} threads"
    return fragment.cover_fault()
