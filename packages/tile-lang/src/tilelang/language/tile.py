"""The tile operators as the user calls them: arguments checked, shapes matched, one IR call emitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilelang.errors import (
    CopyShapeMismatch,
    InvalidArgument,
    ReduceShapeMismatch,
    RuntimeValueNeeded,
)
from tilelang.frontend.buffers import Buffer, Element, Region, ScalarVar, provably_equal, simplify
from tilelang.frontend.buffers import show_extents as _show
from tilelang.frontend.builder import tile_operator
from tilelang.frontend.literals import constant, is_literal
from tilelang.frontend.values import Value, as_value, convert

Place = Buffer | Region | Element


def place(what: str, x: Any, role: str) -> Any:
    """A buffer or region operand; an error that names the operator otherwise."""
    if isinstance(x, ScalarVar):
        return x.buffer.region()
    if isinstance(x, Buffer):
        return x.region()
    if isinstance(x, (Region, Element)):
        return x
    raise RuntimeValueNeeded(
        f"{what}: {role} is no buffer",
        found=f"{type(x).__name__} {x!r}"[:160],
        expected="a buffer, a region A[i0:i1, j0:j1], or an origin A[i, j]",
        repair="pass the tensor or the tile itself",
    )


# -- copy -----------------------------------------------------------------------------------------------------


def copy(
    src: Any,
    dst: Any,
    *,
    coalesced_width: int | None = None,
    disable_tma: bool | None = None,
    eviction_policy: Any = None,
    prefer_instruction: str | None = None,
    loop_layout: Any = None,
    annotations: dict[str, Any] | None = None,
) -> None:
    """`T.copy(src, dst)`: move a tile between any two levels of memory, converting the element type.

    Each side is a buffer, a region `A[i0:i1, j]`, or an origin `A[i, j]` whose extents come from the other side.
    Elements of `src` outside its buffer read as 0, elements of `dst` outside are dropped. The operator is
    synchronous: what follows sees the result. Keyword arguments are scheduling hints.

    Raises CopyShapeMismatch when the sides cannot match.
    """
    builder = tile_operator("T.copy")
    a, b = place("T.copy", src, "the source"), place("T.copy", dst, "the destination")
    if isinstance(a, Element) and isinstance(b, Element):
        # Two origins: one element, moved by every thread (surface.md (c) 1).
        from tilelang.frontend.buffers import store

        store(b.buffer, tuple(b.indices), a)
        return
    source, target = _matched("T.copy", a, b, src, dst)
    if source.stepped or target.stepped:
        _copy_stepped(source, target)
        return
    from tilelang.ops.copy import Copy

    policy = None if eviction_policy is None else str(eviction_policy)
    hints = {
        "coalesced_width": coalesced_width,
        "disable_tma": disable_tma,
        "eviction_policy": policy,
        "prefer_instruction": prefer_instruction,
    }
    builder.emit(Copy(source.node(), target.node(), **hints).to_stmt(builder.span()))  # type: ignore[arg-type]


def async_copy(src: Any, dst: Any, **hints: Any) -> None:
    """`T.async_copy`: as `T.copy`; a wait stands before the first use of what it writes."""
    copy(src, dst)


def matched(what: str, src: Any, dst: Any) -> tuple[Region, Region]:
    """Both sides of a copy as regions whose extents agree once the 1s are dropped; one side may be an origin."""
    a, b = place(what, src, "the source"), place(what, dst, "the destination")
    if isinstance(a, Element) and isinstance(b, Element):
        raise CopyShapeMismatch(
            f"{what} of two origins: nothing says how large the tile is",
            found=f"{a!r} and {b!r}",
            expected="a buffer or a region of slices on one side",
            repair=f"{what}(A[i, j], A_shared)",
        )
    return _matched(what, a, b, src, dst)


def _origin_region(what: str, origin: Element, extents: list[Any]) -> Region:
    """An origin with the other side's extents, aligned at the last dimension."""
    rank = len(origin.indices)
    if len(extents) < rank:
        extents = [1] * (rank - len(extents)) + extents
    surplus = extents[: len(extents) - rank]
    if any(not provably_equal(e, 1) for e in surplus):
        raise CopyShapeMismatch(
            f"{what}: the origin in {origin.buffer.name} has fewer dimensions than the tile",
            found=f"{rank} {'index' if rank == 1 else 'indices'} for a tile of shape {_show(extents)}",
            expected=f"{len(extents)} dimensions, or a tile whose leading extents are 1",
            repair=f"index {origin.buffer.name} as a region with slices",
        )
    extents = extents[len(extents) - rank :]
    return Region(origin.buffer, [(i, e, 1, False) for i, e in zip(origin.indices, extents)])


