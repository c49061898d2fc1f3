"""The lowering of `T.gemm`: matrix instructions of waves or warpgroups, or a loop over k in each thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx as tir

from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.accumulator import note_accumulator
from tile_compiler.simt.operators.choose_instruction import Choice
from tile_compiler.simt.operators.gemm import cleared
from tile_compiler.simt.operators.load_operand import OperandLoad
from tile_compiler.simt.operators.lower_gemm_alone import dot_products, multiply_add
from tile_compiler.simt.operators.nests import (
    address,
    call,
    int32,
    is_fragment,
    load,
    local,
    run,
    serial,
    store,
    unrolled,
)
from tile_compiler.simt.operators.warps import WarpTiling
from tile_compiler.simt.operators.wgmma.lower_wgmma import lower_wgmma
from tile_compiler.simt.operators.wgmma.tiling import WarpgroupTiling
from tile_compiler.tileops.site import element_type
from tilelang.ir import tile_ir
from tilelang.ops import Gemm

ELEMENTS_OF_WORD = 8  # of four bits in a register

#: Registers for sums that are added to C, at most, and beside a C of more than so many.
MOST_IN_PART, LESS_IN_PART, LARGE = 32, 16, 63
#: Parts along k of operands in memory whose code is written out, at most.
FEW_PARTS = 1

Place = Callable[..., Any]  # (block, step along k) -> first register


def lower_gemm(op: Gemm, choice: Choice, low: Lowering) -> Any:
    """`tl.gemm(a, b, c)` -> `for k_block: load(a); load(b); mma(c, a, b)`, or sums of products."""
    if isinstance(choice.tiles, WarpgroupTiling):
        return lower_wgmma(op, choice.tiles, low)
    if choice.tiles is not None and choice.why and low.ctx.arch.has_wgmma:
        low.ctx.report.note(low.span, f"gemm: no wgmma, as {choice.why}")
    chosen = choice.dot if choice.tiles is None else choice.tiles.mma
    if chosen is not None and chosen.header and chosen.header not in low.ctx.sources:
        low.ctx.sources.append(chosen.header)
    if choice.tiles is not None:
        return _ByWaves(op, choice.tiles, low).lower()
    if choice.dot is not None:
        low.ctx.report.note(low.span, f"gemm: {choice.dot.text} in each thread, as {choice.why}")
        return dot_products(op, choice.dot, low)
    low.ctx.report.note(low.span, f"gemm: multiply-add in each thread, as {choice.why}")
    return multiply_add(op, low)


class _ByWaves:
    def __init__(self, op: Gemm, tiles: WarpTiling, low: Lowering) -> None:
        self.op, self.tiles, self.low, self.mma = op, tiles, low, tiles.mma
        self.wave = low.tx // self.mma.lanes

    def lower(self) -> Any:
        op, tiles, mma = self.op, self.tiles, self.mma
        c, size = self.low.registers(op.c.source), mma.c_fragment.local_size
        zero = self._zero(c, self._registers)
        row0 = self.wave % tiles.rows * (tiles.m // tiles.rows)
        column0 = self.wave // tiles.rows % tiles.columns * (tiles.n // tiles.columns)
        together = self._columns_together()
        a, a_at, a_loads = self._operand(op.a, mma.a_fragment, op.transpose_a, 0, row0, tiles.row_blocks)
        b, b_at, b_loads = self._operand(op.b, mma.b_fragment, op.transpose_b, 1, column0, together)

        def step(k: Any, first: Any, into: Any, columns: int) -> Any:
            """Step k for the blocks of columns from `first` on, added to registers that hold `columns` blocks of each row."""

            def product(i: Any, j: Any) -> Any:
                number = i * columns + (first + j if into is c and mma.sums_along else j)
                place = self.low.simplify(number * size) if mma.sums_along else number * size
                calls = [
                    self._call(address(into, place), (a, a_at(i, k)), (b, b_at(j, k, first)), q)
                    for q in range(mma.calls)
                ]
                return tile_ir.sequence(calls)

            products = unrolled("i", tiles.row_blocks, lambda i: unrolled("j", together, lambda j: product(i, j)))
            return tile_ir.sequence(
                [s for part in (*a_loads(k), *b_loads(k, first), products) for s in tile_ir.statements(part)]
            )

        self._note()
        products = (
            self._in_parts(c, step, together)
            if mma.sums_along
            else unrolled("ki", tiles.k_blocks, lambda k: step(k, int32(0), c, tiles.column_blocks))
        )
        return tile_ir.sequence([*cleared(op, zero, self.low.span), products])

    @property
    def _registers(self) -> int:
        """Those of C in a lane."""
        return self.tiles.row_blocks * self.tiles.column_blocks * self.mma.c_fragment.local_size

    def _zero(self, registers: Any, count: int) -> Any:
        zero = tir.const(0, element_type(self.op.c))
        return unrolled("r", count, lambda r: store(registers, zero, r))

    def _columns_together(self) -> int:
        """Blocks of columns whose sums are made at once: all, or as many as `MOST_IN_PART` registers hold beside C's."""
        tiles = self.tiles
        if not self.mma.sums_along or is_fragment(self.op.b.source):
            return tiles.column_blocks
        column = tiles.row_blocks * self.mma.c_fragment.local_size
        most = MOST_IN_PART if self._registers <= LARGE else LESS_IN_PART
        divisors = [n for n in range(1, tiles.column_blocks + 1) if tiles.column_blocks % n == 0]
        return max(n for n in divisors if n == 1 or n * column <= most)

    def _in_parts(self, c: Any, step: Callable[[Any, Any, Any, int], Any], together: int) -> Any:
        """The steps along k of an instruction that cuts what it adds to: so many add to registers that begin at zero, and these
        to C. The first part of a C that begins at zero needs no others."""
        tiles, size = self.tiles, self.mma.c_fragment.local_size
        most = max(1, self.mma.sums_along // self.mma.k)
        steps = max(n for n in range(1, most + 1) if tiles.k_blocks % n == 0)
        groups, held = tiles.column_blocks // together, tiles.row_blocks * together * size
        direct = 1 if tile_ir.static(self.op.clear_accum) else 0
        from_memory = not is_fragment(self.op.a.source) and not is_fragment(self.op.b.source)
        part = local(held, element_type(self.op.c), f"{self.op.c.source.name}_part")

        def add(p: Any, first: Any) -> Any:
            begin = self.low.simplify((p + direct) * steps)

            def place(r: Any) -> Any:
                row, rest = r // (together * size), r % (together * size)
                return self.low.simplify((row * tiles.column_blocks + first) * size + rest)

            return tile_ir.sequence(
                [
                    self._zero(part, held),
                    unrolled("ki", steps, lambda k: step(self.low.simplify(begin + k), first, part, together)),
                    unrolled("r", held, lambda r: store(c, load(c, place(r)) + load(part, r), place(r))),
                ]
            )

        def of_group(g: Any) -> Any:
            first = self.low.simplify(g * together)
            parts = []
            if direct:
                parts.append(unrolled("ki", steps, lambda k: step(k, first, c, tiles.column_blocks)))
            if tiles.k_blocks > steps * direct:
                count = tiles.k_blocks // steps - direct
                # Long code lets the assembler load far ahead, into registers that then are missing.
                loop = serial if from_memory and count > FEW_PARTS else unrolled
                parts.append(loop("p", count, lambda p: add(p, first)))
            return tile_ir.sequence(parts)

        if tiles.k_blocks > steps * direct:
            self.low.temporaries.append(tir.AllocBuffer(part))
        return unrolled("g", groups, of_group)

    def _call(self, c: Any, a: tuple[Any, Any], b: tuple[Any, Any], q: int) -> Any:
        """Call number q of the instruction, on the q-th part of its operands."""
        parts = (self.mma.a_fragment.local_size, self.mma.b_fragment.local_size)
        a_at, b_at = (
            address(held, self._at(held, self.low.simplify(first + q * size // self.mma.calls) if q else first))
            for (held, first), size in zip((a, b), parts)
        )
        return run(self.mma.name, *self.mma.arguments(c, a_at, b_at), span=self.low.span)

    def _at(self, held: Any, register: Any) -> Any:
        """The place of an element in an array of elements, or of words of them."""
        return self.low.simplify(register // ELEMENTS_OF_WORD) if tile_ir.dtype_name(held) == "uint32" else register

    def _operand(
        self, region: Any, fragment: Any, transposed: bool, along: int, start: Any, blocks: int
    ) -> tuple[Any, Place, Callable[..., list[Any]]]:
        """(registers of an operand, place of block (number, k) in them, statements that fill them for k).

        `along`: the axis of the fragment that is not k; `start`: the wave's first row or column there. `blocks` of them, from
        number `first` on, are filled at once.
        """
        tiles, size, depth = self.tiles, fragment.local_size, self.mma.k
        dtype = (self.mma.a, self.mma.b)[along]
        prepared = self._rounded if self.mma.truncates and dtype == "tfloat32" else None
        if dtype in ("int4", "uint4"):
            prepared = self._packed
        if is_fragment(region.source):
            steps = tiles.k_blocks

            def place(block: Any, k: Any, first: Any = 0) -> Any:
                return (block * steps + k if along == 0 else k * blocks + block) * size

            held = self.low.registers(region.source)
            if prepared is None:
                return held, place, lambda k, first=0: []
            copy = self._copy(region, dtype, size * blocks * steps)
            return copy, place, lambda k, first=0: [prepared(copy, held, blocks, size, lambda b: place(b, k))]
        loads = OperandLoad(region, element_type(region), fragment, transposed, along, blocks, self.mma.lanes, self.low)
        self.low.ctx.report.note(self.low.span, f"gemm: {region.source.name} to registers by {loads.instruction()}")

        def fill(k: Any, first: Any = 0) -> list[Any]:
            begin = start + first * fragment.shape[along]
            origin = (begin, k * depth) if along == 0 else (k * depth, begin)
            return [*loads.fill(origin), *([prepared(ready, loads.held, blocks, size)] if prepared else [])]

        ready = self._copy(region, dtype, size * blocks) if prepared == self._packed else loads.held
        return ready, lambda block, k, first=0: block * size, fill

    def _copy(self, region: Any, dtype: str, size: int) -> Any:
        """Registers for operands as the instruction wants them, beside those that hold the elements."""
        words = dtype in ("int4", "uint4")
        kind, what = ("uint32", "words") if words else ("float32", "tf32")
        copy = local(size // ELEMENTS_OF_WORD if words else size, kind, f"{region.source.name}_{what}")
        self.low.temporaries.append(tir.AllocBuffer(copy))
        return copy

    def _packed(self, into: Any, held: Any, blocks: int, size: int, at: Callable[[Any], Any] | None = None) -> Any:
        """Elements of four bits, which take a byte each in registers, as the words of the instruction."""

        def one(b: Any, w: Any) -> Any:
            first = self.low.simplify((at(b) if at else b * size) + w * ELEMENTS_OF_WORD)
            word = call("tl::packed_word", address(held, first), dtype="uint32")
            return store(into, word, self.low.simplify(first // ELEMENTS_OF_WORD))

        return unrolled("b", blocks, lambda b: unrolled("w", size // ELEMENTS_OF_WORD, lambda w: one(b, w)))

    def _rounded(self, into: Any, held: Any, blocks: int, size: int, at: Callable[[Any], Any] | None = None) -> Any:
        """tf32 operands, rounded: the instruction itself drops the lower bits."""

        def one(b: Any, r: Any) -> Any:
            register = self.low.simplify((at(b) if at else b * size) + r)
            return store(into, call("tl::to_tf32", load(held, register), dtype="float32"), register)

        return unrolled("b", blocks, lambda b: unrolled("r", size, lambda r: one(b, r)))

    def _note(self) -> None:
        tiles, mma = self.tiles, self.mma
        repeated = f", computed {tiles.copies} times" if tiles.copies > 1 else ""
        self.low.ctx.report.note(self.low.span, f"gemm: {mma.label}, {tiles.rows} x {tiles.columns} warps{repeated}")
        held = tiles.row_blocks * tiles.column_blocks * mma.c_fragment.local_size
        note_accumulator(self.op, held, mma.lanes, self.low)
        if self.op.k_pack not in (None, 1) and mma.calls == 1:
            self.low.ctx.report.note(
                self.low.span, f"gemm: k_pack has no effect, as a lane's elements of {mma.label} are no neighbours"
            )
