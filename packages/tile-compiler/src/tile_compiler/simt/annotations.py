"""Layouts that are settled before inference: those that the user gave, and row-major order where others count on it."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from tvm import ir

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.rewrite import is_call
from tile_compiler.simt.distribution import of_fragment
from tile_compiler.simt.layout.equations import Annotation, Solution, Unknown
from tile_compiler.simt.operators.nests import is_fragment, is_shared
from tile_compiler.simt.terms import names
from tilelang.ir import tile_ir
from tilelang.layout import Fragment, Layout, make_linear_layout, placeholders, substitute


def settled(kernel: tile_ir.Kernel, buffers: dict[Any, Unknown], threads: int, views: Collection[Any]) -> Solution:
    """The values that are fixed before inference begins.

    Those are the user's; and row-major order for `views` and their owners, and for buffers whose address a function of
    the user gets.
    """
    known = _annotated(kernel, buffers, threads)
    addressed = _addressed(kernel)
    for buffer, unknown in buffers.items():
        if is_shared(buffer) and (buffer in views or (buffer in addressed and unknown not in known.values)):
            known.values[unknown] = make_linear_layout(unknown.shape)
    return known


def laid_out(kernel: tile_ir.Kernel) -> set[Any]:
    """The buffers that have the user's layout, or whose order a function of the user counts on."""
    annotated = {n.args[0].source for n in tile_ir.walk(kernel.body, ir.Call) if is_call(n, "tl.annotate_layout")}
    return annotated | _addressed(kernel)


def _annotated(kernel: tile_ir.Kernel, buffers: dict[Any, Unknown], threads: int) -> Solution:
    """What `T.annotate_layout` says."""
    solution = Solution()
    for node in tile_ir.walk(kernel.body, ir.Call):
        if not is_call(node, "tl.annotate_layout"):
            continue
        buffer = node.args[0].source
        data = json.loads(str(tile_ir.attrs_of(node)["layout"]))
        unknown = buffers.get(buffer)
        if unknown is None:  # a tensor of the caller lies as its shape and strides say
            continue
        origin = Annotation("T.annotate_layout", node.span)
        if is_fragment(buffer):
            fragment = Fragment.from_json(data)
            if fragment.shape != unknown.shape or fragment.thread_extent > threads or not fragment.covers():
                raise UnsupportedOnTarget(f"the fragment annotated for {buffer.name} does not fit it", at=node.span)
            solution.set(unknown, of_fragment(fragment, threads), origin)
        elif is_shared(buffer):
            layout = Layout.from_json(data)
            if layout.shape == unknown.shape[1:]:
                layout = _versions(layout, unknown.shape[0])
            if layout.shape != unknown.shape:
                shape = f"{layout.shape}, the buffer {unknown.shape}"
                raise UnsupportedOnTarget(f"the layout annotated for {buffer.name} has shape {shape}", at=node.span)
            solution.set(unknown, layout, origin)
    return solution


def _addressed(kernel: tile_ir.Kernel) -> set[Any]:
    """The buffers whose address a function of the user gets."""
    found: set[Any] = set()
    for node in tile_ir.walk(kernel.body, ir.Call):
        if is_call(node, "tirx.call_extern"):
            places = [a.args[0] for a in node.args[1:] if is_call(a, "tirx.address_of", "tirx.buffer_data")]
            found |= {p.source if isinstance(p, ir.TensorLoad) else p for p in places}
    return found


def _versions(layout: Layout, count: int) -> Layout:
    """`count` copies of a tile one after another, for the versions of a pipelined buffer."""
    size = layout.physical_size
    named = dict(zip(names(len(layout.shape)), placeholders(len(layout.shape) + 1)[1:]))
    return Layout((count, *layout.shape), lambda v, *_: v * size + substitute(layout.offset, named))
