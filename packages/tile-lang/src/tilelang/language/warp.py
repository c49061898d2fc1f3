"""Warps: which thread of which warp this is, one thread chosen of many, and values that threads of a warp exchange."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilelang.errors import DtypeError, InvalidArgument
from tilelang.frontend.builder import require_kernel
from tilelang.frontend.literals import is_literal
from tilelang.frontend.values import Value, as_value, convert
from tilelang.ir.dtypes import DType
from tilelang.language import math
from tilelang.language.barriers import thread_level
from tilelang.ops.shuffle import SHUFFLE, WARP

_ALL = (-1, 0xFFFFFFFF)
_INT = DType("int32")
WARPS_OF_GROUP = 4


def _thread(what: str) -> Any:
    """The number of the thread in its block, x fastest."""
    frame = require_kernel(what).kernel
    if not frame.threads:
        raise InvalidArgument(
            f"{what} in a kernel that does not say how many threads it has",
            expected="threads that the kernel names",
            repair="T.Kernel(..., threads=128)",
        )
    number, pitch = frame.threads[0], frame.thread_extents[0]
    for index, extent in zip(frame.threads[1:], frame.thread_extents[1:]):
        number, pitch = number + index * pitch, pitch * extent
    return number


def get_lane_idx(warp_size: int = WARP) -> Any:
    """The thread's number in its warp, int32; `warp_size` is what is called a warp."""
    return _thread("T.get_lane_idx") % _size("T.get_lane_idx", warp_size)


def get_warp_idx(warp_size: int = WARP) -> Any:
    """The number of the thread's warp in the block, int32."""
    return _thread("T.get_warp_idx") // _size("T.get_warp_idx", warp_size)


def get_warp_idx_sync(warp_size: int = WARP) -> Any:
    """Same as `get_warp_idx`."""
    return get_warp_idx(warp_size)


def get_warp_group_idx(warp_size: int = WARP, warps_per_group: int = WARPS_OF_GROUP) -> Any:
    """The number of the thread's group of warps in the block, int32; Hopper's warpgroups have four."""
    what = "T.get_warp_group_idx"
    return _thread(what) // (_size(what, warp_size) * _size(what, warps_per_group))


def shuffle_elect(thread_extent: int) -> Any:
    """`if T.shuffle_elect(128):` true in one thread of each `thread_extent` neighbours, the first; 0: one of the block."""
    number = _thread("T.shuffle_elect")
    return number == 0 if thread_extent == 0 else number % _size("T.shuffle_elect", thread_extent) == 0


def _size(what: str, count: Any) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InvalidArgument(
            f"{what}: impossible number of threads",
            found=repr(count),
            expected="a positive integer known at compile time",
            repair=f"{what}({WARP})",
        )
    return count


# -- exchanges ------------------------------------------------------------------------------------------------------


def _exchanged(what: str, mask: Any, value: Any, width: int, source: Callable[[Any, int], Any]) -> Value:
    """The value of another thread: `source(lane, width)` is its lane in the segment of `width` lanes."""
    builder = thread_level(what)
    number = _thread(what)
    if not is_literal(mask) or int(mask) not in _ALL:
        raise InvalidArgument(
            f"{what} for a part of the warp",
            found=f"mask {mask!r}",
            expected="0xFFFFFFFF (or -1): all threads of the warp come by",
            repair="let all threads exchange, and use the value in those that want it",
        )
    if not isinstance(width, int) or width not in (1, 2, 4, 8, 16, 32):
        raise InvalidArgument(
            f"{what}: impossible width",
            found=repr(width),
            expected=f"a power of two up to {WARP}: lanes that exchange among themselves",
            repair=f"width={WARP}",
        )
    given = as_value(value)
    if given.dtype.lanes != 1 or given.dtype.bits < 8 or given.dtype.kind == "bool":
        raise DtypeError(
            f"{what} of a value that is no number of 1 to 8 bytes",
            found=str(given.dtype),
            expected="one number",
            repair="T.cast it, or exchange the parts one after the other",
        )
    lane = number % width
    place = convert(as_value(number - lane + source(lane, width)), _INT)
    from tvm import tirx

    from tilelang.ir import tile_ir

    kind = str(given.dtype.storage)
    variable = tirx.Var(builder.name("shuffled"), kind)
    call = tile_ir.call(SHUFFLE, [given.node, place.node], dtype=kind, span=builder.span())
    builder.emit(tirx.Bind(variable, call, span=builder.span()))
    return Value(variable, given.dtype)


