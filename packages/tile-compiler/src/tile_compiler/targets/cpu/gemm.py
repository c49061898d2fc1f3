"""`emit_gemm`: C[i, j] += sum over k of A[i, k] * B[k, j] on on-chip tiles, as loops around register-tiled kernels.

    convert A if its type is not the kernel's;  pack B into panels if it is not directly usable
    for panel in range(N / (nv * lanes)):
        for block in range(M / mr): tl.gemm...(&A[block * mr, 0], panel, &C[block * mr, panel * nv * lanes], K, clear)

| A x B -> C | instruction | operands |
| --- | --- | --- |
| bf16 x bf16 -> f32 with amx_bf16 | tdpbf16ps | A in place, B in pairs along K |
| 8-bit integers -> int32 with amx_int8 | tdpbssd and relatives | A in place, B in quads along K |
| f32, f64, int32, int64, same throughout | fma / mul + add | in place; B packed only if transposed |
| bf16 x bf16 -> f32 with avx512_bf16 | vdpbf16ps | A in place, B in pairs along K |
| 8-bit integers -> int32 with avx512_vnni | vpdpbusd | A in place, B in quads along K |
| 8-bit integers -> int32 without | vpmaddwd | both widened to int16, B in pairs |
| other floats | f32 (f64 if one is) fma | converted to it |

C of another type than the accumulator is converted before and rounded after, once per call. The kernels for the first two
are in `tile_kernels.py`, the others in `gemm_kernels.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx as tir
from tvm.ir import prim

from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of as dtype_facts

from .features import CpuFeatures
from .flatten import storage_bytes
from .gemm_kernels import KernelShape
from .instructions.multiply_accumulate import (
    FMA_F32,
    FMA_F64,
    MAC_I32,
    MAC_I64,
    VDPBF16PS,
    VPDPBUSD,
    VPDPBUSD_SWAPPED,
    VPMADDWD,
    MultiplyAccumulate,
)
from .instructions.tile_multiply import TDPBF16PS, TDPBSSD, TDPBSUD, TDPBUSD, TDPBUUD, TILE, TileMultiply, TileShape
from .tile_kernels import TileKernel, configuration

Stmt = Any


@dataclass(frozen=True)
class Operand:
    """A matrix inside an N-d on-chip buffer: element (r, c) is at `origin`, plus r in dimension `row_dim`, plus c in
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

    def stride(self, dim: int) -> int:
        """Elements between neighbours along a dimension of the buffer."""
        given = self.buffer.ty.strides
        if len(given):
            return int(given[dim])
        stride = 1
        for extent in self.buffer.ty.shape[dim + 1 :]:
            stride *= int(extent)
        return stride

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
class GemmSpec:
    """One tile GEMM. `a` is M x K, `b` K x N, `c` M x N.

    `clear_accum`: C is overwritten instead of added to (an expression or a bool). `scratch(dtype, shape)` makes an
    on-chip buffer for the time of the GEMM.
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
        with_a = (TDPBUUD, TDPBUSD) if _unsigned(a) else (TDPBSUD, TDPBSSD)
        return with_a[0] if _unsigned(b) else with_a[1]
    if bytes_only and VPDPBUSD.available(features):
        # vpdpbusd multiplies unsigned by signed; equal signs are handled by flipping the sign bit of B (see _Vectors).
        return VPDPBUSD if _unsigned(a) else VPDPBUSD_SWAPPED
    return VPMADDWD if bytes_only else MAC_I32


def register_tile(op: MultiplyAccumulate, features: CpuFeatures, m: int, n: int) -> tuple[int, int]:
    """(rows, column vectors) of the accumulator tile.

    14 x 2 of 32 registers and 6 x 2 of 16 leave room for B and the broadcast A and were the fastest on Zen 4 and 5
    (benchmarks/cpu_microkernel.py). Few rows take more columns, so that eight or more accumulators hide the latency of
    the multiply-add.
    """
    rows = 14 if features.registers == 32 else 6
    columns = -(-n // op.lanes(features))
    rows = min(m, rows)
    budget = 28 if features.registers == 32 else 12
    wide = 2
    while wide * 2 * rows <= budget and wide < columns:
        wide *= 2
    return rows, max(1, min(wide, columns))


def emit_gemm(spec: GemmSpec) -> Stmt:
    """The statements of one tile GEMM."""
    op = choose_instruction(spec.a.dtype, spec.b.dtype, spec.c.dtype, spec.features)
    return _Tiles(spec, op).emit() if isinstance(op, TileMultiply) else _Vectors(spec, op).emit()


@dataclass(frozen=True)
class _Prepared:
    """What the kernels read and write: A; `panel(p, group)`, the address of a group along K in a panel of B; the bytes
    between groups; whether a panel's rows are padded to whole vectors; C; what the sums of each row of C start at (a
    buffer [M]; None: zero); and whether C is overwritten (int32)."""

    a: Operand
    panel: Callable[[Any, Any], Any]
    b_k: int
    b_padded: bool
    c: Operand
    sums: Any
    clear: Any


class _Emitter:
    """The operands as kernels want them; the two subclasses have the kernels, for vector and for tile registers."""

    op: MultiplyAccumulate | TileMultiply
    lanes: int
    width: int  # columns of a panel of B

    def __init__(self, spec: GemmSpec) -> None:
        self.spec = spec

    def products(self, given: _Prepared) -> list[Stmt]:
        """The loops around the kernels."""
        raise NotImplementedError

    def correction(self, a: Operand) -> tuple[list[Stmt], Any]:
        """Statements, and `_Prepared.sums`."""
        return [], None

    @property
    def flips(self) -> bool:
        """Whether the sign bits of B are flipped when it is packed."""
        return False

    @property
    def groups(self) -> int:
        """Groups along K."""
        return -(-self.spec.k // self.op.group)

    def emit(self) -> Stmt:
        before, a = self.prepare_a()
        b_stmts, panel_address, b_k, b_padded = self.prepare_b()
        c_before, c, c_after = self.prepare_c()
        correction, sums = self.correction(a)
        stmts = [*before, *b_stmts, *c_before, *correction]
        clear = self.spec.clear_accum
        clear = tir.const(int(clear), "int32") if isinstance(clear, (bool, int)) else prim.Cast("int32", clear)
        given = _Prepared(a, panel_address, b_k, b_padded, c, sums, clear)
        return tile_ir.sequence([*stmts, *self.products(given), *c_after])

    @property
    def panels(self) -> list[tuple[int, int, int]]:
        """(first, count, columns) of the panels of B: the whole ones and the last."""
        full, rest = divmod(self.spec.n, self.width)
        return [part for part in ((0, full, self.width), (full, 1, rest)) if all(part[1:])]

    # -- operands ---------------------------------------------------------------------------------------------

    def prepare_a(self) -> tuple[list[Stmt], Operand]:
        """A in the instruction's type, groups along K contiguous and complete."""
        spec, op = self.spec, self.op
        if _holds(spec.a.dtype, op.a) and (op.group == 1 or (spec.a.col_stride == 1 and spec.k % op.group == 0)):
            return [], spec.a
        return self._padded_copy(spec.a, op.a, spec.m)

    def _padded_copy(self, source: Operand, dtype: str, rows: int) -> tuple[list[Stmt], Operand]:
        """A copy [rows][K] of `source` in `dtype`, K padded with zeros to whole groups."""
        k, padded = self.spec.k, self.groups * self.op.group
        copy = Operand(self.spec.scratch(dtype, (rows, padded)), (index(0), index(0)), 0, 1)
        stmts = [convert_copy(copy, source, rows, k)]
        if padded > k:
            zero = tir.const(0, dtype)
            stmts.append(loop(rows, lambda i: loop(padded - k, lambda j: copy.store(i, j + k, zero))))
        return stmts, copy

    def prepare_b(self) -> tuple[list[Stmt], Callable[[Any, Any], Any], int, bool]:
        """Statements, and `panel`, `b_k`, `b_padded` of `_Prepared`."""
        spec, op, width = self.spec, self.op, self.width
        b, unit = spec.b, op.unit_bytes
        same = _holds(b.dtype, op.b) or (self.flips and dtype_facts(b.dtype).bits <= 8)
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
            return stmts, lambda p, group: b.address(group, p * width), b.row_stride * unit, False
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
        return stmts, at, width * unit, True

    def _interleave(self, b: Operand, packed: Any, panel: Any, cols: int) -> Stmt:
        op, element = self.op, storage_bytes(b.dtype)
        last = self.spec.k - (self.groups - 1) * op.group
        numbers = (op.group, self.lanes, cols, b.row_stride * element, self.width * op.unit_bytes, last)
        name = f"tl.interleave.{8 * element}.{'_'.join(map(str, numbers))}.{'x' if self.flips else 'n'}"
        zero = index(0)
        target = tir.address_of(tir.BufferLoad(packed, [panel, zero, zero]))
        groups = tir.const(self.groups, "int64")
        return tir.Evaluate(tir.call_extern("void", name, b.address(zero, panel * self.width), target, groups))

    def _transpose(self, b: Operand, packed: Any, panel: Any, cols: int) -> Stmt:
        op, element = self.op, storage_bytes(b.dtype)
        last = self.groups - (-(-self.groups // self.lanes) - 1) * self.lanes
        numbers = (self.lanes, cols, last, b.col_stride * element, self.width * op.unit_bytes)
        name = f"tl.transpose.{8 * op.unit_bytes}.{'_'.join(map(str, numbers))}.{'x' if self.flips else 'n'}"
        zero = index(0)
        target = tir.address_of(tir.BufferLoad(packed, [panel, zero, zero]))
        blocks = tir.const(-(-self.groups // self.lanes), "int64")
        return tir.Evaluate(tir.call_extern("void", name, b.address(zero, panel * self.width), target, blocks))

    def prepare_c(self) -> tuple[list[Stmt], Operand, list[Stmt]]:
        spec = self.spec
        if _holds(spec.c.dtype, self.op.acc) and spec.c.col_stride == 1:
            return [], spec.c, []
        copy = Operand(spec.scratch(self.op.acc, (spec.m, spec.n)), (index(0), index(0)), 0, 1)
        load = [] if spec.clear_accum is True else [convert_copy(copy, spec.c, spec.m, spec.n)]
        return load, copy, [convert_copy(spec.c, copy, spec.m, spec.n)]


class _Vectors(_Emitter):
    """Rows of A by broadcast, columns of C in vector registers."""

    op: MultiplyAccumulate

    def __init__(self, spec: GemmSpec, op: MultiplyAccumulate) -> None:
        super().__init__(spec)
        self.op, self.lanes = op, op.lanes(spec.features)
        rows, nv = register_tile(op, spec.features, spec.m, spec.n)
        self.width, self.row_blocks = nv * self.lanes, balanced(spec.m, rows)

    def products(self, given: _Prepared) -> list[Stmt]:
        def rows(panel: Any, cols: int, start: int, high: int, count: int) -> Stmt:
            return loop(count, lambda t: self.kernel(given, panel, cols, index(start) + t * high, high))

        def all_rows(panel: Any, cols: int) -> Stmt:
            parts, start = [], 0
            for high, count in self.row_blocks:
                parts.append(rows(panel, cols, start, high, count))
                start += high * count
            return tile_ir.sequence(parts)

        def all_panels(first: int, count: int, cols: int) -> Stmt:
            return loop(count, lambda p: all_rows(p + index(first), cols))

        return [all_panels(*part) for part in self.panels]

    def kernel(self, given: _Prepared, panel: Any, cols: int, row: Any, rows: int) -> Stmt:
        a, c, unit = given.a, given.c, self.op.unit_bytes
        element, zero = unit // self.op.group, index(0)
        shape = KernelShape(
            self.op.name, rows, -(-cols // self.lanes), self.lanes, cols, a.row_stride * element,
            a.col_stride * unit, given.b_k, c.row_stride * unit, given.b_padded, given.sums is not None,
        )  # fmt: skip
        args = [a.address(row, zero), given.panel(panel, zero), c.address(row, panel * self.width)]
        if given.sums is not None:
            args.append(tir.address_of(tir.BufferLoad(given.sums, [row])))
        args += [tir.const(self.groups, "int64"), given.clear]
        return tir.Evaluate(tir.call_extern("void", shape.name, *args))

    @property
    def flips(self) -> bool:
        """vpdpbusd needs one unsigned and one signed operand."""
        if self.op not in (VPDPBUSD, VPDPBUSD_SWAPPED):
            return False
        return _unsigned(self.spec.a.dtype) == _unsigned(self.spec.b.dtype)

    def correction(self, a: Operand) -> tuple[list[Stmt], Any]:
        """With B' = B xor 128: signed A: A * B = A * (B' - 128); unsigned A: A * B = A * (B' + 128)."""
        if not self.flips:
            return [], None
        spec = self.spec
        sums = spec.scratch("int32", (spec.m,))
        unsigned = _unsigned(a.dtype)
        name = f"tl.row_sums.{'uint8' if unsigned else 'int8'}.{spec.k}_{a.row_stride}_128.{'n' if unsigned else 'm'}"
        zero = index(0)
        target = tir.address_of(tir.BufferLoad(sums, [zero]))
        rows = tir.const(spec.m, "int64")
        return [tir.Evaluate(tir.call_extern("void", name, a.address(zero, zero), target, rows))], sums


class _Tiles(_Emitter):
    """Up to 2 x 2 tile registers of C. What is left of K after whole steps is one step of a smaller depth."""

    op: TileMultiply

    def __init__(self, spec: GemmSpec, op: TileMultiply) -> None:
        super().__init__(spec)
        self.op, self.lanes = op, TILE
        self.width = min(2, -(-spec.n // TILE)) * TILE

    def products(self, given: _Prepared) -> list[Stmt]:
        high = 2 * TILE
        blocks, rest = divmod(self.spec.m, high)
        steps, last = divmod(self.groups, TILE)
        stmts = []
        for depth, count, group in ((TILE, steps, 0), (last, 1, steps * TILE)):
            for first, panels, cols in self.panels:
                for row, times, rows in ((0, blocks, high), (blocks, 1, rest)):
                    if count and depth and times and rows:
                        part = _TilePart(TileShape(rows, cols, depth), (row, times), (first, panels), (group, count))
                        stmts += self.part(given, part)
        return stmts

    def part(self, given: _Prepared, part: _TilePart) -> list[Stmt]:
        """The loops over all blocks of one shape, between loading that shape and that of whole tiles."""
        a, c, unit = given.a, given.c, self.op.unit_bytes
        strides = a.row_stride * unit // self.op.group, given.b_k, c.row_stride * unit
        name = TileKernel(self.op.name, part.shape, *strides).name
        group, count = part.steps
        clear = tir.const(0, "int32") if group else given.clear

        def block(panel: Any, row: Any) -> Stmt:
            start = a.address(row, index(group * self.op.group))
            args = [start, given.panel(panel, index(group)), c.address(row, panel * self.width)]
            return tir.Evaluate(tir.call_extern("void", name, *args, tir.const(count, "int64"), clear))

        row, times = part.blocks
        first, panels = part.panels
        loops = loop(panels, lambda p: loop(times, lambda t: block(p + first, (t + row) * (2 * TILE))))
        return [loops] if part.shape.full else [_configure(part.shape), loops, _configure(TileShape())]


@dataclass(frozen=True)
class _TilePart:
    """Blocks of one shape: (first, count) along M in blocks of 32, along N in panels, along K in groups and steps."""

    shape: TileShape
    blocks: tuple[int, int]
    panels: tuple[int, int]
    steps: tuple[int, int]


def _configure(shape: TileShape) -> Stmt:
    return tir.Evaluate(tir.call_extern("void", configuration(shape)))


# -- small pieces -----------------------------------------------------------------------------------------------


def _unsigned(dtype: str) -> bool:
    return dtype.startswith("uint") or dtype == "bool"


def _holds(dtype: str, wanted: str) -> bool:
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


def index(value: int) -> Any:
    return tir.const(value, "int64")


def loop(count: int, body: Callable[[Any], Stmt], kind: Any = tir.ForKind.SERIAL) -> Stmt:
    """A loop of int64; one iteration needs none."""
    if count == 1:
        return body(index(0))
    var = tir.Var("t", "int64")
    return tir.For(var, index(0), index(count), kind, body(var))


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


def balanced(total: int, most: int) -> list[tuple[int, int]]:
    """`total` rows as blocks of nearly equal height <= `most`: [(height, count), ...], the higher ones first."""
    blocks = -(-total // most)
    low, higher = divmod(total, blocks)
    parts = [(low + 1, higher), (low, blocks - higher)]
    return [(height, count) for height, count in parts if count]
