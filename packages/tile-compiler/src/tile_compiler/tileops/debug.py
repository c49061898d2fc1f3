"""`T.print` and `T.device_assert`: calls into the runtime, with tables of texts beside the launch."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from tvm import tirx as tir

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.tileops.copy import lower_copy
from tile_compiler.tileops.site import Site, cast, int32
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.ops import Copy, DeviceAssert, Print

PRINT = "tl_print"  # void tl_print(int64 site, const void *data, int64 count), docs/internals/runtime.md
HEADER = 3 * 8  # data starts with three int64 block indices


def lower_print(op: Print, site: Site) -> Any:
    """`tl.print(value)` -> block indices and elements copied to one array, and `tl_print(site, array, count)`."""
    is_tile = hasattr(op.value, "region")
    shape = [tile_ir.static(r.extent) for r in op.value.region] if is_tile else []
    if any(s is None for s in shape):
        raise UnsupportedOnTarget("T.print of a region whose extents are not constant", at=site.span)
    dtype = tile_ir.dtype_name(op.value.source) if is_tile else str(op.value.ty)
    shown = str(dtype_of(dtype)) if dtype_of(dtype).bits >= 8 else "int8"
    count = 1
    for size in shape:
        count *= int(size or 0)
    item = dtype_of(shown).itemsize
    words = 3 + -(-count * item // 8)
    header = site.temporary((words,), "int64", "printed", scope="shared")
    data = tir.decl_buffer((HEADER // item + count,), shown, name="printed_data", scope="shared", layout=None)
    site.temporaries.append(tir.DeclBuffer(data, data=tir.buffer_data(header)))
    blocks = [cast(v, "int64") for v, _ in site.kernel.grid][:3]
    blocks += [tir.const(0, "int64")] * (3 - len(blocks))
    stmts: list[Any] = [tir.BufferStore(header, b, [int32(i)]) for i, b in enumerate(blocks)]
    if is_tile:
        stmts.append(_flattened(op.value, data, shape, HEADER // item, site))
    else:
        stmts.append(site.guarded(tir.BufferStore(data, cast(op.value, shown), [int32(HEADER // item)])))
    number = site.ctx.print_count()
    table = site.ctx.prints.setdefault(site.kernel.index, [])
    entry: dict[str, Any] = {"site": number, "msg": op.message, "dtype": shown, "block": True}
    table.append({**entry, "shape": shape} if is_tile else entry)
    address = tir.address_of(tir.BufferLoad(header, [int32(0)]))
    call = tir.call_extern("void", PRINT, tir.const(number, "int64"), address, tir.const(count, "int64"))
    return tile_ir.sequence([*stmts, tir.Evaluate(call, span=site.span)])


def _flattened(region: Any, data: Any, shape: list[Any], offset: int, site: Site) -> Any:
    """Copy a tile to `data[offset:]`, row after row."""
    held = tile_ir.whole(site.temporary(shape, tile_ir.dtype_name(region.source), "printed_tile"))
    out = [lower_copy(Copy(region, held), site)]

    def body(indices: list[Any]) -> Any:
        flat: Any = int32(0)
        for index, size in zip(indices, shape):
            flat = flat * size + index
        value = cast(tir.BufferLoad(held.source, indices), tile_ir.dtype_name(data))
        return tir.BufferStore(data, value, [flat + offset])

    return tile_ir.sequence([*out, site.nest(shape, "ijkl", body)])


def lower_device_assert(op: DeviceAssert, site: Site) -> Any:
    """`tl.device_assert(condition)` -> `if not condition: return code`; the text stands in the launch's table."""
    texts = site.ctx.errors.setdefault(site.kernel.index, [])
    # The file's name without its folders: the text goes into artifacts, which other machines run.
    location = f"{PurePath(site.span.source_name.name).name}:{site.span.line}" if site.span is not None else ""
    text = ": ".join(part for part in (location, op.message or "device assertion failed") if part)
    if text not in texts:
        texts.append(text)
    code = tir.const(texts.index(text) + 1, "int32")
    return site.guarded(tir.IfThenElse(tir.Not(op.condition), tir.Return(code, span=site.span), None, span=site.span))
