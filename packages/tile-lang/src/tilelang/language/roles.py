"""Warp specialization by hand: `T.ws` gives work to warpgroups, `T.set_max_nreg` registers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tilelang.errors import InvalidArgument
from tilelang.frontend.builder import require_kernel
from tilelang.language.barriers import thread_level
from tilelang.language.hints import kernel_hint
from tilelang.ops.registers import SetMaxNreg

WARPGROUP = 128


@contextlib.contextmanager
def ws(*warp_group_idx: int) -> Iterator[None]:
    """`with T.ws(0, 1):` the body is the work of these warpgroups (128 threads each, neighbours) alone.

    Tile operators and T.Parallel in it are spread over their threads; fragments used in it belong to them. What other
    warpgroups do meanwhile is ordered by mbarriers (`T.alloc_barrier`) only. Stands where all threads come by.
    """
    builder = require_kernel("T.ws")
    groups = sorted(warp_group_idx)
    neighbours = groups == list(range(groups[0], groups[0] + len(groups))) if groups else False
    extents = builder.kernel.thread_extents
    threads = extents[0] if len(extents) == 1 else 0
    if not neighbours or groups[0] < 0 or (groups[-1] + 1) * WARPGROUP > threads:
        raise InvalidArgument(
            "T.ws names no warpgroups of the block",
            found=f"T.ws({', '.join(map(str, warp_group_idx))}) in a block of {extents or 'unsaid'} threads",
            expected="neighbouring warpgroups of 128 threads, numbered from 0",
            repair="T.Kernel(..., threads=256) has the warpgroups 0 and 1",
        )
    if builder.in_parallel:
        raise InvalidArgument("T.ws stands inside T.Parallel", expected="roles around loops", repair="turn them around")
    from tilelang.ir import tile_ir

    span = builder.span()
    with builder.body() as statements:
        yield
    body = tile_ir.sequence(statements)
    builder.emit(tile_ir.thread_group(groups[0] * WARPGROUP, len(groups) * WARPGROUP, body, span))


def set_max_nreg(reg_count: int, is_inc: int) -> None:
    """`T.set_max_nreg(240, 1)`: the warpgroup's threads get so many registers, 0: give back all but so many.

    A multiple of 8 from 24 to 256. Changes no result; targets without it ignore it.
    """
    if not isinstance(reg_count, int) or reg_count % 8 or not 24 <= reg_count <= 256:
        raise InvalidArgument(
            "T.set_max_nreg: impossible number of registers",
            found=f"{reg_count!r}",
            expected="a multiple of 8 from 24 to 256",
            repair="T.set_max_nreg(240, 1) for consumers, T.set_max_nreg(24, 0) for a producer",
        )
    builder = thread_level("T.set_max_nreg")
    builder.emit(SetMaxNreg(reg_count, bool(is_inc)).to_stmt(builder.span()))


def inc_max_nreg(reg_count: int) -> None:
    """`T.set_max_nreg(reg_count, 1)`."""
    set_max_nreg(reg_count, 1)


def dec_max_nreg(reg_count: int) -> None:
    """`T.set_max_nreg(reg_count, 0)`."""
    set_max_nreg(reg_count, 0)


def annotate_producer_reg_dealloc(reg_count: int = 24) -> None:
    """Same as `dec_max_nreg`."""
    dec_max_nreg(reg_count)


def annotate_consumer_reg_alloc(reg_count: int = 240) -> None:
    """Same as `inc_max_nreg`."""
    inc_max_nreg(reg_count)


no_set_max_nreg = kernel_hint("no_set_max_nreg", "The compiler moves no registers between the warps of this kernel.")
disable_warp_group_reg_alloc = kernel_hint("disable_warp_group_reg_alloc", "Same as `no_set_max_nreg`.")
