"""Put shared tiles into memory: one index in physical order, by their layouts."""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.ranges import RangeRewriter, Ranges
from tile_compiler.rewrite import is_call, map_kernels
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.kernel_layouts import KernelLayouts
from tile_compiler.simt.operators.nests import is_shared, run
from tile_compiler.simt.terms import names, to_tir
from tilelang.ir import tile_ir
from tilelang.layout import Layout


def flatten_shared(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """Shared buffers become 1-D arrays of the scope `shared.dyn`, with the layout's offset as index.

    before:     s = alloc((64, 64)); s[i, j]
    after:      s = alloc((4096,)); s[(i * 64 + j) ^ ((i * 64 + j) >> 3 & 56)]
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        rewriter = _Flatten(Ranges.of_kernel(func, kernel), ctx.layouts[kernel.index], ctx.tiles)
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, rewriter.body(kernel.body), kernel.span)

    return map_kernels(func, rule)


class _Flatten(RangeRewriter):
    def __init__(self, ranges: Ranges, layouts: KernelLayouts, tiles: dict[Any, Any]) -> None:
        super().__init__(ranges)
        self.layouts, self.tiles = layouts, tiles
        self.flat: dict[Any, Any] = {}

    def _layout(self, buffer: Any) -> Layout:
        value = self.layouts.of(buffer)
        assert isinstance(value, Layout)
        return value

    def _buffer(self, buffer: Any) -> Any:
        if buffer not in self.flat:
            size, dtype = self._layout(buffer).physical_size, tile_ir.dtype_name(buffer)
            self.flat[buffer] = tir.decl_buffer((size,), dtype, name=buffer.name, scope="shared.dyn", layout=None)
            self.tiles[self.flat[buffer]] = self._layout(buffer)
        return self.flat[buffer]

    def _index(self, buffer: Any, indices: list[Any]) -> Any:
        layout = self._layout(buffer)
        last = indices[-1]
        base = last.base if isinstance(last, ir.prim.Ramp) else last
        values = dict(zip(names(len(layout.shape)), (*indices[:-1], base)))
        offset = self._unswizzled(layout, values)
        if offset is None:
            offset = self.ranges.simplify(to_tir(layout.offset, values))
        return tir.Ramp(offset, tir.const(1, str(offset.ty)), last.lanes) if isinstance(last, ir.prim.Ramp) else offset

    def _unswizzled(self, layout: Layout, values: dict[str, Any]) -> Any:
        """The place of an element that a swizzle moves by a known distance, as it does the first of a group of rows."""
        swizzle = layout.swizzle
        if swizzle is None or len(layout.base) != 1:
            return None
        place = self.ranges.simplify(to_tir(layout.base[0], values))
        inside = tile_ir.static(
            self.ranges.simplify(tir.floormod(place, 1 << swizzle.base + swizzle.shift + swizzle.bits))
        )
        return None if inside is None else place + (swizzle.apply(inside) - inside)

    def alloc(self, node: tir.AllocBuffer) -> Any:
        return tir.AllocBuffer(self._buffer(node.buffer), span=node.span) if is_shared(node.buffer) else node

    def alias(self, node: tir.DeclBuffer) -> Any:
        if not is_shared(node.buffer):
            return node
        owner = node.data.args[0]
        data = ir.Call(node.data.op, [self._buffer(owner)], attrs=node.data.attrs, ret_ty=node.data.ty)
        return tir.DeclBuffer(self._buffer(node.buffer), data=data, span=node.span)

    def evaluate(self, node: tir.Evaluate) -> Any:
        """A copy straight to LDS says its place itself: `tl::cp_async<4>(tile[...], source, valid, place)`."""
        call = node.value
        if not is_call(call, "tirx.call_extern") or len(call.args) != 5 or str(call.args[0].value) != "tl::cp_async<4>":
            return super().evaluate(node)
        _, target, origin, valid, place = call.args
        tile = tir.BufferLoad(self._buffer(target.args[0].source), [place])
        return run("tl::cp_async<4>", tir.address_of(tile), self.expr(origin), valid, span=node.span)

    def expr(self, node: Any) -> Any:
        return tile_ir.map_nodes(node, (ir.TensorLoad, self._load))

    def _load(self, node: Any) -> Any:
        if not is_shared(node.source) or node.source not in self.layouts.buffers:
            return node
        return tir.BufferLoad(self._buffer(node.source), [self._index(node.source, list(node.indices))])

    def store(self, node: tir.BufferStore) -> Any:
        if not is_shared(node.buffer):
            return super().store(node)
        indices = [self.expr(i) for i in node.indices]
        return tir.BufferStore(
            self._buffer(node.buffer), self.expr(node.value), [self._index(node.buffer, indices)], span=node.span
        )
