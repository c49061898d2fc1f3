"""The operands of a tile GEMM as its kernels want them: converted, padded along K, B in panels.

What `gemm.py` (vector registers) and `gemm_tiles.py` (tile registers) have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx as tir
from tvm.ir import prim

from tile_compiler.context import Ahead
from tile_compiler.loops.turned import Turn
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of as dtype_facts

from .ahead import LINE
from .counts import at_most, index, loop
from .features import CpuFeatures
from .flatten import storage_bytes
from .gemm_panels import WALK, Packer, Panels
from .instructions.multiply_accumulate import QUADS, MultiplyAccumulate
from .instructions.tile_multiply import TileMultiply

Stmt = Any

#: Rows from which on a B in a tensor is packed, though kernels could read it where it lies: its rows meet as many, and lie so
#: far apart that they would share few lines of the caches; and rows of an A that lies in a tensor as well (16x512x512 by tiles
#: of 96 rows, packed, 0.87 of the speed without, as AVX2 0.75; 96x512x512 0.97, 300x300x300 0.98). And bytes of a tile up to
#: which: more would leave the second cache before they are read.
PACKED_ROWS, PACKED_ROWS_OF_TENSORS, PACKED_BYTES = 64, 128, 1 << 20


@dataclass(frozen=True)
class Operand:
    """A matrix inside an N-d buffer, on chip or a tensor: element (r, c) is at `origin`, plus r in dimension `row_dim`, plus c in
    `col_dim`. A transposed matrix has the two dimensions swapped."""

    buffer: Any
    origin: tuple[Any, ...]
    row_dim: int
    col_dim: int

    @property
    def dtype(self) -> str:
        return str(self.buffer.ty.dtype)

    def at(self, row: Any, col: Any) -> Any:
        """The load of element (row, col)."""
        indices = list(self.origin)
        indices[self.row_dim] = indices[self.row_dim] + row
        indices[self.col_dim] = indices[self.col_dim] + col
        return tir.BufferLoad(self.buffer, indices)

    def store(self, row: Any, col: Any, value: Any) -> Stmt:
        return tir.BufferStore(self.buffer, value, list(self.at(row, col).indices))

    def address(self, row: Any, col: Any) -> Any:
        return tir.address_of(self.at(row, col))

    @property
    def in_tensor(self) -> bool:
        return str(self.buffer.scope()) in tile_ir.GLOBAL

    def any_stride(self, dim: int) -> Any:
        """Elements between neighbours along a dimension of the buffer, an expression of int64."""
        given = self.buffer.ty.strides
        if len(given):
            return prim.Cast("int64", given[dim])
        stride = index(1)
        for extent in self.buffer.ty.shape[dim + 1 :]:
            stride = stride * prim.Cast("int64", extent)
        return stride

    def stride(self, dim: int) -> int:
        """The same where it is known."""
        given = self.buffer.ty.strides
        if len(given):
            return int(given[dim])
        stride = 1
        for extent in self.buffer.ty.shape[dim + 1 :]:
            stride *= int(extent)
        return stride

    def knows_stride(self, dim: int) -> bool:
        given = self.buffer.ty.strides
        parts = given[dim : dim + 1] if len(given) else self.buffer.ty.shape[dim + 1 :]
        return all(tile_ir.static(part) is not None for part in parts)

    @property
    def row_stride(self) -> int:
        return self.stride(self.row_dim)

    @property
    def col_stride(self) -> int:
        return self.stride(self.col_dim)

    @property
    def transposed(self) -> Operand:
        return replace(self, row_dim=self.col_dim, col_dim=self.row_dim)


@dataclass(frozen=True)
class InterleavedRows(Operand):
    """A whose groups along K are units of 4 bytes, those of all rows side by side: a buffer [groups][rows] of int32. Steps as the
    kernels count them: along a row in elements, along K in units."""

    group: int

    def stride(self, dim: int) -> int:
        return super().stride(dim) * (self.group if dim == self.row_dim else 1)


@dataclass(frozen=True)
class GemmSpec:
    """One tile GEMM. `a` is M x K, `b` K x N, `c` M x N.

    `clear_accum`: C is overwritten instead of added to (an expression or a bool). `scratch(dtype, shape)` makes an
    on-chip buffer for the time of the GEMM. `ahead`: what may be fetched into the caches meanwhile. `limits` of m, n and k:
    what lies beyond may be left out, and must be where an operand `leaves` its tensor there; `prepared`: where panels are
    those of the last round (`TileProduct`).
    """

    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    c: Operand
    features: CpuFeatures
    scratch: Callable[[str, Sequence[int]], Any]
    clear_accum: Any = False
    ahead: tuple[Ahead, ...] = ()
    limits: tuple[Any, Any, Any] = (None, None, None)
    leaves: tuple[bool, bool, bool] = (False, False, False)
    prepared: Any = None


@dataclass(frozen=True)
class Prepared:
    """What the kernels read and write: A; B; C; what the sums of each row of C start at (a buffer [M]; None: zero); and whether C
    is overwritten (int32)."""

    a: Operand
    b: Panels
    c: Operand
    sums: Any
    clear: Any


class Emitter:
    """The operands as kernels want them; the two subclasses have the kernels, for vector and for tile registers."""

    op: MultiplyAccumulate | TileMultiply
    lanes: int
    width: int  # columns of a panel of B
    walks: tuple[int, ...] = (
        WALK,
    )  # panels of a row-major B that one walk along its rows makes, where there are so many
    apart = 0  # rows between its panels

    def __init__(self, spec: GemmSpec) -> None:
        self.spec = spec

    def products(self, given: Prepared) -> list[Stmt]:
        """The loops around the kernels."""
        raise NotImplementedError

    @property
    def flips(self) -> bool:
        """Whether the sign bits of B are flipped when it is packed or loaded: vpdpbusd needs one unsigned and one signed
        operand."""
        return self.op in QUADS and unsigned(self.spec.a.dtype) == unsigned(self.spec.b.dtype)

    def correction(self, a: Operand, elements: Any = None) -> tuple[list[Stmt], Any]:
        """Statements, and `Prepared.sums`: what each row of C starts at, of so many elements along K (None: of whole groups).

        With B' = B xor 128: signed A: A * B = A * (B' - 128); unsigned A: A * B = A * (B' + 128).
        """
        if not self.flips:
            return [], None
        sums = self.spec.scratch("int32", (self.spec.m,))
        return [self.row_sums(a, sums, index(0), at_most(self.spec.m, self.limits[0]), elements)], sums

    def row_sums(self, a: Operand, sums: Any, first: Any, rows: Any, elements: Any = None) -> Stmt:
        """The same of so many rows of A, from `first` on."""
        kind, sign = ("uint8", "n") if unsigned(a.dtype) else ("int8", "m")
        name = f"tl.row_sums.{kind}.{a.row_stride}_128.{sign}"
        places = a.address(first, index(0)), tir.address_of(tir.BufferLoad(sums, [first]))
        depth = self.depth * index(self.op.group) if elements is None else elements
        return tir.Evaluate(tir.call_extern("void", name, *places, depth, rows))

    @property
    def groups(self) -> int:
        """Groups along K."""
        return -(-self.spec.k // self.op.group)

    @property
    def limits(self) -> tuple[Any, Any, Any]:
        """Those of the product."""
        return self.spec.limits

    @property
    def depth(self) -> Any:
        """Groups of these, the last of which may be completed by zeros."""
        size = self.op.group
        if self.limits[2] is None:
            return index(self.groups)
        return tir.floordiv(self.elements + index(size - 1), index(size))

    @property
    def elements(self) -> Any:
        """Elements along K that are not all zeros, one at least where it is there to read."""
        limit, least = self.limits[2], index(0 if self.spec.leaves[2] else 1)
        return index(self.spec.k) if limit is None else tir.min(tir.max(limit, least), index(self.spec.k))

    def emit(self) -> Stmt:
        before, a = self.prepare_a()
        b = self.prepare_b()
        c_before, c, c_after = self.prepare_c()
        correction, sums = self.correction(a)
        stmts = [*before, *self.of_new(b.before), *c_before, *correction]
        products = self.products(Prepared(a, b, c, sums, self.clear))
        return tile_ir.sequence([*stmts, *products, *c_after])

    def of_new(self, stmts: Sequence[Stmt]) -> list[Stmt]:
        """What makes panels, where those of the last round do not serve again."""
        if self.spec.prepared is None or not stmts:
            return list(stmts)
        return [tir.IfThenElse(tir.Not(self.spec.prepared), tile_ir.sequence(list(stmts)), None)]

    @property
    def clear(self) -> Any:
        """Whether C is overwritten, as int32."""
        given = self.spec.clear_accum
        return tir.const(int(given), "int32") if isinstance(given, (bool, int)) else prim.Cast("int32", given)

    @property
    def panels(self) -> list[tuple[int, int, int]]:
        """(first, count, columns) of the panels of B: the whole ones and the last."""
        full, rest = divmod(self.spec.n, self.width)
        return [part for part in ((0, full, self.width), (full, 1, rest)) if all(part[1:])]

    # -- operands ---------------------------------------------------------------------------------------------

    def prepare_a(self) -> tuple[list[Stmt], Operand]:
        """A in the instruction's type, groups along K contiguous and complete."""
        spec, op = self.spec, self.op
        if holds(spec.a.dtype, op.a) and (op.group == 1 or (spec.a.col_stride == 1 and spec.k % op.group == 0)):
            return [], spec.a
        turned = spec.a.row_stride == 1 and spec.a.col_stride != 1
        if turned and op.group > 1 and holds(spec.a.dtype, op.a):
            return self._turned_rows(spec.a)
        return self._padded_copy(spec.a, op.a, spec.m)

    def _turned_rows(self, a: Operand) -> tuple[list[Stmt], Operand]:
        """A copy [rows][K] of a transposed A, K padded with zeros: its rows along K in groups of 4 bytes first, which squares
        in registers turn then."""
        op, m, lanes, zero = self.op, self.spec.m, self.lanes, index(0)
        width, depth = whole_blocks(m, lanes), whole_blocks(self.groups, lanes)
        packed = self.spec.scratch("int32", (self.groups, width))
        rows = Operand(self.spec.scratch(op.a, (m, depth * op.group)), (zero, zero), 0, 1)

        def at(group: Any) -> Any:
            return tir.address_of(tir.BufferLoad(packed, [group, zero]))

        def turn(first: Any, count: int) -> Stmt:
            target = rows.address(zero, first * op.group)
            return transposed(Turn(m, count, 4, at(first), width * 4, target, depth * 4), lanes)

        whole, rest = divmod(self.groups, lanes)
        stmts = [self.interleaved(a.transposed, a.address(zero, zero), at(zero), m, width, flips=False)]
        stmts += [loop(whole, lambda t: turn(t * lanes, lanes))] if whole else []
        stmts += [turn(index(whole * lanes), rest)] if rest else []
        return stmts, rows

    def _padded_copy(self, source: Operand, dtype: str, rows: int) -> tuple[list[Stmt], Operand]:
        """A copy [rows][K] of `source` in `dtype`, K padded with zeros to whole groups."""
        k, padded = self.spec.k, self.groups * self.op.group
        copy = Operand(self.spec.scratch(dtype, (rows, padded)), (index(0), index(0)), 0, 1)
        stmts = [convert_copy(copy, source, rows, k)]
        if padded > k:
            zero = tir.const(0, dtype)
            stmts.append(loop(rows, lambda i: loop(padded - k, lambda j: copy.store(i, j + k, zero))))
        return stmts, copy

    @property
    def many_rows(self) -> bool:
        """Whether a B in a tensor is packed, though kernels could read it there."""
        spec = self.spec
        rows, tile = PACKED_ROWS_OF_TENSORS if spec.a.in_tensor else PACKED_ROWS, spec.n * spec.k * self.op.unit_bytes
        return spec.b.in_tensor and spec.m >= rows and tile <= PACKED_BYTES

    def prepare_b(self) -> Panels:
        spec, op, width = self.spec, self.op, self.width
        b, unit = spec.b, op.unit_bytes
        if b.in_tensor and (op.group > 1 or b.row_dim == len(b.origin) - 1 or self.many_rows):
            return self.panels_of_tensor()
        same = holds(b.dtype, op.b) or (self.flips and dtype_facts(b.dtype).bits <= 8)
        if b.in_tensor and not b.knows_stride(b.row_dim):  # read in place
            return Panels(lambda p, group: b.address(group, p * width), b.any_stride(b.row_dim) * index(unit), False)
        along_k = b.row_stride == 1 and b.col_stride != 1
        stmts: list[Stmt] = []
        if not same or 1 not in (b.row_stride, b.col_stride) or (along_k and spec.k % op.group):
            # The copy keeps the order that is contiguous in the source, so that its loads are vectors.
            if along_k:
                stmts, turned = self._padded_copy(b.transposed, op.b, spec.n)
                b = turned.transposed
            else:
                copy = Operand(spec.scratch(op.b, (spec.k, spec.n)), (index(0), index(0)), 0, 1)
                stmts, b = [convert_copy(copy, b, spec.k, spec.n)], copy
        if op.group == 1 and b.col_stride == 1:
            return Panels(lambda p, group: b.address(group, p * width), b.row_stride * unit, False, stmts)
        panels = -(-spec.n // width)
        unit_dtype = op.acc if op.group == 1 else "int32"
        packed = spec.scratch(unit_dtype, (panels, self.groups, width))
        pack = self._interleave if b.col_stride == 1 else self._transpose
        full, rest = divmod(spec.n, width)
        if full:
            stmts.append(loop(full, lambda p: pack(b, packed, p, width)))
        if rest:
            stmts.append(pack(b, packed, index(full), rest))
        at = lambda p, group: tir.address_of(tir.BufferLoad(packed, [p, group, index(0)]))  # noqa: E731
        return Panels(at, width * unit, True, stmts)

    def panels_of_tensor(self) -> Panels:
        """The same for a B in a tensor, as far as it is there."""
        limit = self.limits[1] if self.spec.leaves[1] else None
        return self.packer(-(-self.spec.n // self.width)).panels_before(self.spec.n, limit)

    def packer(self, panels: int) -> Packer:
        """What packs a B in a tensor into a buffer for so many panels, or as many as lie in a line of the caches."""
        spec, b, op, width = self.spec, self.spec.b, self.op, self.width
        transposed, unit = b.row_dim == len(b.origin) - 1, op.acc if op.group == 1 else "int32"
        # Rows of B are cut by whole lines of the caches, in which there may be several panels.
        together = 1 if transposed else max(1, LINE // (width * storage_bytes(b.dtype)))
        depth = whole_blocks(self.groups, self.lanes)
        packed = spec.scratch(unit, (max(panels, together), depth + self.apart, width))
        limit = self.limits[1] if spec.leaves[1] else None

        def pack(block: Any, place: Any, cols: int) -> Stmt:
            column = block * (together * width)
            left, target = None if limit is None else limit - column, packer.at(place, index(0))
            if transposed:
                return self.turned(b, column, target, cols, left)
            columns = cols, width, (depth + self.apart) * width * op.unit_bytes
            return self.grouped(b, column, target, columns, left, self.flips)

        walks = () if transposed else tuple(walk // together for walk in self.walks if walk >= 2 * together)
        packer = Packer(packed, together, width, width * op.unit_bytes, pack, walks)
        return packer

    def turned(self, b: Operand, column: Any, target: Any, cols: int, left: Any) -> Stmt:
        """Columns of a transposed B in a tensor as rows of a panel; `left`: as many as there are (None: all)."""
        unit, group = self.op.unit_bytes, self.op.group
        numbers = f"{self.lanes}_{cols}_{self.width * unit}_{group}"
        name = f"tl.turn.{8 * unit}.{numbers}.{'x' if self.flips else 'n'}"
        pitch = b.any_stride(b.col_dim) * index(unit // group)
        args = b.address(index(0), column), target, self.elements, pitch, at_most(cols, left)
        return tir.Evaluate(tir.call_extern("void", name, *args))

    def grouped(
        self, b: Operand, column: Any, target: Any, columns: tuple[int, int, int], left: Any, flips: bool = False
    ) -> Stmt:
        """Rows of a B in a tensor by groups, so many columns, as rows of so many units of panels that are so many bytes apart;
        `left` as above, `flips`: with the other sign bit in each byte."""
        size, (cols, width, distance) = storage_bytes(b.dtype), columns
        numbers = f"{self.op.group}_{self.lanes}_{cols}_{width * self.op.unit_bytes}_{distance if cols > width else 0}"
        name = f"tl.groups.{8 * size}.{numbers}.{'x' if flips else 'n'}"
        pitch = b.any_stride(b.row_dim) * index(size)
        args = b.address(index(0), column), target, self.elements, pitch, at_most(cols, left)
        return tir.Evaluate(tir.call_extern("void", name, *args))

    def _interleave(self, b: Operand, packed: Any, panel: Any, cols: int) -> Stmt:
        zero = index(0)
        target = tir.address_of(tir.BufferLoad(packed, [panel, zero, zero]))
        return self.interleaved(b, b.address(zero, panel * self.width), target, cols, self.width, self.flips)

    def interleaved(self, b: Operand, source: Any, target: Any, cols: int, width: int, flips: bool) -> Stmt:
        """Groups of rows of `b` (K rows), `cols` columns from `source` on, as rows of `width` units; `flips`: with the other sign
        bit in each byte."""
        op, element = self.op, storage_bytes(b.dtype)
        last = self.spec.k - (self.groups - 1) * op.group
        numbers = (op.group, self.lanes, cols, b.row_stride * element, width * op.unit_bytes, last)
        name = f"tl.interleave.{8 * element}.{'_'.join(map(str, numbers))}.{'x' if flips else 'n'}"
        return tir.Evaluate(tir.call_extern("void", name, source, target, tir.const(self.groups, "int64")))

    def _transpose(self, b: Operand, packed: Any, panel: Any, cols: int) -> Stmt:
        unit, zero = self.op.unit_bytes, index(0)
        target = tir.address_of(tir.BufferLoad(packed, [panel, zero, zero]))
        source, pitch = b.address(zero, panel * self.width), b.col_stride * storage_bytes(b.dtype)
        return transposed(
            Turn(self.groups, cols, unit, source, pitch, target, self.width * unit), self.lanes, self.flips
        )

    def prepare_c(self) -> tuple[list[Stmt], Operand, list[Stmt]]:
        spec = self.spec
        if holds(spec.c.dtype, self.op.acc) and spec.c.col_stride == 1:
            return [], spec.c, []
        copy = Operand(spec.scratch(self.op.acc, (spec.m, spec.n)), (index(0), index(0)), 0, 1)
        load = [] if spec.clear_accum is True else [convert_copy(copy, spec.c, spec.m, spec.n)]
        return load, copy, [convert_copy(spec.c, copy, spec.m, spec.n)]


# -- small pieces -----------------------------------------------------------------------------------------------


def unsigned(dtype: str) -> bool:
    return dtype.startswith("uint") or dtype == "bool"


def whole_blocks(count: int, size: int) -> int:
    """`count`, or the next multiple of `size`."""
    return -(-count // size) * size


def holds(dtype: str, wanted: str) -> bool:
    """Whether memory of `dtype` can be read as `wanted` as it is. Sub-byte integers are one per byte on chip."""
    if dtype == wanted:
        return True
    facts = dtype_facts(dtype)
    if wanted == "int8":
        return facts.kind == "int" and facts.bits < 8
    if wanted == "uint8":
        return facts.kind in ("uint", "bool") and facts.bits <= 8
    # Two's complement accumulation does not see the sign.
    return wanted in ("int32", "int64") and dtype == f"u{wanted}"


def either(buffer: Any, condition: Any, first: Any, second: Any) -> Any:
    """The first of two addresses in a buffer, or the second."""
    places = zip(first.args[0].indices, second.args[0].indices)
    indices = [tir.Select(condition, prim.Cast("int64", x), prim.Cast("int64", y)) for x, y in places]
    return tir.address_of(tir.BufferLoad(buffer, indices))


def transposed(turn: Turn, lanes: int, flips: bool = False) -> Stmt:
    """The copy by blocks of `lanes` x `lanes` elements in registers; `flips`: with the other sign bit in each byte."""
    blocks = -(-turn.rows // lanes)
    numbers = (lanes, turn.columns, turn.rows - (blocks - 1) * lanes, turn.source_pitch, turn.target_pitch)
    name = f"tl.transpose.{8 * turn.itemsize}.{'_'.join(map(str, numbers))}.{'x' if flips else 'n'}"
    return tir.Evaluate(tir.call_extern("void", name, turn.source, turn.target, tir.const(blocks, "int64")))


def convert_copy(target: Operand, source: Operand, rows: int, cols: int) -> Stmt:
    """target[i, j] = cast(source[i, j])"""

    def row(i: Any) -> Stmt:
        contiguous = target.col_stride == 1 and source.col_stride == 1
        kind = tir.ForKind.VECTORIZED if contiguous else tir.ForKind.SERIAL
        return loop(cols, lambda j: target.store(i, j, _cast(source.at(i, j), target.dtype)), kind)

    if source.col_stride != 1 and source.row_stride == 1:  # read along the contiguous dimension
        return loop(cols, lambda j: loop(rows, lambda i: target.store(i, j, _cast(source.at(i, j), target.dtype))))
    return loop(rows, row)


def _cast(value: Any, dtype: str) -> Any:
    return value if str(value.ty) == dtype else prim.Cast(dtype, value)