def _zeros(buffer: Buffer) -> str:
    return ", ".join("0" for _ in buffer.shape)


def _matched(what: str, a: Any, b: Any, src: Any, dst: Any) -> tuple[Region, Region]:
    """Both sides as regions whose extents agree once the 1s are dropped (surface.md (c) 1)."""
    if isinstance(a, Element):
        a = _origin_region(what, a, list(b.extents))
    elif isinstance(b, Element):
        b = _origin_region(what, b, list(a.extents))
    if isinstance(src, Buffer) and isinstance(dst, Buffer) and src.ndim == dst.ndim:
        if not all(provably_equal(x, y) for x, y in zip(src.shape, dst.shape)):
            raise CopyShapeMismatch(
                f"{what} of {src.name} to {dst.name}: the shapes differ",
                found=f"{src.name} {_show(src.shape)} and {dst.name} {_show(dst.shape)}",
                expected="equal shapes when both sides are whole buffers",
                repair=f"name the tile's origin: {what}({src.name}[{_zeros(src)}], {dst.name}), or give a region of slices",
            )
    x = [d for d, e in enumerate(a.extents) if not provably_equal(e, 1)]
    y = [d for d, e in enumerate(b.extents) if not provably_equal(e, 1)]
    if len(x) != len(y):
        a, b = _unify_tails(a, b)
        x = [d for d, e in enumerate(a.extents) if not provably_equal(e, 1)]
        y = [d for d, e in enumerate(b.extents) if not provably_equal(e, 1)]
    fits = len(x) == len(y) and all(provably_equal(a.extents[i], b.extents[j]) for i, j in zip(x, y))
    if not fits:
        raise CopyShapeMismatch(
            f"{what} of {a.buffer.name} to {b.buffer.name}: the extents cannot match",
            found=f"{_show(a.extents)} and {_show(b.extents)}",
            expected="the same extents in the same order, apart from extents of 1",
            repair="give one side as an origin (A[i, j]); it takes the other side's extents",
        )
    return a, b


def _unify_tails(a: Region, b: Region) -> tuple[Region, Region]:
    """Dimensions aligned from the last: an extent of 1 takes the other side's."""
    first, second = list(a.ranges), list(b.ranges)
    for back in range(1, min(len(first), len(second)) + 1):
        p, q = first[-back], second[-back]
        if provably_equal(p[1], 1):
            first[-back] = (p[0], q[1], p[2], p[3])
        elif provably_equal(q[1], 1):
            second[-back] = (q[0], p[1], q[2], q[3])
    return Region(a.buffer, first), Region(b.buffer, second)


def _copy_stepped(a: Region, b: Region) -> None:
    """A copy with slice steps, as the T.Parallel loop that it means."""
    from tilelang.frontend.buffers import store
    from tilelang.frontend.builder import require_kernel
    from tilelang.frontend.loops import Parallel

    builder = require_kernel("T.copy")
    x = [d for d, e in enumerate(a.extents) if not provably_equal(e, 1)]
    y = [d for d, e in enumerate(b.extents) if not provably_equal(e, 1)]
    extents = [b.extents[d] for d in y] or [1]
    for loop_vars in Parallel(*extents).trace(builder, tuple(f"i{n}" for n in range(len(extents)))):
        ivs = loop_vars if isinstance(loop_vars, tuple) else (loop_vars,)
        at = lambda region, dims, ivs=ivs: tuple(  # noqa: E731
            r[0] + (ivs[dims.index(d)] * r[2] if d in dims else 0) for d, r in enumerate(region.ranges)
        )
        store(b.buffer, at(b, y), a.buffer[at(a, x)])


