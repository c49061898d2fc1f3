"""Give the producer's statements to warps of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import Rewriter, is_call, map_kernels, renewed
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.operators.dependent import WAIT
from tile_compiler.simt.operators.nests import int32, is_shared, run
from tile_compiler.simt.roles.channels import WARP, is_role
from tile_compiler.simt.roles.registers import consumer_limit
from tilelang.ir import tile_ir

WARPGROUP = 128
NO_REGISTER_LIMITS = "tl.disable_warp_group_reg_alloc"
PRODUCER_REGISTERS = 24
CONSUMERS = 1  # the hardware barrier of the consumers; 0 is that of the whole block


def split_roles(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """One program of consumers and producer becomes two, of different threads.

    before:     threads = (tx: 256)
                for k in K: producer: P(k);  C(k);  sync_threads
    after:      threads = (tx: 288)
                if uniform(tx / 32) < 8: for k in K: C(k);  sync_threads<1, 256>
                else if tx == 256: for k in K: P(k)

    The producer keeps the loops, conditions and scalars that its statements need: what it executes is the same
    sequence of waits and copies, so that each wait finds its phase. Warps, not threads, are asked for their role: the
    assembler then knows that those of a warp stay together, and computes what they share (slots, descriptors) once for
    all of them instead of moving it there between products. Where one block fills a multiprocessor, the producer is
    a warpgroup that hands its registers to the consumers (PTX ISA, `setmaxnreg`).
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        if not any(is_role(n) for n in tile_ir.walk(kernel.body, tir.AttrStmt)):
            return kernel
        consumers = int(kernel.num_threads or 1)
        (thread, _) = kernel.threads[0]
        setup, body = _parts(kernel.body)
        fixed = ctx.options.get(NO_REGISTER_LIMITS) or kernel.index in ctx.fixed_registers
        limit = None if fixed else consumer_limit(consumers, kernel, ctx)
        consumer = [*_limit("increase", limit), *tile_ir.statements(_Consumer(consumers).body(body))]
        producer = tile_ir.statements(renewed(_Producer(body).body(body)))
        alone = tir.IfThenElse(tir.EQ(thread, int32(consumers)), tile_ir.sequence(producer), None, span=kernel.span)
        other = [*_limit("decrease", None if limit is None else PRODUCER_REGISTERS), alone]
        warp = tir.call_extern("int32", "tl::uniform", tir.floordiv(thread, int32(WARP)))
        computes = warp < int32(consumers // WARP)
        split = tir.IfThenElse(computes, tile_ir.sequence(consumer), tile_ir.sequence(other), span=kernel.span)
        extra = WARP if limit is None else WARPGROUP
        registers = "" if limit is None else f", {limit} registers for a consumer and {PRODUCER_REGISTERS} for the rest"
        ctx.report.note(
            kernel.span, f"warp roles: {consumers} threads compute, one of {extra} more brings tiles{registers}"
        )
        threads = ((thread, int32(consumers + extra)),)
        whole = tile_ir.sequence([*setup, split])
        return tile_ir.Kernel(kernel.index, kernel.grid, threads, whole, kernel.span)

    return map_kernels(func, rule)


def _limit(change: str, count: int | None) -> list[Any]:
    return [] if count is None else [run(f"tl::register_limit_{change}<{count}>")]


def _parts(body: Any) -> tuple[list[Any], Any]:
    """(what all threads do first, the rest): allocations of shared memory and the initialization of barriers."""
    stmts = tile_ir.statements(body)
    made = [n for n, s in enumerate(stmts) if _initializes(s)]
    end = made[-1] + 1 if made else 0
    while end < len(stmts) and is_call(getattr(stmts[end], "value", None), "tirx.call_extern"):
        if str(stmts[end].value.args[0].value) not in ("tl::sync_threads", "tl::cluster_sync"):
            break
        end += 1
    first, rest = stmts[:end], stmts[end:]
    shared = [s for s in rest if isinstance(s, tir.AllocBuffer) and _is_shared(s.buffer)]
    return [*shared, *first], tile_ir.sequence([s for s in rest if s not in shared])


def _initializes(stmt: Any) -> bool:
    names = ("tl::mbarrier_init", "tl::fence_mbarrier_init")
    calls = (n for n in tile_ir.walk(stmt, ir.Call) if is_call(n, "tirx.call_extern"))
    return any(str(n.args[0].value) in names for n in calls)


def _is_shared(buffer: Any) -> bool:
    return is_shared(buffer) or str(buffer.scope()) == tile_ir.BARRIER


class _Consumer(Rewriter):
    """Everything but the producer's statements; barriers of the block become those of the consumers."""

    def __init__(self, threads: int) -> None:
        self.barrier = f"tl::sync_threads<{CONSUMERS}, {threads}>"

    def attribute(self, node: tir.AttrStmt) -> Any:
        return None if is_role(node) else super().attribute(node)

    def evaluate(self, node: tir.Evaluate) -> Any:
        value = node.value
        if is_call(value, "tirx.call_extern") and str(value.args[0].value) == "tl::sync_threads":
            return run(self.barrier, span=node.span)
        return node


class _Producer(Rewriter):
    """The producer's statements, waits for earlier launches, and of the others those that these depend on."""

    def __init__(self, body: Any) -> None:
        self.kept: set[Any] = set()  # statements
        self.needed: set[Any] = set()  # variables and buffers
        before = -1
        while before != len(self.needed) + len(self.kept):
            before = len(self.needed) + len(self.kept)
            self._look(body, [])

    def _look(self, node: Any, around: list[Any]) -> bool:
        """Note what is kept below `node`; whether anything is."""
        if isinstance(node, tir.SeqStmt):
            return self._any(node.seq, around)
        if isinstance(node, tir.AttrStmt) and not is_role(node):
            found = self._look(node.body, around)
        elif isinstance(node, (tir.For, tir.While, tir.IfThenElse)):
            found = self._any(_bodies(node), [*around, node])
            if found:
                heads = [node.condition] if not isinstance(node, tir.For) else [node.min, node.extent]
                for head in heads:
                    self._need(head)
        else:
            found = self._wanted(node, around)
            if found:
                self._need(node)
        if found:
            self.kept.add(node)
        return found

    def _any(self, nodes: Iterable[Any], around: list[Any]) -> bool:
        found = [self._look(n, around) for n in nodes]  # all of them: looking takes notes
        return any(found)

    def _wanted(self, node: Any, around: list[Any]) -> bool:
        if is_role(node) or _waits(node):
            return True
        if isinstance(node, tir.Bind):
            return node.var in self.needed
        if isinstance(node, (tir.AllocBuffer, tir.BufferStore, tir.DeclBuffer)):
            return node.buffer in self.needed and str(node.buffer.scope()) in tile_ir.PRIVATE
        if is_call(getattr(node, "value", None), "tirx.break_loop", "tirx.continue_loop"):
            loops = [n for n in around if isinstance(n, (tir.For, tir.While))]
            return bool(loops) and loops[-1] in self.kept
        return False

    def _need(self, node: Any) -> None:
        for n in tile_ir.walk(node):
            if isinstance(n, ir.Var):
                self.needed.add(n)

    def stmt(self, node: Any) -> Any:
        if isinstance(node, tir.SeqStmt):
            return super().stmt(node)
        if node not in self.kept:
            return None
        return node.body if is_role(node) else super().stmt(node)


def _waits(node: Any) -> bool:
    """Whether a statement waits for earlier launches, whose results the producer loads too."""
    call: Any = getattr(node, "value", None)
    return is_call(call, "tirx.call_extern") and str(call.args[0].value) == WAIT


def _bodies(node: Any) -> Iterator[Any]:
    if isinstance(node, tir.IfThenElse):
        yield node.then_case
        if node.else_case is not None:
            yield node.else_case
    else:
        yield node.body
