"""Groups of thread-level statements between meeting points: the loops over lanes that they become."""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.ranges import reads_memory
from tile_compiler.rewrite import Rewriter, substitute
from tile_compiler.threads.uniformity import Uniformity
from tilelang.ir import tile_ir

GROUP = "tl.lane_group"  # AttrStmt key around the statements of one group, until the loops are made
LANES = "tl.lanes"  # annotation of the parallel nest that a group becomes


def group(number: int, stmts: list[Any]) -> Any:
    index = tir.const(number, "int32")
    return tir.AttrStmt(index, GROUP, index, tile_ir.sequence(stmts))


def is_group(stmt: Any) -> bool:
    return isinstance(stmt, tir.AttrStmt) and stmt.attr_key == GROUP


def make_loops(body: Any, kernel: tile_ir.Kernel, lanes: Uniformity, masks: dict[int, Any]) -> Any:
    """Turn groups into parallel nests over the threads, with what lives across groups kept in lane arrays.

    before:     x = local(1); <group: x[0] = A[tx]>; sync; <group: B[tx] = x[0]>
    after:      x = shared(T, 1); for tx in T: x[tx, 0] = A[tx];  for tx in T: B[tx] = x[tx, 0]
    """
    loops = _Loops(kernel, lanes, body, masks)
    new = loops.body(body)
    return tile_ir.sequence([*(tir.AllocBuffer(b) for b in loops.expanded), *tile_ir.statements(new)])


