"""How an operand lies in shared memory, as the hardware's matrix descriptor says it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import sym

from tile_compiler.simt.operators.nests import call
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.layout import Layout, make_wgmma_swizzled_layout
from tilelang.layout.swizzle import SWIZZLE_MODES

CHUNK = 16  # bytes: a row of a core matrix
STEP = 32  # bytes along k of one instruction
GROUP = 8  # rows of a core matrix


def divisor(value: Any) -> int:
    """The largest number that is known to divide `value`; 0 for 0."""
    number = tile_ir.static(value)
    if number is not None:
        return int(number)
    found = sym.Analyzer().modular_set(value)
    return math.gcd(int(found.coeff), int(found.base))


def operand_layout(shape: tuple[int, ...], dtype: Any, run: int) -> Layout:
    """The widest mode in which a matrix may begin at every multiple of `run` columns (0: at column 0 alone)."""
    return make_wgmma_swizzled_layout(shape, dtype=dtype, continuity=math.gcd(run, shape[-1]))


@dataclass(frozen=True)
class SharedMatrix:
    """Panels of `span` bytes of columns, each with all `rows`; `swizzle` is `span`, or 0 for panels of 16 bytes.

    The matrix is K-major (rows are m or n, columns k) or `mn_major` (rows are k).
    """

    span: int
    rows: int
    size: int  # bytes of an element
    mn_major: bool

    @property
    def swizzle(self) -> int:
        return 0 if self.span == CHUNK else self.span

    @property
    def panel(self) -> int:
        """Bytes from a panel to the next."""
        return self.span * self.rows

    @property
    def strides(self) -> tuple[int, int]:
        """(leading, stride) in bytes, as `tl::wgmma_descriptor` wants them."""
        groups = GROUP * self.span
        if self.mn_major:
            return (self.panel, groups) if self.swizzle else (groups, self.panel)
        return (CHUNK, groups) if self.swizzle else (self.panel, groups)

    def advance(self, along: Any, depth: Any) -> Any:
        """Bytes from the matrix's start to its part at `along` elements along m or n and `depth` elements along k."""
        deep, wide = depth * self.size, along * self.size
        if self.mn_major:
            return depth * self.span + wide // self.span * self.panel
        return along * self.span + deep // self.span * self.panel + deep % self.span

    def fault(self, row: int, column: int, depth: int, pieces: int) -> str:
        """Why no matrix of `depth` elements along k can begin at multiples of `row` and `column` of the buffer, with
        instruction tiles at multiples of `pieces` elements along m or n (0: one tile); "" if it can."""
        if row % GROUP or self.rows % GROUP:
            return f"the tile has no groups of {GROUP} rows"
        inside = column * self.size % self.span
        if self.mn_major:
            return f"a tile begins inside of {self.span} bytes" if inside or pieces * self.size % self.span else ""
        if column * self.size % STEP or (inside and inside + depth * self.size > self.span):
            return f"a tile begins inside of {self.span} bytes"
        return ""

    def descriptor(self, start: Any, advance: Any) -> Any:
        """The descriptor of what lies `advance` bytes behind the address `start`."""
        return call(f"tl::wgmma_descriptor<{self.swizzle}>", start, *self.strides, advance, dtype="uint64")


def shared_matrix(layout: Any, dtype: str, mn_major: bool) -> SharedMatrix | None:
    """What a descriptor would say of a tile with this layout; None if no descriptor describes it."""
    size = dtype_of(dtype).bits // 8
    if not isinstance(layout, Layout) or len(layout.shape) < 2:
        return None
    for span in (*(mode.chunks * CHUNK for mode in SWIZZLE_MODES.values()), CHUNK):
        if layout.shape[-1] * size % span == 0 and layout == operand_layout(layout.shape, dtype, span // size):
            return SharedMatrix(span, layout.shape[-2], size, mn_major)
    return None
