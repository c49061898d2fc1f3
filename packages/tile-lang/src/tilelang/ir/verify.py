"""What a traced function may contain: checked once after tracing, and at stage borders (docs/internals/tile-ir.md)."""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm import tirx as tir

from tilelang.errors import BarrierDivergence, InvalidArgument, ParallelConflict, TileOperatorInParallel
from tilelang.ir import tile_ir
from tilelang.location import of_span
from tilelang.ops import OPERATORS, AcrossBlocks, ThreadOp, operator_of

_ALLOWED_IN_PARALLEL = ("tl.print", "tl.device_assert")
# What a single thread may do too, so that it may stand under a condition on the thread.
_ANY_THREAD = (
    *_ALLOWED_IN_PARALLEL,
    *("tl.hint", "tl.annotate_layout", "tl.safe_value", "tl.import_source"),
    *(name for name, operator in OPERATORS.items() if issubclass(operator, ThreadOp)),
)


def verify(func: Any) -> None:
    """Raise an error for IR that is not legal tile IR: an unknown operator, block-level work inside T.Parallel,
    a kernel inside a kernel, block-level work under a condition on the thread, and iterations of T.Parallel that
    certainly write one place with different values."""
    for stmt in tile_ir.statements(func.body):
        kernel = tile_ir.as_kernel(stmt)
        if kernel is None:
            if not isinstance(stmt, (tir.Bind, tir.AllocBuffer, tir.DeclBuffer)):
                raise InvalidArgument(
                    "work outside of T.Kernel",
                    found=type(stmt).__name__,
                    expected="allocations and kernels at the level of the function",
                    repair="move it into `with T.Kernel(...)`",
                    at=of_span(getattr(stmt, "span", None)),
                )
            continue
        _verify_body(kernel.body, in_parallel=False)
        _verify_uniform(kernel.body, {var: extent for var, extent in kernel.threads if tile_ir.static(extent) != 1})


def _verify_body(stmt: Any, in_parallel: bool) -> None:
    for part in tile_ir.statements(stmt):
        where = of_span(getattr(part, "span", None))
        if tile_ir.as_kernel(part) is not None:
            raise InvalidArgument("T.Kernel stands inside T.Kernel", at=where, repair="close the first one")
        call = tile_ir.tile_call(part)
        if call is not None and str(call.op.name) != "tl.atomic_elem":
            name = str(call.op.name)
            if name not in OPERATORS:
                raise InvalidArgument(f"unknown tile operator {name}", at=where, repair="register it in tilelang.ops")
            if in_parallel and name not in _ALLOWED_IN_PARALLEL:
                raise TileOperatorInParallel(f"{name} stands inside T.Parallel", at=where, repair="move it out")
            operator_of(part)
        nest = tile_ir.as_parallel(part)
        if nest is not None:
            if in_parallel:
                raise TileOperatorInParallel("T.Parallel stands inside T.Parallel", at=where, repair="use one nest")
            _verify_body(nest.body, in_parallel=True)
            _verify_conflicts(nest)
        elif isinstance(part, (tir.For, tir.While, tir.AttrStmt)):
            _verify_body(part.body, in_parallel)
        elif isinstance(part, tir.IfThenElse):
            _verify_body(part.then_case, in_parallel)
            if part.else_case is not None:
                _verify_body(part.else_case, in_parallel)
        elif isinstance(part, tir.BufferStore) and not tile_ir.is_buffer(part.buffer):
            raise InvalidArgument(
                "a store to something that is no buffer",
                repair="store into a parameter or an allocated buffer",
                at=where,
            )


# -- iterations that write one place --------------------------------------------------------------------------


def _verify_conflicts(nest: tile_ir.ParallelNest) -> None:
    """Definite conflicts only: the index leaves out a loop variable, the value depends on it, and nothing guards the
    store. What cannot be decided here is the compiler's report and the interpreter's run to tell."""
    bound = {n.var: n.value for n in tile_ir.walk(nest.body) if isinstance(n, tir.Bind)}
    for store, conditions in _stores(nest.body, ()):
        if str(store.buffer.scope()) in tile_ir.PRIVATE:
            continue
        for var, extent in zip(nest.loop_vars, nest.extents):
            size = tile_ir.static(extent)
            if size is None or size <= 1 or _varies([*store.indices, *conditions], var, bound):
                continue
            updates = any(_loads(n, store.buffer) for n in tile_ir.walk(store.value))
            if not updates and not _varies([store.value], var, bound):
                continue
            buffer, names = store.buffer.name, ", ".join(str(v.name) for v in nest.loop_vars)
            raise ParallelConflict(
                f"iterations of T.Parallel {'update' if updates else 'write'} the same element of {buffer}",
                found=f"the index of {buffer} leaves out {var.name}, which has {size} iterations, and "
                + ("each of them adds to the old value" if updates else "the value depends on it"),
                expected=f"each iteration of ({names}) writes an element of its own",
                repair=f"T.reduce_sum or its kin over a tile, T.atomic_add, or a T.serial loop for {var.name}",
                at=of_span(store.span or nest.span),
            )


