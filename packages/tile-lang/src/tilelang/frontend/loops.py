"""The loops of a kernel: T.serial, T.unroll, T.vectorized, T.Parallel, T.Pipelined, T.Persistent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tilelang.errors import InvalidArgument, PipelineError, TileOperatorInParallel
from tilelang.frontend.buffers import simplify, wrap_node
from tilelang.frontend.builder import Builder, LoopFrame
from tilelang.frontend.literals import is_literal
from tilelang.frontend.values import Value, as_value, index_node


@dataclass
class Loop:
    """A loop nest to be traced: (start, extent, step) for each variable, and the kind of loop it becomes."""

    kind: str  # serial, unrolled, vectorized, parallel, pipelined, persistent
    ranges: list[tuple[Any, Any, Any]]
    annotations: dict[str, Any] = field(default_factory=dict)

    def __iter__(self) -> Any:
        from tilelang.errors import OutsideKernel

        raise OutsideKernel(
            f"a T.{self.kind} loop runs outside of a kernel, or in a function that is not traced",
            expected="a loop in a kernel, or in a helper function under @T.macro",
            repair="put @T.macro above the helper function",
        )

    def trace(self, builder: Builder, names: tuple[str, ...]) -> Iterator[Any]:
        """Yield the loop variables once, then emit the loop around what the body emitted."""
        from tvm import tirx

        if self.kind == "parallel":
            if builder.in_parallel:
                raise TileOperatorInParallel(
                    "T.Parallel stands inside T.Parallel",
                    found="a loop over threads inside iterations that are threads already",
                    expected="one T.Parallel with all extents, or a serial loop inside",
                    repair="write `for i, j in T.Parallel(m, n)`, or T.serial for the inner loop",
                )
        frame = LoopFrame("parallel" if self.kind == "parallel" else "serial", builder.branch_depth)
        span = builder.span()
        loop_vars, shown = [], []
        for i, (start, extent, step) in enumerate(self.ranges):
            name = names[i] if i < len(names) else f"i{i}"
            wide = any(isinstance(x, Value) and x.dtype == "int64" for x in (start, extent, step))
            dtype = "int64" if wide else "int32"
            variable = tirx.Var(builder.unique(name), dtype)
            unit = is_literal(step) and step == 1
            lower = index_node(start) if unit else tirx.const(0, dtype)
            length = index_node(extent)
            if wide:
                lower, length = (x if str(x.ty) == "int64" else tirx.Cast("int64", x) for x in (lower, length))
            builder.bind_range(variable, lower, length)
            loop_vars.append((variable, lower, length))
            value: Any = as_value(variable)
            shown.append(value if unit else start + value * step)
        builder.loops.append(frame)
        with builder.body() as body:
            yield shown[0] if len(shown) == 1 and len(names) <= 1 else tuple(shown)
            statements = list(body)
        builder.loops.remove(frame)
        builder.last_loop_static = False
        builder.emit(self.build(loop_vars, statements, span))

    def build(self, loop_vars: list[Any], statements: list[Any], span: Any) -> Any:
        from tvm import tirx

        from tilelang.ir import tile_ir

        body = tile_ir.sequence(statements)
        if self.kind == "parallel":
            zeros = all(tile_ir.static(lower) == 0 for _, lower, _ in loop_vars)
            if not zeros:
                raise InvalidArgument("T.Parallel starts at 0", repair="add the origin in the body")
            variables, extents = tuple(v for v, _, _ in loop_vars), tuple(e for _, _, e in loop_vars)
            return tile_ir.ParallelNest(variables, extents, body, self.annotations, span).to_stmt()
        kinds = {"unrolled": tirx.ForKind.UNROLLED, "vectorized": tirx.ForKind.VECTORIZED}
        kind = kinds.get(self.kind, tirx.ForKind.SERIAL)
        for depth, (variable, lower, length) in reversed(list(enumerate(loop_vars))):
            notes = self.annotations if depth == 0 else None
            body = tirx.For(variable, lower, length, kind, body, annotations=notes or None, span=span)
        return body


def _extent(start: Any, stop: Any, step: Any) -> Any:
    size = simplify(stop - start)
    if is_literal(step) and step == 1:
        return size if not isinstance(size, int) else max(size, 0)
    if is_literal(step) and step < 0:
        size = simplify(start - stop)
        return (size + (-step - 1)) // -step
    return (size + (step - 1)) // step


def _range(args: tuple[Any, ...], what: str) -> tuple[Any, Any, Any]:
    if not 1 <= len(args) <= 3:
        raise InvalidArgument(
            f"{what} takes a size, or start, stop and step",
            found=f"{len(args)} arguments",
            repair="T.serial(n), or T.serial(start, stop, step)",
        )
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (args[0], args[1], args[2] if len(args) == 3 else 1)
    for part in (start, stop, step):
        if isinstance(part, float) or not (is_literal(part) or isinstance(part, Value) or hasattr(part, "ty")):
            raise InvalidArgument(
                f"{what} needs integers",
                found=f"{part!r}",
                expected="integers or integer expressions",
                repair="use // for divisions: T.serial(n // 2)",
            )
    if is_literal(step) and step == 0:
        raise InvalidArgument(f"{what} has step 0", expected="a step that is not 0", repair="drop the step")
    convert = lambda x: x if is_literal(x) or isinstance(x, Value) else wrap_node(x)  # noqa: E731
    start, stop, step = convert(start), convert(stop), convert(step)
    return start, _extent(start, stop, step), step


def serial(*args: Any, independent: bool = False, annotations: dict[str, Any] | None = None) -> Loop:
    """`T.serial(stop)`, `T.serial(start, stop, step=1)`: iterations one after the other. `range` means the same.

    `independent`: a promise that no two iterations write one element of a tensor, as where a block takes tiles by turns.
    Without it, and where the compiler does not see it, threads wait for each other between iterations. The report of a
    kernel says that it was taken.
    """
    from tilelang.ir import tile_ir_keys as keys

    notes = {keys.INDEPENDENT: keys.PROMISED} if independent else {}
    return Loop("serial", [_range(args, "T.serial")], notes)


def unroll(*args: Any, explicit: bool = False, unroll_factor: int | None = None, annotations: Any = None) -> Loop:
    """`T.unroll(...)`: like T.serial; the compiler writes the iterations out."""
    return Loop("unrolled", [_range(args, "T.unroll")])


def vectorized(*args: Any, annotations: Any = None) -> Loop:
    """`T.vectorized(n)`: n iterations as one vector operation; n must be known at compile time."""
    start, extent, step = _range(args, "T.vectorized")
    if not isinstance(extent, int):
        raise InvalidArgument(
            "T.vectorized needs an extent known at compile time",
            found=f"{extent!r}",
            expected="a Python integer",
            repair="use T.serial, or T.Parallel and let the compiler choose vectors",
        )
    return Loop("vectorized", [(start, extent, step)])


def grid(*extents: Any) -> Loop:
    """`T.grid(m, n)`: nested serial loops."""
    return Loop("serial", [(0, e, 1) for e in extents])


def Parallel(
    *extents: Any,
    coalesced_width: int | None = None,
    loop_layout: Any = None,
    prefer_async: bool | None = None,
    annotations: dict[str, Any] | None = None,
) -> Loop:
    """`for i, j in T.Parallel(m, n)`: iterations without order, spread over the threads of the block.

    Keyword arguments are scheduling hints. Several iterations must not write one place.
    """
    if not extents:
        raise InvalidArgument("T.Parallel needs at least one extent", repair="T.Parallel(block_M, block_N)")
    notes = {} if coalesced_width is None else {"tl.coalesced_width": int(coalesced_width)}
    return Loop("parallel", [(0, *_range((e,), "T.Parallel")[1:]) for e in extents], notes)


def Pipelined(
    *args: Any,
    num_stages: int = 0,
    order: list[int] | None = None,
    stage: list[int] | None = None,
    sync: Any = None,
    group: Any = None,
    annotations: dict[str, Any] | None = None,
) -> Loop:
    """`for k in T.Pipelined(n, num_stages=s)` or `T.Pipelined(start, stop, ...)`: a software pipeline.

    `num_stages` is the number of buffers for each tile that a copy in the body writes (0: plain loop). Experts
    give `order` and `stage` instead: one entry per scheduled statement. The result is that of the plain loop.
    """
    if not isinstance(num_stages, int) or num_stages < 0:
        raise PipelineError(
            "num_stages of T.Pipelined is impossible",
            found=f"{num_stages!r}",
            expected="an integer of 0 or more",
            repair="2 or 3 suit most kernels",
        )
    if (order is None) != (stage is None):
        raise PipelineError(
            "T.Pipelined got only one of order and stage",
            found=f"order={order}, stage={stage}",
            expected="both, one entry per statement, or neither",
            repair="give both lists, or num_stages alone",
        )
    from tilelang.ir import tile_ir_keys as keys

    notes: dict[str, Any] = {keys.PIPELINED: num_stages}
    if order is not None and stage is not None:
        order, stage = [int(x) for x in order], [int(x) for x in stage]
        if len(order) != len(stage):
            raise PipelineError(
                "order and stage of T.Pipelined differ in length",
                found=f"{len(order)} and {len(stage)} entries",
                expected="one entry of each per statement",
                repair="make them equally long",
            )
        notes[keys.PIPELINED] = max(num_stages, max(stage, default=0))
        if order:
            notes |= {keys.PIPELINE_ORDER: order, keys.PIPELINE_STAGE: stage}
    loop = _range(args, "T.Pipelined")
    if loop[2] != 1:
        raise PipelineError("T.Pipelined has no step", found=f"step {loop[2]!r}", repair="multiply in the body")
    return Loop("pipelined", [loop], notes)


@dataclass
class PersistentLoop(Loop):
    """`T.Persistent`: a block walks over many tiles of `domain`, `wave_size` blocks side by side."""

    domain: tuple[Any, ...] = ()
    wave_size: Any = 1
    index: Any = 0
    group_size: int = 8

    def trace(self, builder: Builder, names: tuple[str, ...]) -> Iterator[Any]:
        from tvm import tirx

        from tilelang.ir import tile_ir
        from tilelang.ir import tile_ir_keys as keys

        total: Any = 1
        for extent in self.domain:
            total = total * extent
        waves = (total + (self.wave_size - 1)) // self.wave_size
        inner = Loop("serial", [(0, waves, 1)], {keys.INDEPENDENT: 1})
        for wave in inner.trace(builder, ("wave",)):
            tile = wave * self.wave_size + self.index
            span = builder.span()
            condition = as_value(tile < total).node
            builder.branch_depth += 1
            with builder.body() as body:
                yield self._coordinates(tile)
                statements = list(body)
            builder.branch_depth -= 1
            builder.emit(tirx.IfThenElse(condition, tile_ir.sequence(statements), None, span=span))

    def _coordinates(self, tile: Any) -> Any:
        """Tile number -> coordinates: groups of `group_size` along the first axis, for L2 reuse."""
        if len(self.domain) == 1:
            return tile
        if len(self.domain) == 2:
            from tilelang.language.math import max as tile_max
            from tilelang.language.math import min as tile_min

            rows, columns = self.domain
            group = self.group_size * columns
            first = (tile // group) * self.group_size
            size = tile_min(rows - first, self.group_size)
            if not isinstance(rows, int):  # the coordinates are provably not negative then
                size = tile_max(size, 1)
            inside = tile % group
            return first + inside % size, inside // size
        coordinates = []
        for extent in reversed(self.domain):
            coordinates.append(tile % extent)
            tile = tile // extent
        return tuple(reversed(coordinates))


def Persistent(domain: Any, wave_size: Any, index: Any, group_size: int = 8) -> Loop:
    """`for bx, by in T.Persistent([tiles_m, tiles_n], wave_size, block_id)`: tiles of a persistent block.

    `wave_size` blocks run side by side; block `index` takes tiles index, index + wave_size, ... in groups of
    `group_size` along the first axis.
    """
    extents = tuple(domain) if isinstance(domain, (list, tuple)) else (domain,)
    return PersistentLoop("persistent", [], {}, extents, wave_size, index, group_size)