def _of_lane(lane: Any, wanted: Any, width: int) -> Any:
    return as_value(wanted, _INT) % width


def tvm_warp_shuffle(mask: Any, value: Any, warp_id: Any, width: int = WARP, warp_size: int = WARP) -> Value:
    """`T.tvm_warp_shuffle(0xFFFFFFFF, x, lane, 32, 32)`: the x of lane `lane % width` of the thread's segment of `width` lanes.

    Numbers of 1 to 8 bytes. All threads of the warp come by. On the CPU the threads of a block exchange by memory.
    """
    return _exchanged("T.tvm_warp_shuffle", mask, value, width, lambda lane, w: _of_lane(lane, warp_id, w))


def tvm_warp_shuffle_up(mask: Any, value: Any, offset: Any, width: int = WARP, warp_size: int = WARP) -> Value:
    """As `tvm_warp_shuffle`, of the lane `offset` below; lanes that have none there keep their own."""
    below = lambda lane, w: math.if_then_else(lane >= offset, lane - offset, lane)  # noqa: E731
    return _exchanged("T.tvm_warp_shuffle_up", mask, value, width, below)


def tvm_warp_shuffle_down(mask: Any, value: Any, offset: Any, width: int = WARP, warp_size: int = WARP) -> Value:
    """As `tvm_warp_shuffle`, of the lane `offset` above; lanes that have none there keep their own."""
    above = lambda lane, w: math.if_then_else(lane + offset < w, lane + offset, lane)  # noqa: E731
    return _exchanged("T.tvm_warp_shuffle_down", mask, value, width, above)


def shfl_sync(value: Any, src_lane: Any, width: int = WARP, mask: Any = -1) -> Value:
    """`T.shfl_sync(x, lane)`: as `tvm_warp_shuffle`."""
    return _exchanged("T.shfl_sync", mask, value, width, lambda lane, w: _of_lane(lane, src_lane, w))


def shfl_xor(value: Any, lane_mask: Any, width: int = WARP, mask: Any = -1) -> Value:
    """`T.shfl_xor(x, 1)`: the x of the lane whose number differs in these bits; lanes that have none keep their own."""

    def other(lane: Any, w: int) -> Any:
        found = lane ^ lane_mask
        return math.if_then_else(found < w, found, lane)

    return _exchanged("T.shfl_xor", mask, value, width, other)


def shfl_up(value: Any, delta: Any, width: int = WARP, mask: Any = -1) -> Value:
    """`T.shfl_up(x, 1)`: as `tvm_warp_shuffle_up`."""
    return tvm_warp_shuffle_up(mask, value, delta, width)


def shfl_down(value: Any, delta: Any, width: int = WARP, mask: Any = -1) -> Value:
    """`T.shfl_down(x, 1)`: as `tvm_warp_shuffle_down`."""
    return tvm_warp_shuffle_down(mask, value, delta, width)


def _over_warp(value: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """The values of a warp combined, in all of its threads: lanes 16 apart first."""
    distance = WARP // 2
    while distance:
        value = combine(value, shfl_xor(value, distance))
        distance //= 2
    return value


def warp_reduce_sum(value: Any) -> Any:
    """The sum of `value` over the warp, in each of its threads; all of them come by."""
    return _over_warp(value, lambda a, b: a + b)


def warp_reduce_max(value: Any) -> Any:
    """The largest `value` of the warp, in each of its threads; all of them come by."""
    return _over_warp(value, math.max)


def warp_reduce_min(value: Any) -> Any:
    """The smallest `value` of the warp, in each of its threads; all of them come by."""
    return _over_warp(value, math.min)


def warp_reduce_bitand(value: Any) -> Any:
    """The bits that all threads of the warp have in `value`, in each of them; all of them come by."""
    return _over_warp(value, lambda a, b: a & b)


def warp_reduce_bitor(value: Any) -> Any:
    """The bits that some thread of the warp has in `value`, in each of them; all of them come by."""
    return _over_warp(value, lambda a, b: a | b)