def prefetch(tile: Any) -> None:
    """`T.prefetch(A[i0:i1, j0:j1])`: fetch what will soon be read or written of a tensor into the caches; changes no
    result.

    For loops on a CPU that read a tensor where it lies and compute for so long that the processor does not look ahead by
    itself: fetch what the loop reads, or writes, a kilobyte or more later. The region may leave the tensor. Other targets ignore
    it, and the report says so.

    Raises InvalidArgument for a tile on chip.
    """
    from tilelang.ir.tile_ir import GLOBAL
    from tilelang.ops.prefetch import Prefetch

    builder = tile_operator("T.prefetch")
    region = place("T.prefetch", tile, "the operand")
    if isinstance(region, Element):  # its line
        region = region.buffer[tuple(slice(index, index + 1) for index in region.indices)]
    if region.buffer.scope not in GLOBAL:
        raise InvalidArgument(
            "T.prefetch of a tile on chip",
            found=f"{region.buffer.name} of scope {region.buffer.scope}",
            expected="a region of a tensor",
            repair="name the tensor that the tile is copied from",
        )
    builder.emit(Prefetch(region.node()).to_stmt(builder.span()))


# -- fill -----------------------------------------------------------------------------------------------------


def fill(dst: Any, value: Any) -> None:
    """`T.fill(tile, value)`: set every element of a buffer or region, converted to its type."""
    if isinstance(dst, (ScalarVar, Element)):
        from tilelang.frontend.buffers import store

        buffer, at = (dst.buffer, (0,)) if isinstance(dst, ScalarVar) else (dst.buffer, tuple(dst.indices))
        store(buffer, at, value)
        return
    _fill("T.fill", dst, value)


def _fill(what: str, dst: Any, value: Any) -> None:
    builder = tile_operator(what)
    region = place(what, dst, "the destination")
    from tilelang.ops.fill import Fill

    dtype = region.dtype
    node = convert(as_value(value, dtype), dtype).node
    if region.stepped:
        raise InvalidArgument(f"{what} of a region with a step", found=f"{region!r}", repair="use T.Parallel")
    builder.emit(Fill(region.node(), node).to_stmt(builder.span()))


def clear(dst: Any) -> None:
    """`T.clear(tile)`: set every element to 0."""
    if isinstance(dst, (ScalarVar, Element)):
        fill(dst, 0)
    else:
        _fill("T.clear", dst, 0)


# -- reductions and scans -------------------------------------------------------------------------------------


