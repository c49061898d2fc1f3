"""Which line of the text is whose, and where the user's tiles are: the member `debug.json` of an artifact.

The emulator reads it, to say the user's lines, buffers and elements, and to show tiles (docs/internals/emulator.md).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tvm import tirx as tir

from tile_compiler.cfamily.launches import KernelLaunch, buffer_bytes
from tile_compiler.cfamily.printer import Printed
from tile_compiler.context import CompileContext
from tile_compiler.simt.plan_shared_memory import OFFSET
from tile_compiler.simt.terms import names
from tilelang.ir import tile_ir
from tilelang.layout import Fragment, Layout

DEBUG = "debug.json"


def debug_tables(printed: Printed, launches: Sequence[KernelLaunch], ctx: CompileContext) -> bytes:
    """`files`, `lines` as [line of the text, number of the file, line there]; `kernels` by symbol, each with its tiles.

    `rank`: how many axes the grid has.
    `shared`: [{name, dtype, shape, variables, offset (bytes), element (an index map to the place in the buffer), line (of
    its declaration; 0: it has none), bytes}].
    `arrays`: [[declaration, tile or null]] in the order of the text; a tile in registers has `thread`, `register`
    (index maps over `variables` and `rep`), a thread's own array has neither.
    """
    files: list[str] = []
    lines = []
    for number, at in printed.lines:
        file, _, line = at.rpartition(":")
        if file and file not in files:
            files.append(file)
        lines.append([number, files.index(file), int(line)] if file else [number, -1, 0])
    kernels = {
        launch.kernel.symbol: {
            "rank": len(launch.kernel.grid),
            "shared": _shared(launch.kernel.body, {b: n for n, b in printed.shared[launch.kernel.symbol]}, ctx),
            "arrays": [[text, _array(b, ctx)] for text, b in printed.arrays[launch.kernel.symbol]],
        }
        for launch in launches
    }
    return json.dumps({"files": files, "lines": lines, "kernels": kernels}, separators=(",", ":")).encode()


def _tile(buffer: Any, shape: Sequence[int]) -> dict[str, Any]:
    dtype = tile_ir.dtype_name(buffer)
    return {"name": str(buffer.name), "dtype": dtype, "shape": list(shape), "variables": list(names(len(shape)))}


def _shared(body: Any, lines: dict[Any, int], ctx: CompileContext) -> list[dict[str, Any]]:
    found = []
    for node in tile_ir.walk(body, tir.AllocBuffer):
        if str(node.buffer.scope()) != "shared.dyn":
            continue
        notes = {str(k): tile_ir.plain(v) for k, v in (node.annotations or {}).items()}
        layout = ctx.tiles.get(node.buffer)
        shape = layout.shape if isinstance(layout, Layout) else [int(s) for s in node.buffer.ty.shape]
        tile = {**_tile(node.buffer, shape), "offset": int(notes.get(OFFSET, 0))}
        tile["element"] = layout.offset.to_json() if isinstance(layout, Layout) else tile["variables"][0]
        tile |= {"line": lines.get(node.buffer, 0), "bytes": buffer_bytes(node.buffer)}
        found.append(tile)
    return found


def _array(buffer: Any, ctx: CompileContext) -> dict[str, Any] | None:
    """A tile in registers; None for what the compiler made for itself."""
    if buffer not in ctx.tiles:
        return None
    fragment = ctx.tiles[buffer]
    if not isinstance(fragment, Fragment):
        return _tile(buffer, [int(s) for s in buffer.ty.shape])
    tile = _tile(buffer, fragment.shape)
    return {**tile, "thread": fragment.thread_expr.to_json(), "register": fragment.index_expr.to_json()}
