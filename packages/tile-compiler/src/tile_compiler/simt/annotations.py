"""Layouts that the user gave with `T.annotate_layout`."""

from __future__ import annotations

import json
from typing import Any

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.rewrite import is_call
from tile_compiler.simt.distribution import of_fragment
from tile_compiler.simt.layout.equations import Solution, Unknown
from tile_compiler.simt.operators.nests import is_fragment, is_shared
from tile_compiler.simt.terms import names
from tilelang.ir import tile_ir
from tilelang.layout import Fragment, Layout, placeholders, substitute


def annotated(kernel: tile_ir.Kernel, buffers: dict[Any, Unknown], threads: int) -> Solution:
    """The values that are fixed before inference begins."""
    solution = Solution()
    for node in tile_ir.walk(kernel.body):
        if not is_call(node, "tl.annotate_layout"):
            continue
        buffer = node.args[0].source
        data = json.loads(str(tile_ir.attrs_of(node)["layout"]))
        unknown = buffers.get(buffer)
        if unknown is None:  # a tensor of the caller lies as its shape and strides say
            continue
        if is_fragment(buffer):
            fragment = Fragment.from_json(data)
            if fragment.shape != unknown.shape or fragment.thread_extent > threads or not fragment.covers():
                raise UnsupportedOnTarget(f"the fragment annotated for {buffer.name} does not fit it", at=node.span)
            solution.values[unknown] = of_fragment(fragment, threads)
        elif is_shared(buffer):
            layout = Layout.from_json(data)
            if layout.shape == unknown.shape[1:]:
                layout = _versions(layout, unknown.shape[0])
            if layout.shape != unknown.shape:
                shape = f"{layout.shape}, the buffer {unknown.shape}"
                raise UnsupportedOnTarget(f"the layout annotated for {buffer.name} has shape {shape}", at=node.span)
            solution.values[unknown] = layout
    return solution


def _versions(layout: Layout, count: int) -> Layout:
    """`count` copies of a tile one after another, for the versions of a pipelined buffer."""
    size = layout.physical_size
    named = dict(zip(names(len(layout.shape)), placeholders(len(layout.shape) + 1)[1:]))
    return Layout((count, *layout.shape), lambda v, *_: v * size + substitute(layout.offset, named))
