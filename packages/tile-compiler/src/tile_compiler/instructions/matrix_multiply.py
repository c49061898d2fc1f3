"""`MatrixMultiply`: what an instruction that multiplies small matrices is, said once.

The lowering of `T.gemm` reads nothing else: who holds which element, which function of the device header runs it, on
which architectures. Scalar instructions are the case of one lane.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tile_compiler.instructions.architectures import check, in_words, runs_on
from tilelang.ir.dtypes import dtype_of
from tilelang.layout import Fragment, placeholders, substitute

Array = np.ndarray[Any, Any]
Meaning = Callable[[Array, Array, Array], Array]


def sum_of_products(c: Array, a: Array, b: Array) -> Array:
    """`c + a @ b`, rounded once to c's type: integers wrap, floats are summed in float64 (chips sum in an order and a
    width of their own: compare with the tolerance of the accumulator's type)."""
    wide = np.int64 if c.dtype.kind in "iu" else np.float64
    return np.asarray((c.astype(wide) + a.astype(wide) @ b.astype(wide)).astype(c.dtype))


@dataclass(frozen=True)
class MatrixMultiply:
    """`C (m, n) += A (m, k) @ B (k, n)`, executed together by `lanes` threads: 1, or a wave of 32 or 64.

    `name`: the function of the device header, `name(void* c, const void* a, const void* b)` on arrays of the lane.
    `text`: the mnemonic in full. `a`, `b`, `c`: element types. `a_fragment` (m, k), `b_fragment` (k, n), `c_fragment`
    (m, n): which lane holds an element and where in its array. `architectures`: as `runs_on` reads them. `source`: the
    chapter that says all this. `meaning(c, a, b)`: the new C in numpy, on whole matrices. `header`: device code that
    defines the function, for an instruction that our header lacks. `swapped`: the function takes (c, b, a).
    `truncates`: it drops the lower bits of tf32 operands, which are rounded before it therefore. `asked_by`: the pass config
    without which it is not chosen, as its sums are not quite those of its types. `sums_along`: how far along k it may sum until
    that is added to C, as it cuts what it adds to; 0: all the way.

    Construction proves that each fragment fills the lanes' arrays, every element exactly once; ValueError otherwise.
    """

    name: str
    text: str
    m: int
    n: int
    k: int
    a: str
    b: str
    c: str
    a_fragment: Fragment
    b_fragment: Fragment
    c_fragment: Fragment
    lanes: int
    architectures: tuple[str, ...]
    source: str
    meaning: Meaning = sum_of_products
    header: str = ""
    calls: int = 1
    swapped: bool = False
    truncates: bool = False
    asked_by: str = ""
    sums_along: int = 0

    def __post_init__(self) -> None:
        if self.lanes not in (1, 32, 64):
            raise ValueError(f"{self.name}: {self.lanes} lanes; expected 1, 32 or 64")
        check(self.architectures)
        operands = (
            ("A", self.a_fragment, (self.m, self.k), self.a),
            ("B", self.b_fragment, (self.k, self.n), self.b),
            ("C", self.c_fragment, (self.m, self.n), self.c),
        )
        for operand, fragment, shape, dtype in operands:
            if fragment.shape != shape:
                raise ValueError(f"{self.name}: the fragment of {operand} has shape {fragment.shape}, not {shape}")
            fault = fragment.cover_fault()
            if fault is not None:
                raise ValueError(f"{self.name}: {operand}: {fault}")
            held = fragment.replicate_size * shape[0] * shape[1]
            if fragment.thread_extent > self.lanes or held != self.lanes * fragment.local_size:
                raise ValueError(
                    f"{self.name}: {operand} has {held} elements, which do not fill {fragment.local_size} places in "
                    f"each of {self.lanes} lanes"
                )
            if self.lanes > 1 and fragment.local_size * dtype_of(dtype).bits % 32:
                raise ValueError(f"{self.name}: {operand} does not fill 32-bit registers")

    def runs_on(self, architecture: str) -> bool:
        """Whether `sm_90a`, `gfx942`, ... has the instruction."""
        return runs_on(self.architectures, architecture)

    @property
    def label(self) -> str:
        """The name without its namespace, for reports."""
        return self.name.rsplit("::", 1)[-1]

    @property
    def where(self) -> str:
        """The architectures in words."""
        return in_words(self.architectures)

    @property
    def identity(self) -> str:
        """All that decides which code calls it, as text: equal declarations in two processes have equal ones."""
        fragments = [f.to_json() for f in (self.a_fragment, self.b_fragment, self.c_fragment)]
        types, shape = (self.a, self.b, self.c), (self.m, self.n, self.k, self.lanes, self.calls, self.swapped)
        return repr((self.name, self.text, shape, types, fragments, self.architectures, self.header))

    def arguments(self, c: Any, a: Any, b: Any) -> tuple[Any, Any, Any]:
        """The operands in the order of the function."""
        return (c, b, a) if self.swapped else (c, a, b)

    def compute(self, c: Array, a: Array, b: Array) -> Array:
        """The new C."""
        return self.meaning(c.T, b.T, a.T).T if self.swapped else self.meaning(c, a, b)

    @cached_property
    def transposed(self) -> MatrixMultiply:
        """The same instruction for `C^T = B^T @ A^T`: lanes hold rows of C where they held columns.

        On CDNA a lane of a 32x32 or 16x16 result has 4 neighbours of a column. Transposed they are neighbours of a
        row: vectors of row-major memory, and the very places in which the next product wants its A.
        """
        return replace(
            self,
            m=self.n,
            n=self.m,
            a=self.b,
            b=self.a,
            a_fragment=turned_fragment(self.b_fragment),
            b_fragment=turned_fragment(self.a_fragment),
            c_fragment=turned_fragment(self.c_fragment),
            swapped=not self.swapped,
        )

    def packed(self, times: int) -> MatrixMultiply | None:
        """`times` instructions as one of `times * k`, so that a lane's elements of A and B along k lie together.

        The order of k is free as long as A and B agree: where a lane held v neighbours it holds `times * v`, the
        first v for the first call. None if a lane's elements along k are not one run of neighbours.
        """
        run = self.a_fragment.vector_width(1)
        whole = run == self.a_fragment.local_size == self.b_fragment.local_size == self.b_fragment.vector_width(0)
        if times == 1 or not whole:
            return self if times == 1 else None
        return replace(
            self,
            k=self.k * times,
            a_fragment=_packed(self.a_fragment, 1, run, times),
            b_fragment=_packed(self.b_fragment, 0, run, times),
            calls=times,
        )


def turned_fragment(fragment: Fragment) -> Fragment:
    """The fragment of the transpose of what `fragment` distributes."""
    i, j = placeholders(2)
    thread, index = (substitute(e, {"i": j, "j": i}) for e in (fragment.thread_expr, fragment.index_expr))
    copies, lanes = fragment.replicate_size, fragment.thread_extent
    return Fragment.from_exprs(fragment.shape[::-1], thread, index, copies, lanes)


def _packed(fragment: Fragment, axis: int, run: int, times: int) -> Fragment:
    """Along `axis`, runs of `run` in a lane become runs of `times * run`; call q uses the q-th part."""
    place = placeholders(2)
    name = ("i", "j")[axis]
    k = place[axis]
    inside = {name: k // (run * times) * run + k % run}
    thread, index = (substitute(e, inside) for e in (fragment.thread_expr, fragment.index_expr))
    part = k // run % times
    shape = tuple(n * times if d == axis else n for d, n in enumerate(fragment.shape))
    index = index + part * fragment.local_size
    return Fragment.from_exprs(shape, thread, index, fragment.replicate_size, fragment.thread_extent)
