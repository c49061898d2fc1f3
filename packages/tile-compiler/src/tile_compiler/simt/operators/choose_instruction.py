"""Which instruction does a `T.gemm`: the first declared one that the types, the architecture, the tile and the block allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.instructions import MatrixMultiply, added, declared
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.errors import ThreadsDoNotFit
from tile_compiler.simt.operators.nests import is_fragment
from tile_compiler.simt.operators.warps import WarpTiling, fits, thread_counts, tiling
from tile_compiler.simt.operators.wgmma.tiling import WarpgroupTiling, warpgroup_tiling
from tile_compiler.tileops.site import element_type
from tilelang.ops import Gemm

ALLOW_TF32, ALLOW_TF32X3 = "tl.allow_tf32", "tl.allow_tf32x3"
_NARROW = ("float16", "bfloat16")


@dataclass(frozen=True)
class Choice:
    """`tiles`: the waves or warpgroups and their instruction, or None: then each thread works alone, by `dot` or by
    multiply-add.

    `why` says what speaks against anything better, for the report; `sums`: the type in which the instruction sums.
    """

    tiles: WarpTiling | WarpgroupTiling | None
    dot: MatrixMultiply | None
    why: str = ""
    sums: str = ""

    @property
    def asynchronous(self) -> bool:
        """Whether the product runs beside the statements after it, until somebody waits for it."""
        return isinstance(self.tiles, WarpgroupTiling)


def choose_instruction(op: Gemm, threads: int, ctx: SimtContext, span: Any = None, against: str = "") -> Choice:
    """The choice for one product: by warpgroups where they can, unless something is known `against` that.

    A C of float16 or bfloat16 is summed in float32 by warpgroups, in its own type where an instruction of warps does
    that, else in float32.
    ThreadsDoNotFit if only the number of threads is in the way of an instruction; UnsupportedOnTarget for a
    `T.wgmma_gemm` that wgmma cannot do.
    """
    choice = _choice(op, threads, ctx, span, against)
    if op.by_warpgroups and ctx.arch.has_wgmma and not choice.asynchronous:
        raise UnsupportedOnTarget(
            "T.wgmma_gemm has no instruction",
            at=span,
            found=choice.why,
            expected="a product that wgmma does",
            repair="T.gemm, which takes the best instruction that there is",
        )
    return choice


def _choice(op: Gemm, threads: int, ctx: SimtContext, span: Any, against: str) -> Choice:
    result = element_type(op.c)
    if result not in _NARROW:
        return _choose(op, result, threads, ctx, span, against)
    wide = _choose(op, "float32", threads, ctx, span, against)
    if wide.asynchronous:
        return wide
    own = _choose(op, result, threads, ctx, span, against or wide.why)
    return wide if own.tiles is None else own


def _choose(op: Gemm, c: str, threads: int, ctx: SimtContext, span: Any, against: str) -> Choice:
    """The choice among instructions that sum in `c`."""
    a, b = element_type(op.a), element_type(op.b)
    if a == b == "float32" and ctx.options.get(ALLOW_TF32):
        a = b = "tfloat32"
    same = [d for d in declared() if (d.a, d.b, d.c) == (a, b, c) and (not d.asked_by or ctx.options.get(d.asked_by))]
    if is_fragment(op.a.source):  # what another product left in registers has neighbours along k
        same.sort(key=lambda d: -d.a_fragment.vector_width(1) if d.asked_by else 0)
    if ctx.arch.has_wgmma and not against:
        own = any(d in added() and d.runs_on(ctx.arch.name) for d in same)
        grouped = "T.gemm was given an instruction" if own else warpgroup_tiling(op, (a, b, c), threads, ctx.arch)
        if isinstance(grouped, WarpgroupTiling):
            return Choice(grouped, None, sums=c)
        against = grouped
    together = [_for_rows(d) for d in same if d.lanes > 1]
    here = [d for d in together if d.runs_on(ctx.arch.name)]
    fitting = [p for d in here if fits(p := _packed(d, op), op.m, op.n, op.k)]
    if fitting and all(threads % d.lanes for d in fitting):
        raise ThreadsDoNotFit.of(fitting[0], op, threads, thread_counts(fitting[0], op.m, op.n, op.k), span)
    tilings = [t for d in fitting if (t := tiling(d, op.m, op.n, op.k, op.policy, threads)) is not None]
    if tilings:
        return Choice(min(tilings, key=lambda t: t.copies), None, against, c)
    types = f"{a} x {b} -> {c}"
    if not together:
        why = f"no architecture has a matrix instruction for {types}"
    elif not here:
        why = f"{ctx.arch.name} has no matrix instruction for {types}; it exists on {_where(together)}"
    else:
        shapes = ", ".join(f"{d.m} x {d.n} x {d.k}" for d in here)
        why = f"the tile {op.m} x {op.n} x {op.k} is no multiple of {shapes}"
    if a == b == c == "float32" and any(d.a == "tfloat32" and d.runs_on(ctx.arch.name) for d in declared()):
        why += f"; pass_configs={{'{ALLOW_TF32}': True}} rounds A and B to tf32, which has one; '{ALLOW_TF32X3}' takes three"
    alone = [d for d in same if d.lanes == 1 and d.k > 1 and d.runs_on(ctx.arch.name)]
    dot = next((d for d in alone if op.k % d.k == 0), None)
    if alone and dot is None:
        why += f"; k = {op.k} is no multiple of {alone[0].k}, which {alone[0].text} takes at once"
    return Choice(None, dot, why)


def _for_rows(instruction: MatrixMultiply) -> MatrixMultiply:
    """The form in which a lane holds more neighbours of a row of C, which memory wants."""
    turned = instruction.transposed
    wider = turned.c_fragment.vector_width(1) > instruction.c_fragment.vector_width(1)
    return turned if wider else instruction


def _packed(instruction: MatrixMultiply, op: Gemm) -> MatrixMultiply:
    """With the user's `k_pack`, where the instruction can do that."""
    return instruction.packed(op.k_pack or 1) or instruction


def _where(instructions: Sequence[MatrixMultiply]) -> str:
    return ", ".join(dict.fromkeys(d.where for d in instructions))
