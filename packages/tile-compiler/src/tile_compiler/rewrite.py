"""Rewriting statements: one method per statement class, the rest is copied only when something changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tilelang.ir import tile_ir

RELEASE = "tl.release"  # attribute of a call: a barrier or an arrival that the user wrote
UNROLL = "tl.unroll"  # annotation of an unrolled loop: how many of its steps are written out, where not all are


class Rewriter:
    """Walks statements top-down; a subclass overrides the classes it changes and calls `super()` to descend.

    `stmt` may return None to drop a statement. Expressions go through `expr`.
    """

    def stmt(self, node: Any) -> Any:
        method = _METHODS.get(type(node).__name__)
        if method is None:
            raise TypeError(f"no rule for statement {type(node).__name__}")
        return getattr(self, method)(node)

    def body(self, node: Any) -> Any:
        """Like `stmt`, but never None."""
        new = self.stmt(node)
        return tile_ir.sequence([]) if new is None else new

    def expr(self, node: Any) -> Any:
        return node

    def sequence(self, node: tir.SeqStmt) -> Any:
        return tile_ir.sequence(self.statements(tile_ir.statements(node)), node.span)

    def statements(self, stmts: list[Any]) -> list[Any]:
        """The rewritten statements of one scope, in order."""
        out: list[Any] = []
        for s in stmts:
            new = self.stmt(s)
            if new is not None:
                out.extend(tile_ir.statements(new))
        return out

    def alloc(self, node: tir.AllocBuffer) -> Any:
        return node

    def alias(self, node: tir.DeclBuffer) -> Any:
        return node

    def bind(self, node: tir.Bind) -> Any:
        value = self.expr(node.value)
        return node if value.same_as(node.value) else tir.Bind(node.var, value, span=node.span)

    def store(self, node: tir.BufferStore) -> Any:
        value, indices = self.expr(node.value), [self.expr(i) for i in node.indices]
        if value.same_as(node.value) and all(a.same_as(b) for a, b in zip(indices, node.indices)):
            return node
        return tir.BufferStore(node.buffer, value, indices, span=node.span)

    def loop(self, node: tir.For) -> Any:
        low, extent, body = self.expr(node.min), self.expr(node.extent), self.body(node.body)
        if low.same_as(node.min) and extent.same_as(node.extent) and body.same_as(node.body):
            return node
        return remake_loop(node, low=low, extent=extent, body=body)

    def while_loop(self, node: tir.While) -> Any:
        condition, body = self.expr(node.condition), self.body(node.body)
        if condition.same_as(node.condition) and body.same_as(node.body):
            return node
        return tir.While(condition, body, span=node.span)

    def branch(self, node: tir.IfThenElse) -> Any:
        condition = self.expr(node.condition)
        then_case = self.body(node.then_case)
        else_case = None if node.else_case is None else self.body(node.else_case)
        same_else = else_case is None or else_case.same_as(node.else_case)
        if condition.same_as(node.condition) and then_case.same_as(node.then_case) and same_else:
            return node
        return tir.IfThenElse(condition, then_case, else_case, span=node.span)

    def evaluate(self, node: tir.Evaluate) -> Any:
        value = self.expr(node.value)
        return node if value.same_as(node.value) else tir.Evaluate(value, span=node.span)

    def leaf(self, node: Any) -> Any:
        return node

    def attribute(self, node: tir.AttrStmt) -> Any:
        body = self.body(node.body)
        return (
            node
            if body.same_as(node.body)
            else tir.AttrStmt(node.node, node.attr_key, node.value, body, span=node.span)
        )


_METHODS = {
    "SeqStmt": "sequence",
    "AllocBuffer": "alloc",
    "DeclBuffer": "alias",
    "Bind": "bind",
    "BufferStore": "store",
    "For": "loop",
    "While": "while_loop",
    "IfThenElse": "branch",
    "Evaluate": "evaluate",
    "AttrStmt": "attribute",
    "Return": "leaf",
    "Break": "leaf",
    "Continue": "leaf",
}


def remake_loop(node: tir.For, **changes: Any) -> tir.For:
    """`node` with other parts: loop_var, low, extent, kind, body, annotations."""
    notes = changes.get("annotations", node.annotations)
    return tir.For(
        changes.get("loop_var", node.loop_var),
        changes.get("low", node.min),
        changes.get("extent", node.extent),
        changes.get("kind", node.kind),
        changes.get("body", node.body),
        annotations=dict(notes) if notes else None,
        span=node.span,
    )


def map_kernels(func: tir.PrimFunc, rule: Callable[[tile_ir.Kernel], tile_ir.Kernel]) -> tir.PrimFunc:
    """`func` with every kernel replaced by `rule(kernel)`; host statements stay. `func` itself where nothing changes."""
    stmts, changed = [], False
    for s in tile_ir.statements(func.body):
        kernel = tile_ir.as_kernel(s)
        new = kernel if kernel is None else rule(kernel)
        if new is None or kernel is None or _same(new, kernel):
            stmts.append(s)
        else:
            stmts.append(new.to_stmt())
            changed = True
    return func.with_body(tile_ir.sequence(stmts)) if changed else func


def _same(new: tile_ir.Kernel, old: tile_ir.Kernel) -> bool:
    """Whether a rule left a kernel as it was."""
    axes = new.grid is old.grid and new.threads is old.threads and new.index == old.index
    return axes and new.body.same_as(old.body)


def substitute(node: Any, values: dict[Any, Any]) -> Any:
    """`node` with variables and buffers replaced, declarations too."""
    return tile_ir.substitute(node, values)


def fresh(var: Any, suffix: str = "") -> Any:
    """A new variable of the same type and a like name."""
    return tir.Var(var.name + suffix, var.ty)


def renewed(body: Any) -> Any:
    """`body` with its own loop variables, Binds and private buffers: a second copy must not share them."""
    values: dict[Any, Any] = {}
    for node in tile_ir.walk(body):
        if isinstance(node, tir.For):
            values[node.loop_var] = fresh(node.loop_var)
        elif isinstance(node, tir.Bind):
            values[node.var] = fresh(node.var)
        elif isinstance(node, tir.AllocBuffer):
            old = node.buffer
            shape, dtype, scope = old.ty.shape, tile_ir.dtype_name(old), str(old.scope())
            values[old] = tir.decl_buffer(shape, dtype, name=old.name, scope=scope, layout=None)
    return substitute(body, values)


def is_call(node: Any, *names: str) -> bool:
    """Whether `node` calls one of the operators `names` (full names such as `tirx.if_then_else`)."""
    return type(node) is ir.Call and getattr(node.op, "name", "") in names
