"""Fence the proxies where threads hand on shared memory that a bulk copy overwrites."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.passes.lower_tile_ops import alias_roots
from tile_compiler.rewrite import is_call, map_kernels, remake_loop
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.memory_effects import effects
from tile_compiler.simt.operators.nests import is_shared, run
from tile_compiler.simt.plan_shared_memory import OFFSET, shared_bytes
from tile_compiler.simt.roles.channels import is_role
from tile_compiler.simt.statement_tree import called
from tile_compiler.simt.written_again import tracked_buffers
from tilelang.ir import tile_ir

FENCE = "tl::fence_proxy_async_shared"
FILLS = ("tl::tma_load", "tl::bulk_load")
HANDOVERS = (
    "tl::mbarrier_arrive",
    "tl::sync_threads",
    "tl::sync_barrier",
    "tl::arrive_barrier",
    "tl::cluster_",
    "tl::sync_grid",
    *FILLS,  # by a thread that has used the place itself
)
ORDINARY = ("read", "write", "atomic")

Path = tuple[tuple[str, int, int], ...]  # what stands around a statement: (loop, if, group or scope; which; branch)


def fence_handovers(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """After ordinary accesses of bytes that a bulk copy may overwrite later: a fence before their thread lets go of them.

    before:     x[c] = tile[t % 3, c]; sync_warp(); if (tx % 32 == 0) mbarrier_arrive(&tile_empty[t % 3])
    after:      x[c] = tile[t % 3, c]; fence_proxy_async(); sync_warp(); if (tx % 32 == 0) mbarrier_arrive(...)

    A bulk copy writes by the asynchronous proxy, and barriers order accesses within one proxy (PTX ISA, "Async proxy"). Nor
    does the hardware do more: ptxas lets an arrival pass loads whose values nobody has used yet, and on an H200 rows were
    read that a copy had brought three tiles later. Where values are used before the arrival the fence costs next to nothing.
    """
    if not ctx.arch.has_tma:
        return func

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        fences = _Fences(kernel)
        if not fences.fills:
            return kernel
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, fences.run(), kernel.span)

    return map_kernels(func, rule)


@dataclass
class _Fill:
    """A bulk copy: the bytes that it may write, its number among the statements, what stands around it."""

    low: int
    high: int
    number: int
    path: Path


@dataclass
class _Fences:
    kernel: tile_ir.Kernel
    fills: list[_Fill] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.roots = alias_roots(self.kernel.body)
        self.tracked = tracked_buffers(self.kernel)
        self.bytes: dict[Any, tuple[int, int]] = {}
        for node in tile_ir.walk(self.kernel.body, tir.AllocBuffer):
            if is_shared(node.buffer):
                low = int(tile_ir.plain(node.annotations[OFFSET]))
                self.bytes[node.buffer] = (low, low + shared_bytes(node.buffer))
        self.numbers: dict[Any, int] = {}
        self._find(self.kernel.body, ())

    def run(self) -> Any:
        return self._list(self.kernel.body, (), False, True)[0]

    # -- bulk copies ----------------------------------------------------------------------------------------------

    def _find(self, stmt: Any, path: Path) -> None:
        for part in tile_ir.statements(stmt):
            self.numbers[part] = len(self.numbers)
            for inner, around in _parts(part, self.numbers[part]):
                self._find(inner, (*path, around))
            if called(part).startswith(FILLS):
                target = part.value.args[1].args[0]
                buffer = target.source if isinstance(target, ir.TensorLoad) else target
                span = self.bytes.get(self.roots.get(buffer, buffer))
                if span is not None:
                    self.fills.append(_Fill(*span, self.numbers[part], path))

    def _refilled(self, buffer: Any, number: int, path: Path) -> bool:
        """Whether a bulk copy may write where `buffer` lies after statement `number` has used it."""
        span = self.bytes.get(self.roots.get(buffer, buffer))
        if span is None:
            return False
        return any(f.low < span[1] and span[0] < f.high and _may_follow(f, number, path) for f in self.fills)

    # -- following the block --------------------------------------------------------------------------------------

    def _list(self, stmt: Any, path: Path, used: bool, place: bool) -> tuple[Any, bool]:
        """A list of statements with its fences, if they are to be placed; `used`: whether threads have used bytes of
        later copies since their last fence, before it and, in the result, after it."""
        out: list[Any] = []
        for part in tile_ir.statements(stmt):
            if used and _hands_over(part):
                behind = 1 if out and called(out[-1]) == "tl::sync_warp" else 0
                out.insert(len(out) - behind, run(FENCE, span=part.span))
                used = False
            part, used = self._statement(part, path, used, place)
            out.append(part)
        return tile_ir.sequence(out), used

    def _statement(self, stmt: Any, path: Path, used: bool, place: bool) -> tuple[Any, bool]:
        number = self.numbers[stmt]
        if is_role(stmt):
            return stmt, used
        if called(stmt).startswith("tl::fence_proxy_async"):
            return stmt, False
        parts = _parts(stmt, number)
        if not parts:
            return stmt, used or self._uses(stmt, number, path)
        if isinstance(stmt, (tir.For, tir.While)):
            ((body, around),) = parts
            again = self._list(body, (*path, around), used, False)[1]
            body, after = self._list(body, (*path, around), used or again, place)
            new = remake_loop(stmt, body=body) if isinstance(stmt, tir.For) else None
            return new or tir.While(stmt.condition, body, span=stmt.span), used or after
        if isinstance(stmt, tir.IfThenElse):
            before = used or self._uses(tir.Evaluate(stmt.condition), number, path)
            made = [self._list(body, (*path, around), before, place) for body, around in parts]
            bodies = [body for body, _ in made]
            after = any(a for _, a in made) or (before and len(made) == 1)
            return tir.IfThenElse(stmt.condition, bodies[0], bodies[1] if bodies[1:] else None, span=stmt.span), after
        ((body, around),) = parts
        body, after = self._list(body, (*path, around), used, place)
        return tir.AttrStmt(stmt.node, stmt.attr_key, stmt.value, body, span=stmt.span), used or after

    def _uses(self, stmt: Any, number: int, path: Path) -> bool:
        found = effects(stmt, self.tracked, self.roots)
        return any(e.kind in ORDINARY and self._refilled(e.buffer, number, path) for e in found)


def _parts(stmt: Any, number: int) -> list[tuple[Any, tuple[str, int, int]]]:
    """The bodies of a statement, each with what it is to those inside."""
    if isinstance(stmt, (tir.For, tir.While)):
        return [(stmt.body, ("loop", number, 0))]
    if isinstance(stmt, tir.IfThenElse):
        cases = [stmt.then_case, *([] if stmt.else_case is None else [stmt.else_case])]
        return [(case, ("if", number, n)) for n, case in enumerate(cases)]
    if isinstance(stmt, tir.AttrStmt):
        group = tile_ir.as_thread_group(stmt)
        return [(stmt.body, ("scope" if group is None else "group", number, 0))]
    return []


def _may_follow(fill: _Fill, number: int, path: Path) -> bool:
    """Whether a copy may run after an access: behind it, in a loop with it, or in a loop of threads of their own."""
    if fill.number > number:
        return True
    together = [a for a, b in zip(fill.path, path) if a == b]
    apart = fill.path[len(together) :]
    if any(kind == "loop" for kind, _, _ in together):
        return True
    other = bool(apart) and (apart[0][0] == "group" or _other_branch(apart, path[len(together) :]))
    return other and any(kind == "loop" for kind, _, _ in apart)


def _other_branch(a: Path, b: Path) -> bool:
    return bool(a and b) and a[0][0] == b[0][0] == "if" and a[0][1] == b[0][1]


def _hands_over(stmt: Any) -> bool:
    """Whether a statement, or one under its condition, tells others that this thread is done with what it has used."""
    if is_role(stmt) or isinstance(stmt, (tir.For, tir.While)):
        return False
    if isinstance(stmt, tir.AttrStmt):
        return False
    return any(
        is_call(n, "tirx.call_extern") and str(n.args[0].value).startswith(HANDOVERS)
        for n in tile_ir.walk(stmt, ir.Call)
    )
