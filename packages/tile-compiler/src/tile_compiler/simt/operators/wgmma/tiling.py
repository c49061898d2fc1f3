"""How the warpgroups of a block share a tile of C, or why they cannot."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tile_compiler.instructions import WarpgroupMultiply, warpgroup_multiplies
from tile_compiler.instructions.matrix_multiply import turned_fragment
from tile_compiler.simt.arch import Arch
from tile_compiler.simt.distribution import Distribution
from tile_compiler.simt.operators.nests import is_fragment, is_shared
from tile_compiler.simt.operators.warps import repeated
from tile_compiler.simt.operators.wgmma.shared_matrix import divisor, shared_matrix
from tile_compiler.tileops.site import element_type
from tilelang.ir.dtypes import dtype_of
from tilelang.layout import Fragment, placeholders, substitute
from tilelang.layout.expr import Placeholder
from tilelang.ops import Gemm
from tilelang.ops.gemm import GemmWarpPolicy


@dataclass(frozen=True)
class WarpgroupTiling:
    """`rows` x `columns` warpgroups, each with its own part of C; `copies` groups of them compute the same.

    Warpgroup number: row + rows * (column + columns * copy). `width`: n of one instruction. `turned`: it computes
    C^T = B^T @ A^T, and m, n, rows and columns are those of C^T. `loaded`: its left operand does not lie along k in shared
    memory, and threads load it into registers.
    """

    wgmma: WarpgroupMultiply
    m: int
    n: int
    k: int
    width: int
    rows: int
    columns: int
    copies: int
    threads: int
    turned: bool = False
    loaded: bool = False

    @property
    def label(self) -> str:
        return f"{self.wgmma.label}, n = {self.width}" + (", as the transpose of C" if self.turned else "")

    def operands(self, op: Gemm) -> tuple[Any, Any]:
        """The instruction's left and right operand."""
        return (op.b, op.a) if self.turned else (op.a, op.b)

    @property
    def c_fragment(self) -> Fragment:
        """What the instruction writes."""
        fragment = self.wgmma.c_fragment(self.width)
        return _in_turns(fragment) if self.loaded else fragment

    @property
    def left_fragment(self) -> Fragment:
        """What the instruction reads of the left operand, where registers hold it."""
        fragment = self.wgmma.a_fragment
        return _in_turns(fragment) if self.loaded else fragment

    @property
    def row_blocks(self) -> int:
        """Instruction tiles along m in one warpgroup."""
        return self.m // self.rows // self.wgmma.m

    @property
    def column_blocks(self) -> int:
        return self.n // self.columns // self.width

    @property
    def k_blocks(self) -> int:
        return self.k // self.wgmma.k

    def c(self) -> Distribution:
        i, j = placeholders(2)
        block = (self.m // self.rows, self.n // self.columns)
        group = i // block[0] + (j // block[1] + Placeholder("rep") * self.columns) * self.rows
        found = repeated(self.c_fragment, (self.m, self.n), block, group * self.wgmma.lanes, self.copies, self.threads)
        return Distribution(turned_fragment(found.fragment), self.threads) if self.turned else found

    def a(self) -> Distribution:
        """A in registers: every warpgroup of a row of them holds the same rows."""
        i, _ = placeholders(2)
        block = (self.m // self.rows, self.k)
        group = i // block[0] + Placeholder("rep") * self.rows
        copies = self.columns * self.copies
        base = self.wgmma.a_fragment
        return repeated(base, (self.m, self.k), block, group * self.wgmma.lanes, copies, self.threads)

    def is_loaded(self, is_a: bool) -> bool:
        """Whether threads load this operand: no descriptor has to describe it."""
        return self.loaded and is_a != self.turned

    def pieces(self, is_a: bool, region: Any, along_k: bool) -> int:
        """At multiples of how many columns of the operand's buffer matrices begin; 0: at column 0 alone."""
        column = divisor(region.region[-1].min)
        return column if along_k else math.gcd(column, self._tiles_at(is_a))

    def layout_fault(self, is_a: bool, region: Any, layout: Any, along_k: bool) -> str:
        """Why the instruction cannot take an operand with this layout; "" if it can."""
        if self.is_loaded(is_a):
            return ""
        name = region.source.name
        matrix = shared_matrix(layout, element_type(region), not along_k)
        if matrix is None:
            return f"no descriptor describes the layout of {name}"
        row, column = (divisor(r.min) for r in region.region[-2:])
        fault = matrix.fault(row, column, self.k, self._tiles_at(is_a))
        return f"{name}: {fault}" if fault else ""

    def _tiles_at(self, is_a: bool) -> int:
        """At multiples of how many rows (or columns) of C instruction tiles begin; 0: there is one."""
        tile, extent = (self.wgmma.m, self.m) if is_a != self.turned else (self.width, self.n)
        return 0 if tile == extent else tile


def _in_turns(fragment: Fragment) -> Fragment:
    """A fragment of 64 rows with other rows: what a warp's lanes load at once of a tile along m or n that is swizzled by 128
    bytes, two neighbours each, lies in all banks, and what they store of C is whole sectors."""
    i, j = placeholders(2)
    row = i // 2 % 2 + i // 16 % 2 * 2 + i // 4 % 2 * 4 + i % 2 * 8 + i // 8 % 2 * 16 + i // 32 * 32
    thread, index = (substitute(e, {"i": row, "j": j}) for e in (fragment.thread_expr, fragment.index_expr))
    return Fragment.from_exprs(fragment.shape, thread, index, fragment.replicate_size, fragment.thread_extent)


def warpgroup_tiling(op: Gemm, types: tuple[str, str, str], threads: int, arch: Arch) -> WarpgroupTiling | str:
    """The split of a product of element types (a, b, c) over the block's warpgroups; in words, why there is none."""
    if not arch.has_wgmma:
        return f"{arch.name} has no wgmma"
    wgmma = next((d for d in warpgroup_multiplies() if (d.a, d.b, d.c) == types and d.runs_on(arch.name)), None)
    if wgmma is None:
        return f"there is no wgmma for {types[0]} x {types[1]} -> {types[2]}"
    if threads % wgmma.lanes:
        return f"wgmma takes warpgroups of {wgmma.lanes} threads, and the block has {threads}"
    turned, loaded = _way(op, wgmma)
    m, n = (op.n, op.m) if turned else (op.m, op.n)
    if m % wgmma.m or op.k % wgmma.k:
        least = f"8 x {wgmma.m}" if turned else f"{wgmma.m} x 8"
        return f"the tile {op.m} x {op.n} x {op.k} is no multiple of {least} x {wgmma.k}"
    fault = _operand_fault(op, wgmma, turned, loaded)
    if fault:
        return fault
    groups = threads // wgmma.lanes
    found = [
        WarpgroupTiling(wgmma, m, n, op.k, width, rows, columns, groups // (rows * columns), threads, turned, loaded)
        for rows in range(1, groups + 1)
        for columns in range(1, groups + 1)
        if groups % (rows * columns) == 0 and m % (wgmma.m * rows) == 0 and n % columns == 0
        for width in [_width(wgmma, n // columns, n, turned or op.transpose_b)]
        if width
    ]
    if not found:
        return f"{'m' if turned else 'n'} = {n} is no sum of the widths that {wgmma.label} has"
    return max(found, key=lambda t: _merit(t, op.policy))


def _way(op: Gemm, wgmma: WarpgroupMultiply) -> tuple[bool, bool]:
    """(`turned`, `loaded`) of the tiling: where one operand lies along m or n, and the instruction wants both along k, it is the
    left one and registers hold it, an element each."""
    along_k = not op.transpose_a, bool(op.transpose_b)
    apart = not wgmma.either_major and along_k[0] != along_k[1]
    here = is_fragment(op.a.source) or is_fragment(op.b.source)
    loaded = apart and not here and dtype_of(wgmma.a).bits == 32 and wgmma.a == wgmma.b
    return loaded and along_k[0], loaded


def _merit(tiling: WarpgroupTiling, policy: int) -> tuple[int, ...]:
    """As the policy wants; else every warpgroup has its own work, as many rows apart as possible: A is read less often
    than B, which all rows need."""
    if policy in (GemmWarpPolicy.FullCol, GemmWarpPolicy.FullRow):
        by_rows = (policy == GemmWarpPolicy.FullRow) != tiling.turned
        return (tiling.rows, tiling.columns) if by_rows else (tiling.columns, tiling.rows)
    return (tiling.rows * tiling.columns, tiling.rows)


def _width(wgmma: WarpgroupMultiply, part: int, whole: int, along_k: bool) -> int:
    """The widest n of which `part` columns consist; of a right operand that lies along n, parts begin where a row of 32 bytes
    does at least."""
    aligned = 1 if along_k else 256 // dtype_of(wgmma.b).bits
    fitting = [w for w in wgmma.widths if part % w == 0 and (w == whole or w % aligned == 0)]
    return max(fitting, default=0)


def _operand_fault(op: Gemm, wgmma: WarpgroupMultiply, turned: bool, loaded: bool) -> str:
    """What speaks against the operands as they stand; "" for nothing."""
    for region, along_k in ((op.a, not op.transpose_a), (op.b, op.transpose_b)):
        if loaded and (region is op.b) == turned:
            continue
        if not (along_k or wgmma.either_major):
            return f"{wgmma.label} wants {region.source.name} with k along its rows"
        if is_fragment(region.source) or not is_shared(region.source):
            continue  # it is in registers, or will be copied into a tile of its own
        row, column = (divisor(r.min) for r in region.region[-2:])
        if row % 8 or column * dtype_of(wgmma.a).bits % 256:
            return f"the part of {region.source.name} does not begin at a multiple of 8 rows and 32 bytes"
    return ""
