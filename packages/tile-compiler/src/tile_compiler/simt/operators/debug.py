"""`T.print` and `T.device_assert`: calls of the device header."""

from __future__ import annotations

import math
from pathlib import PurePath
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.simt.materialize_threads import linear_thread
from tile_compiler.simt.operators.copy import move
from tile_compiler.simt.operators.expand import Expansion
from tile_compiler.simt.operators.nests import int32, is_fragment, nest, run, serial
from tile_compiler.tileops.site import at, cast, element_type
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.ops import DeviceAssert, Print


def expand_print(op: Print, to: Expansion) -> Any:
    """`tl.print(value)` -> a line for a scalar, a line for each element of a tile, by one thread and in order.

    before:     T.tl.print(total[0:8])                  {message: "sums"}
    after:      copy(total, printed)                    a fragment goes through shared memory
                for i in T.Parallel(1):
                    for k in range(8): tl::print("block %d: sums[%d]: %g", bx, k, printed[k])

    A scalar that differs between threads or iterations gives a line for each.
    """
    if hasattr(op.value, "region"):
        return _print_tile(op, to)
    each = to.by_thread or to.varies(op.value)
    line = _line(op.message, [], op.value, to, thread=each)
    return line if each else nest([], lambda _: line, "T.print", to.span)


def _print_tile(op: Print, to: Expansion) -> Any:
    region = op.value
    extents = [tile_ir.static(r.extent) for r in region.region]
    if any(e is None for e in extents):
        raise UnsupportedOnTarget(
            f"T.print of a part of {region.source.name} whose extents are not constant",
            at=to.span,
            repair="print a part of constant size, or single elements in a T.serial loop",
        )
    before: list[Any] = []
    if is_fragment(region.source):
        if to.by_thread:
            raise UnsupportedOnTarget(
                f"T.print of the fragment {region.source.name} under a condition on the thread",
                at=to.span,
                repair="print it outside of the condition: the whole block takes part",
            )
        held = tile_ir.whole(to.temporary(extents, element_type(region), f"{region.source.name}_printed", "shared.dyn"))
        before.append(move(region, held, to))
        region = held
    sizes = [int(e or 0) for e in extents]

    def element(k: Any) -> Any:
        place: list[Any] = []
        rest = k
        for size in reversed(sizes):
            place.insert(0, rest if len(place) + 1 == len(sizes) else tir.floormod(rest, int32(size)))
            rest = tir.floordiv(rest, int32(size))
        value = tir.BufferLoad(region.source, at(region, dict(enumerate(place))))
        return _line(op.message, place, value, to, thread=to.by_thread)

    lines = serial("k", math.prod(sizes), element, to.span)
    return tile_ir.sequence([*before, lines if to.by_thread else nest([], lambda _: lines, "T.print", to.span)])


def _line(message: str, place: list[Any], value: Any, to: Expansion, *, thread: bool) -> Any:
    """The call that prints `block (x, y): message[place]: value`; with `thread` its number, too."""
    coordinates = [cast(v, "int32") for v, _ in to.kernel.grid]
    words = "block %d" if len(coordinates) == 1 else f"block ({', '.join(['%d'] * len(coordinates))})"
    arguments = list(coordinates)
    if thread:
        words += ", thread %d"
        arguments.append(linear_thread(to.kernel))
    name = message.replace("%", "%%")
    if place:
        name += f"[{', '.join(['%d'] * len(place))}]"
        arguments += place
    shown, number = _formatted(value)
    text = ": ".join(part for part in (words, name, shown) if part) + "\n"
    return run("tl::print", ir.StringImm(text), *arguments, number, span=to.span)


def _formatted(value: Any) -> tuple[str, Any]:
    """(printf's conversion, the value in the type that it takes)."""
    kind = dtype_of(str(value.ty))
    if kind.is_float:
        return ("%.15g", value) if kind.bits == 64 else ("%.7g", cast(value, "float32"))
    if kind.bits == 64:
        return ("%llu" if kind.kind == "uint" else "%lld"), value
    return ("%u", cast(value, "uint32")) if kind.kind == "uint" else ("%d", cast(value, "int32"))


def expand_device_assert(op: DeviceAssert, to: Expansion) -> Any:
    """`tl.device_assert(condition)` -> `tl::device_assert(condition, code, text)`; texts are numbered in the manifest."""
    texts = to.ctx.errors.setdefault(to.kernel.index, [])
    text = assertion_text(op, to.span)
    if text not in texts:
        texts.append(text)
    check = run("tl::device_assert", op.condition, int32(texts.index(text) + 1), ir.StringImm(text), span=to.span)
    alone = to.by_thread or to.varies(op.condition)
    return check if alone else nest([], lambda _: check, "T.device_assert", to.span)


def assertion_text(op: DeviceAssert, span: Any) -> str:
    """`file:line: message`. The file without its folders: the text goes into artifacts, which other machines run."""
    location = f"{PurePath(span.source_name.name).name}:{span.line}" if span is not None else ""
    return ": ".join(part for part in (location, op.message or "device assertion failed") if part)