def _stores(stmt: Any, conditions: tuple[Any, ...]) -> Any:
    """(store, the conditions that guard it) for each store of a body; loops may run zero times only by their extent."""
    for part in tile_ir.statements(stmt):
        if isinstance(part, tir.BufferStore):
            yield part, conditions
        elif isinstance(part, tir.IfThenElse):
            for case in (part.then_case, part.else_case):
                if case is not None:
                    yield from _stores(case, (*conditions, part.condition))
        elif isinstance(part, tir.For):
            yield from _stores(part.body, (*conditions, part.min, part.extent))
        elif isinstance(part, tir.While):
            yield from _stores(part.body, (*conditions, part.condition))


def _varies(nodes: list[Any], var: Any, bound: dict[Any, Any]) -> bool:
    """Whether some node mentions `var`, directly or through a bound name."""
    for node in nodes:
        for part in tile_ir.walk(node):
            if isinstance(part, ir.Var) and (
                part.same_as(var) or (part in bound and _varies([bound[part]], var, bound))
            ):
                return True
    return False


def _loads(node: Any, buffer: Any) -> bool:
    return isinstance(node, ir.TensorLoad) and node.source.same_as(buffer)


# -- work of the whole block under a condition on the thread ----------------------------------------------------


def _verify_uniform(stmt: Any, threads: dict[Any, Any]) -> None:
    """Certain divergence only: a condition that mentions the thread's index around work that all threads share."""
    if threads:
        bound = {n.var: n.value for n in tile_ir.walk(stmt) if isinstance(n, tir.Bind)}
        _uniform(stmt, threads, bound, None)


def _uniform(stmt: Any, threads: dict[Any, Any], bound: dict[Any, Any], guard: Any) -> None:
    for part in tile_ir.statements(stmt):
        call = tile_ir.tile_call(part)
        name = "" if call is None else str(call.op.name)
        shared = tile_ir.as_parallel(part) is not None or (name in OPERATORS and name not in _ANY_THREAD)
        if name == "tl.sync_threads" and "count" in tile_ir.attrs_of(call):
            shared = False  # a named barrier of so many threads
        if guard is not None and shared:
            what = name.replace("tl.", "T.") or "T.Parallel"
            raise BarrierDivergence(
                f"{what} stands under a condition that differs between the threads of the block",
                found=f"the condition or bound `{guard}`",
                expected="all threads of the block, or none, reach work that they do together",
                repair=f"move {what} out of the `if`, or write the threads' part with plain loads and stores",
                at=of_span(getattr(part, "span", None)),
            )
        inner = guard
        if isinstance(part, tir.IfThenElse):
            if guard is None and _differs([part.condition], threads, bound) and not _decided(part.condition, threads):
                inner = part.condition
            for case in (part.then_case, part.else_case):
                if case is not None:
                    _uniform(case, threads, bound, inner)
        elif isinstance(part, tir.While):
            if guard is None and _differs([part.condition], threads, bound):
                inner = part.condition
            _uniform(part.body, threads, bound, inner)
        elif isinstance(part, tir.AttrStmt):
            if tile_ir.as_thread_group(part) is not None:
                _refuse_across_blocks(part.body)
            _uniform(part.body, threads, bound, inner)
        elif isinstance(part, tir.For):
            if guard is None and _differs([part.extent], threads, bound):
                inner = part.extent
            _uniform(part.body, threads, bound, inner)


def _refuse_across_blocks(role: Any) -> None:
    """A barrier between blocks counts all of their threads, so the work of some warpgroups cannot hold one."""
    for node in tile_ir.walk(role, tir.Evaluate):
        operator = operator_of(node)
        if isinstance(operator, AcrossBlocks):
            what = operator.NAME.replace("tl.", "T.")
            raise BarrierDivergence(
                f"{what} stands inside T.ws",
                expected="all threads of all the blocks to come to it",
                repair="T.alloc_cluster_barrier and T.mbarrier_arrive(cta_id=), or the barrier before or after T.ws",
                at=of_span(getattr(node, "span", None)),
            )


def _differs(nodes: list[Any], threads: dict[Any, Any], bound: dict[Any, Any]) -> bool:
    return any(_varies(nodes, thread, bound) for thread in threads)


def _decided(condition: Any, threads: dict[Any, Any]) -> bool:
    """Whether the condition is the same for every thread, such as `tx < 128` for 128 threads."""
    known = tile_ir.analyzer()
    for var, extent in threads.items():
        known.bind(var, ir.Range.from_min_extent(0, extent))
    return bool(known.can_prove(condition) or known.can_prove(tir.Not(condition)))
