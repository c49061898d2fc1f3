"""`emit_gemm`: C[i, j] += sum over k of A[i, k] * B[k, j] on on-chip tiles, as loops around register-tiled kernels.

    convert A if its type is not the kernel's;  pack B into panels if it is not directly usable
    for panel in range(N / (nv * lanes)):
        for block in range(M / mr): tl.gemm...(&A[block * mr, 0], panel, &C[block * mr, panel * nv * lanes], K, clear)

| A x B -> C | instruction | operands |
| --- | --- | --- |
| f32, f64, int32, int64, same throughout | fma / mul + add | in place; B packed only if transposed |
| bf16 x bf16 -> f32 with avx512_bf16 | vdpbf16ps | A in place, B in pairs along K |
| 8-bit integers -> int32 with avx512_vnni | vpdpbusd | A in place, B in quads along K |
| 8-bit integers -> int32 without | vpmaddwd | both widened to int16, B in pairs |
| other floats | f32 (f64 if one is) fma | converted to it |

C of another type than the accumulator is converted before and rounded after, once per call.
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


def choose_instruction(a: str, b: str, c: str, features: CpuFeatures) -> MultiplyAccumulate:
    """The instruction for element types `a`, `b` and accumulator type `c`."""
    facts = [dtype_facts(d) for d in (a, b, c)]
    if any(d.is_float for d in facts):
        if any(d.is_float and d.bits == 64 for d in facts):
            return FMA_F64
        both_bf16 = a == b == "bfloat16"
        return VDPBF16PS if both_bf16 and VDPBF16PS.available(features) else FMA_F32
    if facts[2].bits == 64:
        return MAC_I64
    bytes_only = all(d.bits <= 8 for d in facts[:2])
    if bytes_only and VPDPBUSD.available(features):
        # vpdpbusd multiplies unsigned by signed; equal signs are handled by flipping the sign bit of B (see _Plan).
        a_unsigned = a.startswith("uint") or a == "bool"
        return VPDPBUSD if a_unsigned else VPDPBUSD_SWAPPED
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
    return _Emitter(spec).emit()


class _Emitter:
    def __init__(self, spec: GemmSpec) -> None:
        self.spec = spec
        self.op = choose_instruction(spec.a.dtype, spec.b.dtype, spec.c.dtype, spec.features)
        self.lanes = self.op.lanes(spec.features)
        rows, self.nv = register_tile(self.op, spec.features, spec.m, spec.n)
        self.row_blocks = balanced(spec.m, rows)
        self.width = self.nv * self.lanes
        self.groups = -(-spec.k // self.op.group)

    def emit(self) -> Stmt:
        before, a = self.prepare_a()
        b_stmts, panel_address, b_k, b_padded = self.prepare_b()
        c_before, c, c_after = self.prepare_c()
        sums, correction = self.prepare_correction(a)
        stmts = [*before, *b_stmts, *c_before, *sums]
        unit = self.op.unit_bytes
        a_row, a_k = (a.row_stride, a.col_stride * self.op.group)
        element = unit // self.op.group
        clear = self.spec.clear_accum
        clear = tir.const(int(clear), "int32") if isinstance(clear, (bool, int)) else prim.Cast("int32", clear)

        def block(panel: Any, cols: int, row: Any, mr: int) -> Stmt:
            nv = -(-cols // self.lanes)
            shape = KernelShape(
                self.op.name, mr, nv, self.lanes, cols, a_row * element, a_k * element, b_k, c.row_stride * unit,
                b_padded, correction is not None,
            )  # fmt: skip
            zero = index(0)
            args = [a.address(row, zero), panel_address(panel), c.address(row, panel * self.width)]
            if correction is not None:
                args.append(tir.address_of(tir.BufferLoad(correction, [row])))
            args += [tir.const(self.groups, "int64"), clear]
            return tir.Evaluate(tir.call_extern("void", shape.name, *args))

        def rows(panel: Any, cols: int, start: int, mr: int, count: int) -> Stmt:
            return loop(count, lambda t: block(panel, cols, index(start) + t * mr, mr))

        def all_rows(panel: Any, cols: int) -> Stmt:
            parts, start = [], 0
            for mr, count in self.row_blocks:
                parts.append(rows(panel, cols, start, mr, count))
                start += mr * count
            return tile_ir.sequence(parts)

        full, rest = divmod(self.spec.n, self.width)
        if full:
            stmts.append(loop(full, lambda panel: all_rows(panel, self.width)))
        if rest:
            stmts.append(all_rows(index(full), rest))
        return tile_ir.sequence([*stmts, *c_after])

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

    def prepare_b(self) -> tuple[list[Stmt], Callable[[Any], Any], int, bool]:
        """(statements, address of a panel, bytes between its k groups, whether rows are padded to whole vectors)"""
        spec, op, width = self.spec, self.op, self.width
        b, unit = spec.b, op.unit_bytes
        same = _holds(b.dtype, op.b) or (self._flips and dtype_facts(b.dtype).bits <= 8)
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
            return stmts, lambda p: b.address(index(0), p * width), b.row_stride * unit, False
        panels = -(-spec.n // width)
        unit_dtype = op.acc if op.group == 1 else "int32"
        packed = spec.scratch(unit_dtype, (panels, self.groups, width))
        pack = self._interleave if b.col_stride == 1 else self._transpose
        full, rest = divmod(spec.n, width)
        if full:
            stmts.append(loop(full, lambda p: pack(b, packed, p, width)))
        if rest:
            stmts.append(pack(b, packed, index(full), rest))
        zero = index(0)
        return stmts, lambda p: tir.address_of(tir.BufferLoad(packed, [p, zero, zero])), width * unit, True

    @property
    def _flips(self) -> bool:
        """Whether B's sign bits are flipped: vpdpbusd needs one unsigned and one signed operand."""
        if self.op not in (VPDPBUSD, VPDPBUSD_SWAPPED):
            return False
        return _unsigned(self.spec.a.dtype) == _unsigned(self.spec.b.dtype)

    def _interleave(self, b: Operand, packed: Any, panel: Any, cols: int) -> Stmt:
        op, element = self.op, storage_bytes(b.dtype)
        last = self.spec.k - (self.groups - 1) * op.group
        numbers = (op.group, self.lanes, cols, b.row_stride * element, self.width * op.unit_bytes, last)
        name = f"tl.interleave.{8 * element}.{'_'.join(map(str, numbers))}.{'x' if self._flips else 'n'}"
        zero = index(0)
        target = tir.address_of(tir.BufferLoad(packed, [panel, zero, zero]))
        groups = tir.const(self.groups, "int64")
        return tir.Evaluate(tir.call_extern("void", name, b.address(zero, panel * self.width), target, groups))

    def _transpose(self, b: Operand, packed: Any, panel: Any, cols: int) -> Stmt:
        op, element = self.op, storage_bytes(b.dtype)
        last = self.groups - (-(-self.groups // self.lanes) - 1) * self.lanes
        numbers = (self.lanes, cols, last, b.col_stride * element, self.width * op.unit_bytes)
        name = f"tl.transpose.{8 * op.unit_bytes}.{'_'.join(map(str, numbers))}.{'x' if self._flips else 'n'}"
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

    def prepare_correction(self, a: Operand) -> tuple[list[Stmt], Any]:
        """With B' = B xor 128: signed A: A * B = A * (B' - 128); unsigned A: A * B = A * (B' + 128)."""
        if not self._flips:
            return [], None
        spec = self.spec
        sums = spec.scratch("int32", (spec.m,))
        unsigned = _unsigned(a.dtype)
        name = f"tl.row_sums.{'uint8' if unsigned else 'int8'}.{spec.k}_{a.row_stride}_128.{'n' if unsigned else 'm'}"
        zero = index(0)
        target = tir.address_of(tir.BufferLoad(sums, [zero]))
        rows = tir.const(spec.m, "int64")
        return [tir.Evaluate(tir.call_extern("void", name, a.address(zero, zero), target, rows))], sums


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