class _Loops(Rewriter):
    def __init__(self, kernel: tile_ir.Kernel, lanes: Uniformity, body: Any, masks: dict[int, Any]) -> None:
        self.kernel, self.lanes, self.masks = kernel, lanes, masks
        groups = {int(n.value): n.body for n in tile_ir.walk(body) if is_group(n)}
        self.mentions = {g: set(tile_ir.walk(b, ir.Var)) for g, b in groups.items()}
        for g, mask in masks.items():
            self.mentions[g] |= set(tile_ir.walk(mask, ir.Var))
        self.binds: dict[Any, tuple[int, tir.Bind]] = {}
        for number, stmts in groups.items():
            for s in tile_ir.statements(stmts):
                if isinstance(s, tir.Bind):
                    self.binds[s.var] = (number, s)
        self.bind_buffers: dict[Any, Any] = {}
        self.wide: dict[Any, Any] = {}  # private buffer -> buffer with a lane axis
        self.inside: dict[Any, int] = {}  # private buffer -> the one group that it moves into
        self.expanded: list[Any] = []
        for var, (home, bind) in self.binds.items():
            users = [g for g, names in self.mentions.items() if g != home and var in names]
            if users and reads_memory(bind.value):
                self.bind_buffers[var] = self._lane_buffer(bind.var.name, str(bind.value.ty), ())

    def _lane_buffer(self, name: str, dtype: str, shape: Any) -> Any:
        count = tir.const(self.kernel.num_threads or 1, "int32")
        buffer = tir.decl_buffer([count, *shape], dtype, name=f"{name}_lanes", scope="shared", layout=None)
        self.expanded.append(buffer)
        return buffer

    def statements(self, stmts: list[Any]) -> list[Any]:
        here = {int(s.value) for s in stmts if is_group(s)}
        for s in stmts:
            if isinstance(s, tir.AllocBuffer) and s.buffer in self.lanes.varying:
                users = {g for g, names in self.mentions.items() if s.buffer in names}
                if len(users) <= 1 and users <= here:
                    self.inside[s.buffer] = next(iter(users), -1)
                else:
                    buffer = s.buffer
                    self.wide[buffer] = self._lane_buffer(buffer.name, tile_ir.dtype_name(buffer), buffer.ty.shape)
            elif (
                isinstance(s, tir.DeclBuffer)
                and str(s.buffer.scope()) in tile_ir.PRIVATE
                and self.lanes.differs(s.data)
            ):
                raise UnsupportedOnTarget(
                    f"{s.buffer.name}: a view of a thread's own buffer in code that names threads",
                    at=s.span,
                    repair="index the buffer itself",
                )
        return super().statements(stmts)

    def alloc(self, node: tir.AllocBuffer) -> Any:
        return None if node.buffer in self.inside or node.buffer in self.wide else node

    def attribute(self, node: tir.AttrStmt) -> Any:
        if not is_group(node):
            return super().attribute(node)
        number = int(node.value)
        axes = [(tir.Var(v.name, v.ty), e) for v, e in self.kernel.threads]
        values: dict[Any, Any] = {old: new for (old, _), (new, _) in zip(self.kernel.threads, axes)}
        lane = _linear(axes)
        imports, own = self._imported(number, node.body)
        stmts: list[Any] = []
        for s in tile_ir.statements(own):
            stmts.append(s)
            if isinstance(s, tir.Bind) and s.var in self.bind_buffers:
                stmts.append(tir.BufferStore(self.bind_buffers[s.var], s.var, [lane], span=s.span))
        if number in self.masks:
            stmts = [tir.IfThenElse(self.masks[number], tile_ir.sequence(stmts), None)]
        allocs = [tir.AllocBuffer(b) for b, g in self.inside.items() if g == number]
        body = tile_ir.sequence([*allocs, *imports, *stmts])
        body = substitute(_WithLane(self.wide, lane).body(body), values)
        span = next((s.span for s in tile_ir.statements(body) if s.span is not None), None)
        order = list(reversed(axes))  # x varies fastest
        nest = tile_ir.ParallelNest(tuple(v for v, _ in order), tuple(e for _, e in order), body, {LANES: 1}, span)
        return nest.to_stmt()

    def _imported(self, number: int, body: Any) -> tuple[list[Any], Any]:
        """(the Binds of other groups that `body` mentions, computed anew or read from their lane array; `body`)."""
        lane = _linear(list(self.kernel.threads))
        values: dict[Any, Any] = {}
        head: list[Any] = []

        def value_of(var: Any) -> Any:
            if var in values:
                return values[var]
            home, bind = self.binds[var]
            if home == number:
                return var
            if var in self.bind_buffers:
                result = tir.BufferLoad(self.bind_buffers[var], [lane])
            else:
                needed = {n: value_of(n) for n in tile_ir.walk(bind.value, ir.Var) if n in self.binds}
                result = substitute(bind.value, needed)
            fresh = tir.Var(var.name, var.ty)
            head.append(tir.Bind(fresh, result, span=bind.span))
            values[var] = fresh
            return fresh

        for var in sorted(self.mentions[number] & set(self.binds), key=lambda v: str(v.name)):
            value_of(var)
        return head, substitute(body, values)


class _WithLane(Rewriter):
    """Gives accesses to expanded private buffers their lane index."""

    def __init__(self, wide: dict[Any, Any], lane: Any) -> None:
        self.wide, self.lane = wide, lane

    def expr(self, node: Any) -> Any:
        if not self.wide:
            return node

        def load(access: Any) -> Any:
            target = self.wide.get(access.source)
            return access if target is None else tir.BufferLoad(target, [self.lane, *access.indices])

        return tile_ir.map_nodes(node, (ir.TensorLoad, load))

    def store(self, node: tir.BufferStore) -> Any:
        new = super().store(node)
        target = self.wide.get(new.buffer)
        return new if target is None else tir.BufferStore(target, new.value, [self.lane, *new.indices], span=new.span)


def _linear(axes: list[tuple[Any, Any]]) -> Any:
    """The lane's number: x + X * (y + Y * z)."""
    result, scale = None, 1
    for var, extent in axes:
        term = var if scale == 1 else var * scale
        result = term if result is None else result + term
        scale *= int(extent)
    return tir.const(0, "int32") if result is None else result
