"""Elements of fragments that every thread asks for, outside of T.Parallel and tile operators, go through shared memory."""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.passes.lower_tile_ops import alias_roots, is_tile_operator
from tile_compiler.rewrite import Rewriter, map_kernels
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.operators.copy import whole_copy
from tile_compiler.simt.operators.nests import is_fragment
from tile_compiler.simt.pipeline_schedule import touched
from tile_compiler.simt.uniformity import Uniformity
from tilelang.ir import tile_ir


def share_elements(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """A fragment's elements are in some threads' registers; a tile in shared memory shows them to all.

    before:     for k in range(8): x = x + f[k]
    after:      for i in T.parallel(8): f_seen[i] = f[i]
                for k in range(8): x = x + f_seen[k]

    The copy stands before the outermost statement that does not change the fragment, where all threads come by.
    UnsupportedOnTarget where there is none.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        body = _Share(kernel, ctx).body(kernel.body)
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, body, kernel.span)

    return map_kernels(func, rule)


class _Share(Rewriter):
    """`seen` maps a fragment to the tile that holds what it has in the statement at hand."""

    def __init__(self, kernel: tile_ir.Kernel, ctx: SimtContext) -> None:
        self.ctx, self.roots = ctx, alias_roots(kernel.body)
        self.uniformity = Uniformity(kernel)
        self.divergent = False
        self.seen: dict[Any, Any] = {}
        self.span: Any = kernel.span

    def body(self, node: Any) -> Any:
        return tile_ir.sequence(self.statements(tile_ir.statements(node)), node.span)

    def statements(self, stmts: list[Any]) -> list[Any]:
        out: list[Any] = []
        for s in stmts:
            outer = dict(self.seen)
            self.span = s.span or self.span
            for fragment in [] if self.divergent else self._shareable(s):
                tile = tir.decl_buffer(
                    list(fragment.ty.shape),
                    tile_ir.dtype_name(fragment),
                    name=f"{fragment.name}_seen",
                    scope="shared.dyn",
                    layout=None,
                )
                out += [tir.AllocBuffer(tile, span=self.span), whole_copy(fragment, tile, self.span)]
                self.seen[fragment] = tile
                self.ctx.report.note(self.span, f"{fragment.name} goes through shared memory, as all threads read it")
            out += super().statements([s])
            self.seen = outer
        return out

    def _shareable(self, stmt: Any) -> list[Any]:
        """The fragments whose elements a statement reads by itself, which it neither changes nor allocates."""
        found = dict.fromkeys(b for b in _read_by_threads(stmt) if b not in self.seen)
        changed = {self._root(b) for b in touched(stmt)[1]} if found else set()
        made = {n.buffer for n in tile_ir.walk(stmt, tir.AllocBuffer, tir.DeclBuffer)}
        return [b for b in found if self._root(b) not in changed and b not in made]

    def _root(self, buffer: Any) -> Any:
        return self.roots.get(buffer, buffer)

    # -- statements -------------------------------------------------------------------------------------------

    def loop(self, node: tir.For) -> Any:
        return node if tile_ir.as_parallel(node) is not None else self._inside(node.extent, node, super().loop)

    def while_loop(self, node: tir.While) -> Any:
        return self._inside(node.condition, node, super().while_loop)

    def branch(self, node: tir.IfThenElse) -> Any:
        return self._inside(node.condition, node, super().branch)

    def _inside(self, decision: Any, node: Any, rewrite: Any) -> Any:
        outer = self.divergent
        self.divergent = outer or self.uniformity.varies(decision)
        new = rewrite(node)
        self.divergent = outer
        return new

    def evaluate(self, node: tir.Evaluate) -> Any:
        return node if is_tile_operator(node) else super().evaluate(node)

    def expr(self, node: Any) -> Any:
        for fragment in _loaded(tir.Evaluate(node)):
            if fragment not in self.seen:
                raise self._unshared(fragment)

        def load(n: Any) -> Any:
            return tir.BufferLoad(self.seen[n.source], n.indices) if n.source in self.seen else n

        return tile_ir.map_nodes(node, (ir.TensorLoad, load)) if self.seen else node

    def _unshared(self, fragment: Any) -> UnsupportedOnTarget:
        name = fragment.name
        return UnsupportedOnTarget(
            f"an element of the fragment {name} is read by threads that do not hold it",
            at=self.span,
            found=f"{name}[...] under a condition that threads disagree on, or in a loop that changes {name}",
            expected="a place where all threads of the block come by, before which the element has its value",
            repair=f"T.copy {name} to a shared buffer where all threads come by, and read that",
        )


def _read_by_threads(node: Any) -> list[Any]:
    """The fragments that are read below outside of nests and tile operators."""
    if isinstance(node, tir.For) and tile_ir.as_parallel(node) is not None:
        return []
    if isinstance(node, tir.Evaluate) and is_tile_operator(node):
        return []
    if isinstance(node, tir.SeqStmt):
        return [b for s in tile_ir.statements(node) for b in _read_by_threads(s)]
    parts: dict[type, tuple[str, ...]] = {
        tir.For: ("min", "extent"),
        tir.While: ("condition",),
        tir.IfThenElse: ("condition",),
        tir.AttrStmt: (),
    }
    kind = type(node)
    if kind not in parts:
        return _loaded(node)
    found = [b for name in parts[kind] for b in _loaded(tir.Evaluate(getattr(node, name)))]
    for name in ("body", "then_case", "else_case"):
        inner = getattr(node, name, None)
        found += [] if inner is None else _read_by_threads(inner)
    return found


def _loaded(node: Any) -> list[Any]:
    return [n.source for n in tile_ir.walk(node, ir.TensorLoad) if is_fragment(n.source)]
