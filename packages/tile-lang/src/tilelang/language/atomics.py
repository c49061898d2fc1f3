"""Atomic updates of one element or of a tile, in shared or global memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilelang.errors import CopyShapeMismatch, InvalidArgument
from tilelang.frontend.buffers import Buffer, Element, Region, ScalarVar, provably_equal
from tilelang.frontend.builder import require_kernel, tile_operator
from tilelang.frontend.literals import is_literal
from tilelang.frontend.values import Value, as_value, convert
from tilelang.ops.atomic import ELEMENT, OPS, AtomicTile

_ORDERS = ("relaxed", "acquire", "release", "acq_rel", "seq_cst", "consume")


def _element(op: str, place: Element, value: Any, order: str, return_prev: bool) -> Any:
    from tvm import tirx

    from tilelang.ir import tile_ir

    builder = require_kernel(f"T.atomic_{op}")
    dtype = place.dtype
    node = convert(as_value(value, dtype), dtype).node
    call = tile_ir.call(
        ELEMENT,
        [tirx.address_of(place.node), node],
        {"op": op, "memory_order": order},
        dtype=str(dtype.storage),
        span=builder.span(),
    )
    if return_prev:
        # Bound at once: a later mention of the result must not repeat the update.
        variable = tirx.Var(builder.name("previous"), str(dtype.storage))
        builder.emit(tirx.Bind(variable, call, span=builder.span()))
        return Value(variable, dtype)
    builder.emit(tirx.Evaluate(call, span=builder.span()))
    return None


def _atomic(op: str, dst: Any, value: Any, memory_order: str | None, return_prev: bool) -> Any:
    what = f"T.atomic_{op}"
    order = memory_order or "relaxed"
    if order not in _ORDERS:
        raise InvalidArgument(
            f"{what}: unknown memory order", found=f"{order!r}", expected=", ".join(_ORDERS), repair="drop it"
        )
    if isinstance(dst, ScalarVar) or (
        isinstance(dst, (Buffer, Element, Region)) and _scope(dst) in ("local", "local.var")
    ):
        raise InvalidArgument(
            f"{what} on memory of one thread",
            found=f"{dst!r}",
            expected="shared or global memory",
            repair="assign to it: x = x + value",
        )
    if isinstance(dst, Element) and not isinstance(value, (Buffer, Region)):
        return _element(op, dst, value, order, return_prev)
    if isinstance(dst, Buffer) and dst.ndim == 1 and dst.shape[0] == 1 and not isinstance(value, (Buffer, Region)):
        return _element(op, dst[0], value, order, return_prev)
    if return_prev:
        raise InvalidArgument(
            f"{what} of a tile returns nothing",
            found="return_prev=True",
            expected="one element",
            repair="use T.Parallel",
        )
    builder = tile_operator(what)
    if isinstance(dst, Element):
        from tilelang.language.tile import _origin_region

        tile = value.region() if isinstance(value, Buffer) else value
        dst = _origin_region(what, dst, list(tile.extents))
    region = dst.region() if isinstance(dst, Buffer) else dst
    if isinstance(value, (Buffer, Region)):
        tile = value.region() if isinstance(value, Buffer) else value
        left = [e for e in region.extents if not provably_equal(e, 1)]
        right = [e for e in tile.extents if not provably_equal(e, 1)]
        if len(left) != len(right) or not all(provably_equal(x, y) for x, y in zip(left, right)):
            raise CopyShapeMismatch(
                f"{what}: the tiles' shapes differ",
                found=f"{region!r} and {tile!r}",
                expected="equal extents apart from 1s",
                repair="give the destination as an origin A[i, j]",
            )
        operand = tile.node()
    else:
        operand = convert(as_value(value, region.dtype), region.dtype).node
    builder.emit(AtomicTile(region.node(), operand, op, order).to_stmt(builder.span()))
    return None


def _scope(x: Any) -> str:
    return x.scope if isinstance(x, Buffer) else x.buffer.scope


def _update(op: str, doc: str) -> Callable[..., Any]:
    def function(
        dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False, use_tma: bool = False
    ) -> Any:
        return _atomic(op, dst, value, memory_order, return_prev)

    function.__name__ = function.__qualname__ = f"atomic_{op}"
    function.__doc__ = (
        f"`T.atomic_{op}(dst, value)`: {doc}, atomically, converted to dst's type.\n\n"
        "    `dst` is an element (each thread or iteration updates it once), or a buffer, region or origin with a tile or\n"
        "    scalar `value`. Relaxed unless `memory_order` says otherwise. `return_prev=True` gives the old value of an\n"
        "    element.\n    "
    )
    return function


atomic_add = _update("add", "dst += value")
atomic_max = _update("max", "dst = max(dst, value)")
atomic_min = _update("min", "dst = min(dst, value)")
atomic_or = _update("or", "dst |= value")
atomic_and = _update("and", "dst &= value")
atomic_xor = _update("xor", "dst ^= value")


def atomic_exchange(dst: Any, value: Any, memory_order: str | None = None) -> Any:
    """`T.atomic_exchange(dst, value)`: store and give the old value of an element."""
    return _atomic("exchange", dst, value, memory_order, True)


def atomic_load(src: Any, memory_order: str | None = None) -> Any:
    """`T.atomic_load(A[i])`: the element, read atomically."""
    return _element("load", _one(src), 0, memory_order or "relaxed", True)


def atomic_store(dst: Any, value: Any, memory_order: str | None = None) -> None:
    """`T.atomic_store(A[i], value)`: write the element atomically."""
    _element("store", _one(dst), value, memory_order or "relaxed", False)


def _one(x: Any) -> Element:
    if isinstance(x, Buffer):
        x = x[tuple(0 for _ in x.shape)]
    if not isinstance(x, Element):
        raise InvalidArgument("an atomic access of no element", found=f"{x!r}", expected="A[i, j]", repair="index it")
    return x


def _adjacent(count: int) -> Callable[..., None]:
    def function(dst: Any, value: Any, return_prev: bool = False, memory_order: str | None = None) -> None:
        target, source = _one(dst), value
        for lane in range(count):
            place = Element(target.buffer, [*target.indices[:-1], target.indices[-1] + lane])
            if isinstance(source, Element):
                part: Any = Element(source.buffer, [*source.indices[:-1], source.indices[-1] + lane])
            elif isinstance(source, Buffer):
                part = source[lane]
            elif is_literal(source) or isinstance(source, Value):
                part = source
            else:
                raise InvalidArgument(
                    f"T.atomic_addx{count}: no value",
                    found=f"{source!r}",
                    expected="an element",
                    repair="pass an element, a buffer, or a number",
                )
            _element("add", place, part, memory_order or "relaxed", False)

    function.__name__ = function.__qualname__ = f"atomic_addx{count}"
    function.__doc__ = f"`T.atomic_addx{count}(A[i], B[j])`: {count} neighbouring elements, each added atomically."
    return function


atomic_addx2 = _adjacent(2)
atomic_addx4 = _adjacent(4)


class _Atomic:
    """`T.atomic("add", dst, value)` and `T.atomic.add(dst, value)`: the paper's T.atomic."""

    add, max, min = staticmethod(atomic_add), staticmethod(atomic_max), staticmethod(atomic_min)

    def __call__(self, op: str, dst: Any, value: Any, **options: Any) -> Any:
        if op not in OPS:
            raise InvalidArgument(
                "T.atomic: unknown operation",
                found=f"{op!r}",
                expected=", ".join(OPS),
                repair='T.atomic("add", dst, value)',
            )
        return _atomic(op, dst, value, options.get("memory_order"), bool(options.get("return_prev", False)))


atomic = _Atomic()
