"""Run a block's threads in one thread: loops over lanes, cut where lanes meet."""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.context import CompileContext
from tile_compiler.errors import DivergentControl, LaneVaryingOperand
from tile_compiler.rewrite import is_call, map_kernels, remake_loop, substitute
from tile_compiler.threads.accesses import conflicts, exchanges
from tile_compiler.threads.groups import group, make_loops
from tile_compiler.threads.uniformity import (
    Kind,
    Uniformity,
    bodies_of,
    contains_block_work,
    control_of,
    has_effect,
)
from tilelang.ir import tile_ir


def serialize_threads(func: tir.PrimFunc, ctx: CompileContext) -> tir.PrimFunc:
    """Take the thread axes away. Code that is equal in all lanes runs once; other thread-level code runs in loops.

    before:     tx = T.launch_thread("threadIdx.x", 128)
                S[tx] = A[tx]
                T.tl.sync_threads()
                B[tx] = S[127 - tx]
    after:      for tx in T.parallel(128, annotations={"tl.lanes": 1, ...}): S[tx] = A[tx]
                T.tl.sync_threads()
                for tx in T.parallel(128, annotations={"tl.lanes": 1, ...}): B[tx] = S[127 - tx]

    A loop over lanes ends at every operator of the block, and where a lane reads what another may have written.
    Control around such a place must be equal for all lanes.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        body = kernel.body
        if (kernel.num_threads or 1) == 1:
            body = substitute(body, {v: tir.const(0, str(v.ty)) for v, _ in kernel.threads})
        elif lanes_matter(kernel):
            lanes = Uniformity(kernel)
            for stmt in lanes.unmasked:
                ctx.report.assume(stmt.span, "threads do not exchange values inside this loop")
            grouping = _Grouping(kernel, lanes)
            body = make_loops(grouping.run(body), kernel, lanes, grouping.masks)
        return tile_ir.Kernel(kernel.index, kernel.grid, (), body, kernel.span)

    return map_kernels(func, rule)


def lanes_matter(kernel: tile_ir.Kernel) -> bool:
    """Whether lanes can tell that they are several: they ask for their index, or repeat an effect."""
    indices = {var for var, _ in kernel.threads}
    if any(n in indices for n in tile_ir.walk(kernel.body, ir.Var)):
        return True
    return _effect_outside_parallel(kernel.body)


def _effect_outside_parallel(body: Any) -> bool:
    for s in tile_ir.statements(body):
        if tile_ir.as_parallel(s) is not None:
            continue
        if isinstance(s, (tir.For, tir.While, tir.IfThenElse)):
            if has_effect(control_of(s)) or any(_effect_outside_parallel(b) for b in bodies_of(s)):
                return True
        elif isinstance(s, tir.AttrStmt):
            if _effect_outside_parallel(s.body):
                return True
        elif has_effect(s):
            return True
    return False


class _Grouping:
    """Puts maximal runs of thread-level statements into groups; `mask` is a condition that all of them are under."""

    def __init__(self, kernel: tile_ir.Kernel, lanes: Uniformity) -> None:
        self.kernel, self.lanes = kernel, lanes
        self.count = 0
        self.masks: dict[int, Any] = {}  # group -> the condition under which a lane takes part

    def run(self, body: Any, mask: Any = None) -> Any:
        out: list[Any] = []
        pending: list[Any] = []

        def flush() -> None:
            if pending:
                out.append(self._group(list(pending), mask))
                pending.clear()

        for s in tile_ir.statements(body):
            kind = Kind.LANE if mask is not None and not _is_alloc(s) else self.lanes.kind(s)
            if mask is not None and isinstance(s, (tir.For, tir.While, tir.IfThenElse)):
                kind = Kind.CONTROL if self.lanes.kind(s) == Kind.CONTROL else Kind.LANE
            if kind == Kind.LANE:
                self._check_jumps(s)
                if _exchanges_in_place(s, self.lanes):
                    flush()
                    out += self._two_steps(s, mask)
                    continue
                if any(conflicts(p, s, self.lanes) for p in pending):
                    flush()
                pending.append(s)
                continue
            if isinstance(s, tir.Bind) and not any(conflicts(p, s, self.lanes) for p in pending):
                out.append(s)  # a value that all lanes share: computed before the pending ones, which may use it
                continue
            flush()
            if kind == Kind.BLOCK:
                self._check_operands(s)
            out.append(self._control(s, mask) if kind == Kind.CONTROL else s)
        flush()
        return tile_ir.sequence([s for part in out for s in tile_ir.statements(part)])

    def _group(self, stmts: list[Any], mask: Any) -> Any:
        self.count += 1
        if mask is not None:
            self.masks[self.count] = mask
        return group(self.count, stmts)

    def _two_steps(self, store: Any, mask: Any) -> list[Any]:
        """`S[tx] = S[tx ^ 1]`: all lanes read before the first one writes."""
        held = tir.decl_buffer((1,), str(store.value.ty), name=f"{store.buffer.name}_next", scope="local", layout=None)
        self.lanes.varying.add(held)
        zero = [tir.const(0, "int32")]
        read = tir.BufferStore(held, store.value, zero, span=store.span)
        write = tir.BufferStore(store.buffer, tir.BufferLoad(held, zero), store.indices, span=store.span)
        return [tir.AllocBuffer(held), self._group([read], mask), self._group([write], mask)]

    def _control(self, s: Any, mask: Any) -> Any:
        if self.lanes.differs(control_of(s)):
            if isinstance(s, tir.IfThenElse) and not contains_block_work(s):
                return self._masked(s, mask)
            raise DivergentControl(
                "threads of the block disagree on this condition, and the whole block works together inside",
                at=s.span,
                found=f"{_text(s)} depends on the thread",
                expected="control that is equal for all threads around tile operators, T.Parallel and barriers",
                repair="move the tile operator out, or make the condition depend on the block only",
            )
        if isinstance(s, tir.For):
            return remake_loop(s, body=self.run(s.body, mask))
        if isinstance(s, tir.While):
            return tir.While(s.condition, self.run(s.body, mask), span=s.span)
        else_case = None if s.else_case is None else self.run(s.else_case, mask)
        return tir.IfThenElse(s.condition, self.run(s.then_case, mask), else_case, span=s.span)

    def _masked(self, s: tir.IfThenElse, mask: Any) -> Any:
        """A condition that differs between lanes, around a place where lanes meet: it is kept for each lane."""
        held = tir.decl_buffer((1,), "bool", name="active", scope="local", layout=None)
        self.lanes.varying.add(held)
        zero = [tir.const(0, "int32")]
        active = tir.BufferLoad(held, zero)
        out = [tir.AllocBuffer(held), self._group([tir.BufferStore(held, s.condition, zero, span=s.span)], None)]
        both = active if mask is None else tir.And(mask, active)
        out.append(self.run(s.then_case, both))
        if s.else_case is not None:
            other = tir.Not(active) if mask is None else tir.And(mask, tir.Not(active))
            out.append(self.run(s.else_case, other))
        return tile_ir.sequence([p for part in out for p in tile_ir.statements(part)])

    def _check_jumps(self, s: Any) -> None:
        if _leaves_by_jump(s):
            raise DivergentControl(
                "only some threads would leave this loop, and the whole block works together inside it",
                at=s.span,
                found="break or continue under a condition that depends on the thread",
                expected="a condition that is equal for all threads",
            )

    def _check_operands(self, s: Any) -> None:
        if isinstance(s, (tir.AllocBuffer, tir.DeclBuffer)) or not self.lanes.differs(_without_own_effects(s)):
            return
        call = tile_ir.tile_call(s)
        what = "this T.Parallel loop" if call is None else f"T.{call.op.name[3:]}"
        names = sorted({str(n.name) for n in tile_ir.walk(s, ir.Var) if n in self.lanes.varying})
        raise LaneVaryingOperand(
            f"an operand of {what} differs between threads",
            at=s.span,
            found=", ".join(names),
            expected="values that all threads of the block share: the whole block does this together",
            repair="compute the value from the block's indices, or keep it in a shared buffer",
        )


def _without_own_effects(s: Any) -> Any:
    """An atomic inside a parallel loop belongs to the iterations, not to the lanes."""

    def rule(call: Any) -> Any:
        return tir.call_pure_extern(str(call.ty), "old", *call.args) if is_call(call, "tl.atomic_elem") else call

    return tile_ir.map_nodes(s, (ir.Call, rule)) if isinstance(s, tir.For) else s


def _exchanges_in_place(s: Any, lanes: Uniformity) -> bool:
    return isinstance(s, tir.BufferStore) and not has_effect(s) and exchanges(s, lanes)


def _is_alloc(s: Any) -> bool:
    return isinstance(s, (tir.AllocBuffer, tir.DeclBuffer))


def _leaves_by_jump(s: Any) -> bool:
    """Whether a break or continue in `s` belongs to a loop around `s`."""
    if isinstance(s, tir.Evaluate):
        return is_call(s.value, "tirx.break_loop", "tirx.continue_loop")
    if isinstance(s, tir.IfThenElse):
        return any(_leaves_by_jump(part) for body in bodies_of(s) for part in tile_ir.statements(body))
    return False


def _text(s: Any) -> str:
    return str(s.condition) if hasattr(s, "condition") else f"the range of loop {s.loop_var.name}"