def _reduce(kind: str, buffer: Any, out: Any, dim: int, clear: bool, nan_propagate: bool, extra: Any = None) -> None:
    what = "T.reduce" if kind == "custom" else f"T.reduce_{kind}"
    builder = tile_operator(what)
    src, dst = _region_of(what, buffer, "the input"), _region_of(what, out, "the result")
    # As in numpy, a dimension indexed by a number does not count; in the IR it stays with extent 1.
    open_dims = [d for d, r in enumerate(src.ranges) if not r[3]]
    extents, result = [simplify(e) for e in src.shape], [simplify(e) for e in dst.shape]
    rank = len(extents)
    if not isinstance(dim, int) or not -rank <= dim < rank:
        raise InvalidArgument(
            f"{what}: dim is out of range",
            found=f"dim={dim} for {src.buffer.name} {_show(extents)}",
            expected=f"an integer from {-rank} to {rank - 1}",
            repair=f"dim={rank - 1} reduces the last dimension",
        )
    dim %= rank
    dropped, kept = extents[:dim] + extents[dim + 1 :], [*extents[:dim], 1, *extents[dim + 1 :]]
    same = lambda x, y: len(x) == len(y) and all(provably_equal(p, q) for p, q in zip(x, y))  # noqa: E731
    if not (same(result, dropped) or same(result, kept) or (not dropped and same(result, [1]))):
        raise ReduceShapeMismatch(
            f"{what} of {src.buffer.name} along dim {dim}: {dst.buffer.name} has the wrong shape",
            found=f"{src.buffer.name} {_show(extents)}, {dst.buffer.name} {_show(result)}",
            expected=f"{dst.buffer.name} of shape {_show(dropped)} or {_show(kept)}",
            repair=f"allocate {dst.buffer.name} with shape {_show(dropped)}, or reduce another dim",
        )
    from tilelang.ops.reduce import Reduce

    lhs, rhs, combined, identity = extra or (None, None, None, None)
    along = open_dims[dim] - len(src.ranges)  # from the end: a pipeline gives tiles a dimension in front
    op = Reduce(src.node(), dst.node(), lhs, rhs, combined, identity, kind, along, bool(clear), bool(nan_propagate))
    builder.emit(op.to_stmt(builder.span()))


def _region_of(what: str, x: Any, role: str) -> Region:
    found = place(what, x, role)
    if isinstance(found, Element):
        if found.buffer.ndim == 1:
            return Region(found.buffer, [(found.indices[0], 1, 1, False)])
        raise InvalidArgument(
            f"{what}: {role} is one element", found=f"{found!r}", expected="a buffer or region", repair="use slices"
        )
    if found.stepped:
        raise InvalidArgument(f"{what}: {role} has a step", found=f"{found!r}", repair="copy it first")
    return found


def _named_reduce(kind: str, doc: str) -> Callable[..., None]:
    def function(
        buffer: Any,
        out: Any,
        dim: int = -1,
        clear: bool = True,
        nan_propagate: bool = False,
        batch: int = 1,
        *,
        axis: int | None = None,
    ) -> None:
        _reduce(kind, buffer, out, dim if axis is None else axis, clear, nan_propagate)

    function.__name__ = function.__qualname__ = f"reduce_{kind}"
    function.__doc__ = (
        f"`T.reduce_{kind}(tile, out, dim=-1, clear=True)`: {doc}\n\n"
        "    `out` has the input's shape without `dim`, or with 1 there. `clear=False` combines with what `out` holds,\n"
        "    exactly once. NaN is skipped by max and min unless `nan_propagate`. Raises ReduceShapeMismatch.\n    "
    )
    return function


reduce_sum = _named_reduce("sum", "sums along one dimension.")
reduce_max = _named_reduce("max", "largest elements along one dimension.")
reduce_min = _named_reduce("min", "smallest elements along one dimension.")
reduce_prod = _named_reduce("prod", "products along one dimension.")
reduce_product = reduce_prod
reduce_abssum = _named_reduce("abssum", "sums of absolute values along one dimension.")
reduce_absmax = _named_reduce("absmax", "largest absolute values along one dimension.")
reduce_bitand = _named_reduce("bitand", "bitwise and along one dimension (integers).")
reduce_bitor = _named_reduce("bitor", "bitwise or along one dimension (integers).")
reduce_bitxor = _named_reduce("bitxor", "bitwise exclusive or along one dimension (integers).")

_REDUCE_NAMES = {
    "sum": "sum",
    "add": "sum",
    "max": "max",
    "min": "min",
    "prod": "prod",
    "product": "prod",
    "mul": "prod",
    "abssum": "abssum",
    "absmax": "absmax",
    "bitand": "bitand",
    "bitor": "bitor",
    "bitxor": "bitxor",
}


