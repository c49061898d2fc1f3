"""`emit_gemm`: C[i, j] += sum over k of A[i, k] * B[k, j] on on-chip tiles, as loops around register-tiled kernels.

    convert A if its type is not the kernel's;  pack B into panels if it is not directly usable
    for panel in range(N / (nv * lanes)):
        for block in range(M / mr): tl.gemm...(&A[block * mr, 0], panel, &C[block * mr, panel * nv * lanes], K, clear)

| A x B -> C | instruction | operands |
| --- | --- | --- |
| bf16 x bf16 -> f32 with amx_bf16 | tdpbf16ps | A in place, B in pairs along K |
| 8-bit integers -> int32 with amx_int8 | tdpbssd and relatives | A in place, B in quads along K |
| f32, f64, int32, int64, same throughout | fma / mul + add | in place; B packed if transposed, or from a tensor for many rows |
| bf16 x bf16 -> f32 with avx512_bf16 | vdpbf16ps | A in place, B in pairs along K |
| 8-bit integers -> int32 with avx512_vnni | vpdpbusd | A in place, B in quads along K |
| 8-bit integers -> int32 without, or few rows by a transposed B | vpmaddwd | both widened to int16, B in pairs |
| other floats | f32 (f64 if one is) fma | converted to it |

Of operands of one type and no groups, tiles of tensors are read in place, and written (`in_place`), as far as they are inside;
a transposed B is turned into panels from there, one that many rows meet (`PACKED_ROWS`) is packed by the first of them. Of
bfloat16 in pairs or in tile registers A and B may lie in tensors, beside a C on chip; in pairs C, too, of bfloat16 as well: its
sums are rounded as they are stored. Of bytes in quads B and C may, beside an A on chip, and in tile registers A and B. The lines
of C that a kernel will need, and those that the next round of the loop around reads of A and B, are fetched while it multiplies.

C of another type than the accumulator is converted before and rounded after, once per call. The kernels for the first two
are in `tile_kernels.py` (the loops around them in `gemm_tiles.py`, `gemm_tiles_in_place.py`, `gemm_tiles_by_strips.py`), the
others in `gemm_kernels.py`, their packing of B in `gemm_packing.py`; those of few rows by a transposed B in `gemm_dots.py`,
or, of a B in a tensor, in `gemm_streams.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from tvm import tirx as tir
from tvm.ir import prim

from tile_compiler.context import Ahead, InTensors
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of as dtype_facts

from .ahead import Fetched, FetchedLines, Share
from .counts import at_most, index, loop_within
from .features import CpuFeatures
from .flatten import storage_bytes
from .gemm_dots import Dots, dots_of
from .gemm_kernels import ROUND, KernelShape
from .gemm_operands import (
    Emitter,
    GemmSpec,
    InterleavedRows,
    Operand,
    Prepared,
    Stmt,
    convert_copy,
    either,
    holds,
    unsigned,
    whole_blocks,
)
from .gemm_panels import Panels
from .gemm_streams import Streams, streams
from .gemm_tiles import Tiles
from .gemm_tiles_by_strips import Strips, by_strips
from .gemm_tiles_in_place import TilesOfTensors, leaves_registers, suits
from .instructions.multiply_accumulate import (
    FMA_F32,
    FMA_F64,
    MAC_I32,
    MAC_I64,
    QUADS,
    VDPBF16PS,
    MultiplyAccumulate,
    of_bytes,
)
from .instructions.tile_multiply import TDPBF16PS, TDPBSSD, TDPBSUD, TDPBUSD, TDPBUUD, TileMultiply

__all__ = ["GemmSpec", "Operand", "choose_instruction", "emit_gemm", "in_place", "register_tile"]


#: Rows of bfloat16 up to which vectors are better than AMX: attention by 1024 keys as a kernel, of torch's speed, one query
#: 0.50 in tile registers, 1.02 so, two 1.03 and 2.00, four 1.50 and 1.49, eight 1.47 and 1.00.
MOST_ROWS_BESIDE_TILES = 2

#: Blocks of rows between the one that is multiplied and the one whose rows are fetched meanwhile. bfloat16 by 512 rows of a
#: transposed 4096 x 4096, 72, 96, 256 rows: 5.65, 6.74, 17.6 ms by the next whole tile, 5.36, 6.50, 16.9 so; 1 to 16 are alike.
NEAR = 2

#: Rows that are eights and no sixes. As kernels, of torch's speed by 8 x 3 and 6 x 4, Xeon with AMX: 16x512x512 0.86, 0.84 (as
#: calls 0.94, 0.89), 32x512x512 0.90, 0.85, 40x384x384 0.88, 0.83; but 64x512x512 0.88, 0.89, 48x768x256 0.91, 0.91.
BY_EIGHT = (8, 16, 32, 40)

#: Blocks of rows of which the last one may be cut: of more, what it computes in vain counts for little, and kernels for other
#: heights take seconds to compile (512 rows by 96 columns 7.1, 1.7).
MOST_EVEN = 64


#: Bytes of a B that no first cache holds: each of its panels is packed when it is multiplied with. EPYC, 256 rows of bfloat16 by
#: 4096 x 4096 in uint4, nf4 and int4 1.004, 1.002, 0.991 of torch with all packed before, 1.015, 1.006, 1.003 so; attention,
#: whose keys the first cache holds, would be up to 3 % slower.
FIRST_CACHE = 1 << 16

#: Heights of blocks of rows of bytes by panels, whatever rows there are: what a block computes in vain is time (23 rows by 1024 x
#: 1024 by two blocks of one height 0.99 of torch, 1.24 so), and kernels of each height would take twice as long to compile.
STEPPED_HEIGHTS = (14, 12, 10, 8)


def choose_instruction(a: str, b: str, c: str, features: CpuFeatures) -> MultiplyAccumulate | TileMultiply:
    """The instruction for element types `a`, `b` and accumulator type `c`."""
    facts = [dtype_facts(d) for d in (a, b, c)]
    if any(d.is_float for d in facts):
        if any(d.is_float and d.bits == 64 for d in facts):
            return FMA_F64
        both_bf16 = a == b == "bfloat16"
        if both_bf16 and TDPBF16PS.available(features):
            return TDPBF16PS
        return VDPBF16PS if both_bf16 and VDPBF16PS.available(features) else FMA_F32
    if facts[2].bits == 64:
        return MAC_I64
    bytes_only = all(d.bits <= 8 for d in facts[:2])
    if bytes_only and TDPBSSD.available(features):
        with_a = (TDPBUUD, TDPBUSD) if unsigned(a) else (TDPBSUD, TDPBSSD)
        return with_a[0] if unsigned(b) else with_a[1]
    return of_bytes(unsigned(a), features) if bytes_only else MAC_I32


def in_place(problem: InTensors, features: CpuFeatures) -> tuple[bool, bool, bool]:
    """Which of A, B, C need no copy where they lie in tensors: all three where the kernels read them as they are, B alone where
    few rows on chip meet a transposed one."""
    a, b, c = problem.types
    op = for_rows(choose_instruction(a, b, c, features), problem.rows)
    rows_on_chip = problem.on_chip[0] and problem.on_chip[2]
    if rows_on_chip and streams(op, a, b, features, problem.turned, problem.rows) is not None:
        return False, True, False
    held, of_c = holds(a, op.a) and holds(b, op.b), holds(c, op.acc)
    if op is VDPBF16PS:
        held = held and (of_c or c == "bfloat16")
        return held, held, held and not problem.on_chip[0]
    leaves = leaves_registers(op, c, features) and not (problem.on_chip[0] or problem.on_chip[2])
    held = held and (of_c or leaves)
    if op in QUADS:  # sums of A's rows want whole groups
        of_b = b in ("int8", "uint8")
        return False, of_b and problem.on_chip[0], of_c and problem.on_chip[0]
    if suits(op, problem.depth):
        return held and not problem.turned[0], held, held and leaves
    whole = op.group == 1 and held
    return whole, whole, whole


def register_tile(
    op: MultiplyAccumulate, features: CpuFeatures, m: int, n: int, in_tensor: bool = False
) -> tuple[int, int]:
    """(rows, column vectors) of the accumulator tile.

    14 x 2 of 32 registers and 6 x 2 of 16 leave room for B and the broadcast A and were the fastest on Zen 4 and 5, and
    6 x 4 on Sapphire Rapids (0.62 of the loads; float32 68 GFLOP/s against 62), where the level has AMX
    (benchmarks/cpu_microkernel.py), or where A lies in a tensor: addresses of more rows fit no registers (96x96x96 0.94 of torch
    against 0.61 on Sapphire Rapids). Few rows take more columns, so that eight or more accumulators hide the latency of
    the multiply-add. Of such an A by five or six vectors in all, rows meet all of them at once (bfloat16 by 512 rows of a matrix:
    80 columns by 5 x 5, 96 by 4 x 6). With AMX seven or eight rows of such an A are one block by three vectors, not two by
    four, where columns are whole threes (8x512x512 on Sapphire Rapids 0.89 of torch, 0.83), and so are few eights of rows that
    are no sixes.
    """
    if in_tensor and op.group > 1 and features.registers == 32 and -(-n // op.lanes(features)) in (5, 6):
        columns = -(-n // op.lanes(features))
        return min(m, 28 // columns), columns
    columns = -(-n // op.lanes(features))
    if in_tensor and op.group == 1 and features.amx and m in (7, *BY_EIGHT) and columns % 3 == 0:
        return min(m, 8), 3
    rows = 14 if features.registers == 32 and not (features.amx or in_tensor) else 6
    rows = min(m, rows)
    budget = 28 if features.registers == 32 else 12
    wide = 2
    while wide * 2 * rows <= budget and wide < columns:
        wide *= 2
    return rows, max(1, min(wide, columns))


def for_rows(op: MultiplyAccumulate | TileMultiply, rows: int) -> MultiplyAccumulate | TileMultiply:
    """What multiplies so few rows: tile registers hold 16 of them, and want B turned first."""
    return VDPBF16PS if op is TDPBF16PS and rows <= MOST_ROWS_BESIDE_TILES else op


def emit_gemm(spec: GemmSpec) -> Stmt:
    """The statements of one tile GEMM."""
    op = for_rows(choose_instruction(spec.a.dtype, spec.b.dtype, spec.c.dtype, spec.features), spec.m)
    if spec.b.in_tensor and not (spec.a.in_tensor or spec.c.in_tensor):
        turned = spec.a.row_dim > spec.a.col_dim, spec.b.row_dim > spec.b.col_dim
        streamed = streams(op, spec.a.dtype, spec.b.dtype, spec.features, turned, spec.m)
        if streamed is not None:
            return Streams(spec, streamed).emit()
    dots = None if rounds(op, spec.c) else dots_of(spec, op)
    if dots is not None:
        return Dots(spec, dots).emit()
    if isinstance(op, TileMultiply):
        in_tensor = any(x.in_tensor for x in (spec.a, spec.b, spec.c))
        return (Strips if by_strips(spec) else TilesOfTensors if in_tensor else Tiles)(spec, op).emit()
    return Vectors(spec, op).emit()


def rounds(op: MultiplyAccumulate | TileMultiply, c: Operand) -> bool:
    """Whether the kernels round what they store, in a tensor of halves."""
    return op is VDPBF16PS and c.in_tensor and c.dtype == "bfloat16"


@dataclass(frozen=True)
class Rows:
    """A block of rows: whether it is one of the first, which fetch more, whether some of it may not be there, and whether it
    packs what the others read of B."""

    first: Any
    count: int
    leading: bool
    leaves: bool
    packs: bool = False


class Vectors(Emitter):
    """Rows of A by broadcast, columns of C in vector registers."""

    op: MultiplyAccumulate

    def __init__(self, spec: GemmSpec, op: MultiplyAccumulate) -> None:
        super().__init__(spec)
        self.op, self.lanes = op, op.lanes(spec.features)
        rows, nv = register_tile(op, spec.features, spec.m, spec.n, self.a_in_place)
        self.width, self.row_blocks = nv * self.lanes, balanced(spec.m, rows)

    @property
    def a_in_place(self) -> bool:
        """Whether the kernels read A of a tensor; else of a copy, pairs of a transposed one side by side."""
        a = self.spec.a
        return a.in_tensor and (self.op.group == 1 or a.col_dim == len(a.origin) - 1)

    def products(self, given: Prepared) -> list[Stmt]:
        """Panels, of each all blocks of rows; of rows that wait in a tensor, and not in a cache, each block meets all panels."""
        blocks, panels = sum(count for _, count in self.row_blocks), -(-self.spec.n // self.width)
        of_all, of_first, first = self.shares(given.c, blocks, panels)

        def one(panel: Any, cols: int, ends: Any, block: Any, rows: Rows) -> Stmt:
            number = block * panels + panel if self.rows_first else panel * blocks + block
            fetched = [share.of_block(number) for share in of_all + of_first * rows.leading]
            fetched += self.rows_ahead(given.c, rows, panel, panels)
            return self.kernel(given, panel, cols, rows, fetched, ends)

        if self.rows_first:

            def all_panels(*rows: Any) -> Stmt:
                return tile_ir.sequence(self.over_panels(lambda *at: one(*at, *rows)))

            return [self.over_all_rows(first, all_panels, given.c)]
        pack = given.b.pack
        return self.over_panels(lambda *at: self.over_all_rows(first, lambda *rows: one(*at, *rows), given.c), pack)

    def shares(self, c: Operand, blocks: int, panels: int) -> tuple[list[Share], list[Share], int]:
        """What each block fetches of the next tiles, what the first blocks of rows do beside it, and how many those are: of B
        half of them all of it, where they can, as the others may not be there."""
        tiles, half = [tile for tile in self.following(c) if not (self.rows_first and tile.of_a)], -(-blocks // 2)
        of_all = [Share.of(tile, blocks * panels, self.rounds) for tile in tiles]
        if not self.rows_first or self.limits[0] is None:
            return of_all, [], blocks
        by_half = [Share.of(tile, half * panels, self.rounds) for tile in tiles]
        return ([], by_half, half) if all(share.whole for share in by_half) else (of_all, [], half)

    def rows_ahead(self, c: Operand, rows: Rows, panel: Any, panels: int) -> list[Fetched]:
        """What a block fetches of A, where each block of rows meets all panels: a panel's share of the rows that the block `NEAR`
        on reads; past the last row, of the first ones of the next tile. A whole tile further on, rows that are a power of two
        apart would share few sets of the second cache."""
        a, end, found = self.spec.a, at_most(self.spec.m, self.limits[0]), []
        for tile in self.following(c):
            if self.rows_first and tile.of_a:
                share = Share.of(replace(tile, rows=rows.count), panels, self.rounds)
                row, byte = share.begin(panel)
                row = rows.first + index(NEAR * rows.count) + row
                here = a.address(row, tir.truncdiv(byte, index(storage_bytes(a.dtype))))
                at = either(a.buffer, row < end, here, tile.address(row - end, byte))
                found.append(Fetched(share.lines, at, tile.stride))
        return found

    def over_rows(self, leading: int, body: Callable[[Any, Rows], Stmt]) -> list[Stmt]:
        """`body(block, rows)` for all blocks of rows that are there, of which the first are `leading`."""
        parts, start, first = [], 0, 0

        def block(first: int, start: int, high: int, leads: bool, packs: bool, t: Any) -> Stmt:
            rows = Rows(index(start) + t * high, high, leads, self.spec.leaves[0], packs)
            return body(t + index(first), rows)

        for high, count in self.row_blocks:
            some, packing = min(count, max(0, leading - first)), int(self.packs_meanwhile and not first)
            kinds = ((packing, True, True), (some - packing, True, False), (count - some, False, False))
            for times, leads, packs in kinds:
                one = partial(block, first, start, high, leads, packs)
                parts += [loop_within(times, self.limits[0], start, high, one)] if times else []
                start, first = start + high * times, first + times
        return parts

    def over_all_rows(self, leading: int, body: Callable[[Any, Rows], Stmt], c: Operand) -> Stmt:
        """The same, the last block cut by what is there or, where that matters, by blocks that hold no more."""
        stmts = tile_ir.sequence(self.over_rows(leading, body))
        if self.op.group == 1 or self.limits[0] is None or self.row_blocks[0][0] == 1:
            return stmts
        if not self.rows_first:
            return self.over_stepped_rows(leading, body) if c.in_tensor and self.stepped_heights else stmts
        few = sum(count for _, count in self.row_blocks) <= MOST_EVEN
        return self.over_even_rows(leading, body, stmts) if few and not c.in_tensor else stmts

    def over_even_rows(self, leading: int, body: Callable[[Any, Rows], Stmt], others: Stmt) -> Stmt:
        """The same by blocks of two heights that hold the rows that are there and no more; `others` where these are so few that
        no such blocks do."""
        rows, high = at_most(self.spec.m, self.limits[0]), self.row_blocks[0][0]
        blocks, higher = tir.Var("blocks", "int64"), tir.Var("higher", "int64")
        binds = [
            tir.Bind(blocks, tir.truncdiv(rows + index(high - 1), index(high))),
            tir.Bind(higher, rows - blocks * (high - 1)),
        ]
        even = self.over_two_heights((high, high - 1), (blocks, higher), leading, body, leaves=False)
        return tile_ir.sequence([*binds, tir.IfThenElse(higher >= index(0), even, others)])

    def over_stepped_rows(self, leading: int, body: Callable[[Any, Rows], Stmt]) -> Stmt:
        """The same by blocks of two of `STEPPED_HEIGHTS`, next to each other, that hold the rows that are there and one more at
        most."""
        rows, heights = at_most(self.spec.m, self.limits[0]), self.stepped_heights
        blocks, most = tir.Var("blocks", "int64"), heights[0]
        stmt = self.over_two_heights((heights[-1], 0), (blocks, blocks), leading, body, leaves=True)
        for high, low in reversed([*pairwise(heights)]):
            higher = tir.Var("higher", "int64")
            lacking = tir.truncdiv(rows - blocks * low + index(high - low - 1), index(high - low))
            two = self.over_two_heights((high, low), (blocks, higher), leading, body, leaves=True)
            stmt = tir.IfThenElse(rows > blocks * low, tile_ir.sequence([tir.Bind(higher, lacking), two]), stmt)
        return tile_ir.sequence([tir.Bind(blocks, tir.truncdiv(rows + index(most - 1), index(most))), stmt])

    @property
    def stepped_heights(self) -> list[int]:
        most = register_tile(self.op, self.spec.features, self.spec.m, self.spec.n, self.a_in_place)[0]
        return [height for height in STEPPED_HEIGHTS if height <= most]

    def over_two_heights(
        self,
        heights: tuple[int, int],
        numbers: tuple[Any, Any],
        leading: int,
        body: Callable[[Any, Rows], Stmt],
        leaves: bool,
    ) -> Stmt:
        """So many blocks, of which so many are higher; `leaves`: the last row of the last one may not be there."""
        (high, low), (blocks, higher) = heights, numbers
        lead = tir.min(higher, index(leading))

        def part(first: Any, count: Any, start: Any, height: int, leads: bool) -> Stmt:
            t = tir.Var("t", "int64")
            stmt = body(first + t, Rows(start + t * height, height, leads, leaves and self.spec.leaves[0]))
            return tir.For(t, index(0), count, tir.ForKind.SERIAL, stmt)

        parts = [part(index(0), lead, index(0), high, True)] if leading else []
        if leading < sum(count for _, count in self.row_blocks):
            parts.append(part(lead, higher - lead, lead * high, high, False))
        if low:
            parts.append(part(higher, blocks - higher, higher * high, low, False))
        return tile_ir.sequence(parts)

    def over_panels(
        self, body: Callable[[Any, int, Any], Stmt], pack: Callable[[Any], Stmt] | None = None
    ) -> list[Stmt]:
        """`body(panel, columns, ends)` for all panels that are there: of the last one as many vectors as begin below the limit;
        what `leaves` ends there. `pack(panel)` comes before it."""
        n_limit, n_leaves = self.limits[1], self.spec.leaves[1]

        def held(panel: Any, cols: int) -> Stmt:
            vectors, stmt = -(-cols // self.lanes), body(panel, cols, None)
            if n_limit is None:
                return stmt
            left = n_limit - panel * self.width
            ends = left if n_leaves else None
            for count in range(vectors if n_leaves else vectors - 1, 0, -1):
                some = min(cols, count * self.lanes)
                within = left < index(some) if count == vectors else left <= index(some)
                stmt = tir.IfThenElse(within, body(panel, some, ends), stmt)
            return stmt

        def packed(panel: Any, cols: int) -> Stmt:
            stmt = held(panel, cols)
            return stmt if pack is None else tile_ir.sequence([pack(panel), stmt])

        def part(first: int, count: int, cols: int) -> Stmt:
            return loop_within(count, n_limit, first * self.width, cols, lambda p: packed(p + index(first), cols))

        return [part(*some) for some in self.panels]

    @property
    def rows_first(self) -> bool:
        return self.op.group > 1 and self.a_in_place

    def prepare_a(self) -> tuple[list[Stmt], Operand]:
        """A transposed A stays so, as its elements are broadcast: it is converted row by row, or interleaved, as B is, where they
        are taken in pairs."""
        spec, op, a, zero = self.spec, self.op, self.spec.a, index(0)
        held = holds(a.dtype, op.a)
        if self.a_in_place:
            return [], a
        if a.in_tensor:
            width = whole_blocks(spec.m, self.lanes)
            packed = spec.scratch("int32", (self.groups, width))
            target, limit = tir.address_of(tir.BufferLoad(packed, [zero, zero])), self.limits[0]
            rows = InterleavedRows(packed, (zero, zero), 1, 0, op.group)
            return [self.grouped(a.transposed, zero, target, (spec.m, width, 0), limit)], rows
        if (held and op.group == 1) or a.row_stride != 1 or a.col_stride == 1:
            return super().prepare_a()
        if op is VDPBF16PS and held:
            width = whole_blocks(spec.m, self.lanes)
            packed = spec.scratch("int32", (self.groups, width))
            target = tir.address_of(tir.BufferLoad(packed, [zero, zero]))
            stmt = self.interleaved(a.transposed, a.address(zero, zero), target, spec.m, width, flips=False)
            return [stmt], InterleavedRows(packed, (zero, zero), 1, 0, op.group)
        if op.group == 1 and not held:
            copy = Operand(spec.scratch(op.a, (spec.k, spec.m)), (zero, zero), 1, 0)
            return [convert_copy(copy.transposed, a.transposed, spec.k, spec.m)], copy
        return super().prepare_a()

    @property
    def by_and_by(self) -> bool:
        """Whether each panel of B is packed just before its own products, so that it is in the first cache then."""
        spec, size = self.spec, storage_bytes(self.spec.b.dtype)
        return self.op.group > 1 and not self.rows_first and spec.b.in_tensor and spec.n * spec.k * size > FIRST_CACHE

    @property
    def packs_meanwhile(self) -> bool:
        """Whether the first block of rows packs B as it multiplies: a B that lies row by row, which all read in panels."""
        return self.op.group == 1 and self.many_rows and self.spec.b.row_dim != len(self.spec.b.origin) - 1

    def panels_of_tensor(self) -> Panels:
        if self.packs_meanwhile:
            return replace(super().panels_of_tensor(), before=())
        if not self.by_and_by:
            return super().panels_of_tensor()
        return self.packer(1).panels_by_and_by(self.spec.n)

    def correction(self, a: Operand, elements: Any = None) -> tuple[list[Stmt], Any]:
        """A block's sums are made before its first panel, which brings its rows into the first cache."""
        return [], super().correction(a, elements)[1]

    def prepare_c(self) -> tuple[list[Stmt], Operand, list[Stmt]]:
        return ([], self.spec.c, []) if rounds(self.op, self.spec.c) else super().prepare_c()

    @property
    def odd(self) -> bool:
        """Whether A in its tensor may have half a pair."""
        return self.op.group > 1 and self.a_in_place and (self.spec.k % 2 != 0 or self.limits[2] is not None)

    @property
    def rounds(self) -> int:
        return max(1, self.groups // ROUND)

    def following(self, c: Operand) -> list[Ahead]:
        """The tiles that are fetched meanwhile: those that the next round reads in place. Copies of the others gain nothing
        by it (docs/performance/cpu.md)."""
        if self.by_and_by:
            return []  # B's are as it is packed; by the kernels, of the next panels or the next tile, gains no more than 1 %
        return [tile for tile in self.spec.ahead if tile.in_place and (c.in_tensor or self.op.group > 1)]

    def kernel(self, given: Prepared, panel: Any, cols: int, block: Rows, fetched: list[Fetched], ends: Any) -> Stmt:
        """A block of the product: rows by a panel's `cols`, of which `ends` are there (None: all)."""
        row, rows, m_leaves = block.first, block.count, block.leaves
        a, c, unit = given.a, given.c, self.op.unit_bytes
        element, zero, of_c = unit // self.op.group, index(0), storage_bytes(given.c.dtype)
        first = c.address(row, panel * self.width)
        steps = (a.row_dim, element), (a.col_dim, unit)
        a_row, a_k = (a.stride(dim) * size if a.knows_stride(dim) else 0 for dim, size in steps)
        b, panel_row = self.spec.b, given.b.at(panel, zero)
        args = [a.address(row, zero), b.address(zero, panel * self.width) if block.packs else panel_row, first]
        if given.sums is not None:
            args.append(tir.address_of(tir.BufferLoad(given.sums, [row])))
        args += [panel_row] if block.packs else []
        args += [tir.floordiv(self.elements, index(self.op.group)) if self.odd else self.depth, given.clear]
        args += [a.any_stride(dim) * size for known, (dim, size) in zip((a_row, a_k), steps) if not known]
        b_k = given.b.row if isinstance(given.b.row, int) else 0
        args += [b.any_stride(b.row_dim) * index(unit)] if block.packs else [] if b_k else [given.b.row]
        ahead = [part.lines for part in fetched]
        if c.in_tensor:  # its lines come from far, for the stores and the loads before them
            c_row = c.any_stride(c.row_dim) * of_c
            ahead.insert(0, FetchedLines.of(rows, cols * of_c, self.rounds))
            args.append(c_row)
        args += [tir.min(self.limits[0] - row, index(rows))] if m_leaves else []
        args += [] if ends is None else [ends]
        args += [tir.floormod(self.elements, index(self.op.group))] if self.odd else []
        args += [first, c_row] if c.in_tensor else []
        args += [x for part in fetched for x in (part.address, part.stride)]
        shape = KernelShape(
            self.op.name, rows, -(-cols // self.lanes), self.lanes, cols, a_row, a_k, b_k,
            0 if c.in_tensor else c.row_stride * unit, given.b.padded and not block.packs, given.sums is not None,
            m_leaves, m_leaves and not a.in_tensor, ends is not None, self.odd, rounds(self.op, c), block.packs, tuple(ahead),
        )  # fmt: skip
        product = tir.Evaluate(tir.call_extern("void", shape.name, *args))
        if given.sums is None:
            return product
        there = index(rows) if self.limits[0] is None else tir.min(self.limits[0] - row, index(rows))
        sums = self.row_sums(a, given.sums, row, there)
        return tile_ir.sequence([tir.IfThenElse(prim.EQ(panel, zero), sums, None), product])


def balanced(total: int, most: int) -> list[tuple[int, int]]:
    """`total` rows as blocks of nearly equal height <= `most`: [(height, count), ...], the higher ones first."""
    blocks = -(-total // most)
    low, higher = divmod(total, blocks)
    parts = [(low + 1, higher), (low, blocks - higher)]
    return [(height, count) for height, count in parts if count]