def reduce(
    buffer: Any,
    out: Any,
    reduce_type: Any = "sum",
    dim: int = -1,
    clear: bool = True,
    nan_propagate: bool = False,
    *,
    identity: Any = None,
    axis: int | None = None,
) -> None:
    """`T.reduce(tile, out, "sum", dim)`: by name (sum, max, min, product, abssum, absmax, bit*), or by a function.

    A custom reduction is a function of two scalars, `lambda a, b: ...`, associative and commutative, with its
    `identity`; it computes in out's type.
    """
    dim = dim if axis is None else axis
    if callable(reduce_type) and not isinstance(reduce_type, str):
        if identity is None:
            raise InvalidArgument(
                "T.reduce with a function needs its identity",
                expected="identity=, the value x with f(x, y) = y",
                repair="T.reduce(tile, out, lambda a, b: a * b, dim, identity=1)",
            )
        from tvm import tirx

        dtype = _region_of("T.reduce", out, "the result").dtype
        lhs, rhs = (tirx.Var(n, str(dtype.storage)) for n in ("lhs", "rhs"))
        combined = convert(as_value(reduce_type(Value(lhs, dtype), Value(rhs, dtype)), dtype), dtype).node
        start = constant(identity, dtype) if is_literal(identity) else convert(as_value(identity), dtype).node
        _reduce("custom", buffer, out, dim, clear, nan_propagate, (lhs, rhs, combined, start))
        return
    from tilelang.ops.reduce import ADDED

    if reduce_type in ADDED:
        _reduce(reduce_type, buffer, out, dim, clear, nan_propagate)
        return
    if reduce_type not in _REDUCE_NAMES:
        raise InvalidArgument(
            "T.reduce got an unknown kind",
            found=f"{reduce_type!r}",
            expected=f"one of {', '.join(sorted(_REDUCE_NAMES))}, or a function with identity=",
            repair='T.reduce(tile, out, "sum", dim=1)',
        )
    _reduce(_REDUCE_NAMES[reduce_type], buffer, out, dim, clear, nan_propagate)


def _scan(kind: str, src: Any, dst: Any, dim: int, reverse: bool) -> None:
    what = f"T.cum{kind}"
    builder = tile_operator(what)
    a = _region_of(what, src, "the input")
    b = a if dst is None else _region_of(what, dst, "the result")
    rank = len(a.extents)
    if not isinstance(dim, int) or not -rank <= dim < rank:
        raise InvalidArgument(
            f"{what}: dim is out of range",
            found=f"dim={dim}",
            expected=f"{-rank} to {rank - 1}",
            repair="dim=-1 is the last dimension",
        )
    if len(b.extents) != rank or not all(provably_equal(x, y) for x, y in zip(a.extents, b.extents)):
        raise ReduceShapeMismatch(
            f"{what} of {a.buffer.name}: {b.buffer.name} has another shape",
            found=f"{_show(a.extents)} and {_show(b.extents)}",
            expected="equal shapes",
            repair=f"allocate {b.buffer.name} with shape {_show(a.extents)}",
        )
    from tilelang.ops.scan import Scan

    along = dim % rank - rank  # from the end, as in a reduction
    builder.emit(Scan(a.node(), b.node(), kind, along, bool(reverse)).to_stmt(builder.span()))


def cumsum(src: Any, dst: Any = None, dim: int = 0, reverse: bool = False) -> None:
    """`T.cumsum(src, dst=None, dim=0, reverse=False)`: inclusive sums along a dimension; in place without `dst`."""
    _scan("sum", src, dst, dim, reverse)


def cumprod(src: Any, dst: Any = None, dim: int = 0, reverse: bool = False) -> None:
    """Inclusive products along a dimension."""
    _scan("prod", src, dst, dim, reverse)


def cummax(src: Any, dst: Any = None, dim: int = 0, reverse: bool = False) -> None:
    """Running maxima along a dimension."""
    _scan("max", src, dst, dim, reverse)


def cummin(src: Any, dst: Any = None, dim: int = 0, reverse: bool = False) -> None:
    """Running minima along a dimension."""
    _scan("min", src, dst, dim, reverse)
