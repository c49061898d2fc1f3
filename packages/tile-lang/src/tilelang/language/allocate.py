"""Memory of every scope: `T.alloc_shared`, `T.alloc_fragment`, `T.alloc_local`, `T.alloc_var`, `T.alloc_global`, views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilelang.errors import InvalidArgument, MissingDtype, ViewMismatch
from tilelang.frontend.annotations import known_dtype
from tilelang.frontend.buffers import Buffer, Region, ScalarVar, provably_equal, store
from tilelang.frontend.builder import require, require_kernel
from tilelang.frontend.literals import is_literal
from tilelang.frontend.values import Value, as_value, index_node
from tilelang.ir.dtypes import DType, dtype_of


def _is_dtype(x: Any) -> bool:
    if isinstance(x, (int, Value, list, tuple)) and not isinstance(x, bool):
        return False
    try:
        dtype_of(x)
    except (ValueError, TypeError):
        return False
    return True


def _shape_and_dtype(what: str, args: tuple[Any, ...], dtype: Any) -> tuple[tuple[Any, ...], DType]:
    """Accepts (shape, dtype), (d0, d1, ..., dtype) and dtype=; an allocation without a type is an error."""
    items = list(args)
    if dtype is None and items and (isinstance(items[-1], str) or _is_dtype(items[-1])):
        dtype = items.pop()
    if len(items) == 1 and isinstance(items[0], Sequence) and not isinstance(items[0], str):
        items = list(items[0])
    if dtype is None:
        shape = ", ".join(str(i) for i in items)
        raise MissingDtype(
            f"{what} names no element type",
            found=f"{what}({shape})",
            expected="a shape and a dtype",
            repair=f'{what}(({shape}), "float16")',
        )
    for size in items:
        if not (is_literal(size) or isinstance(size, Value) or hasattr(size, "ty")) or isinstance(size, (bool, float)):
            raise InvalidArgument(
                f"{what} got a size that is no integer",
                found=f"{size!r}",
                expected="integers",
                repair="use // for divisions",
            )
        if is_literal(size) and int(size) < 0:
            raise InvalidArgument(
                f"{what} got a negative size",
                found=f"{size}",
                expected="0 or more",
                repair="mend the size that the shape is computed from",
            )
    return tuple(int(s) if is_literal(s) else s for s in items), known_dtype(dtype, what)


def allocate(what: str, shape: tuple[Any, ...], dtype: DType, scope: str) -> Buffer:
    """Emit an allocation here and give its Buffer, named after the assignment's target."""
    from tvm import tirx

    builder = require(what) if scope == "global" else require_kernel(what)
    if scope != "global":
        for size in shape:
            if not isinstance(size, int):
                raise InvalidArgument(
                    f"{what} has a size that is known only when the kernel runs",
                    found=f"{size!r}",
                    expected="integers known at compile time",
                    repair="allocate one tile of a fixed size and loop over tiles",
                )
    storage = dtype.storage
    if builder.in_parallel and scope not in ("local", "local.var"):
        raise InvalidArgument(
            f"{what} stands inside T.Parallel",
            expected="memory of the block allocated outside of the loop",
            repair="move it before the loop, or use T.alloc_local for memory of one iteration",
        )
    node = tirx.decl_buffer(
        [index_node(s) for s in shape],
        str(storage),
        name=builder.name(scope.split(".")[-1]),
        scope=scope,
        data_alignment=max(16, storage.itemsize),
        layout=None,
    )
    builder.emit(tirx.AllocBuffer(node, span=builder.span()))
    made = Buffer(node, dtype, shape)
    made.private_depth = sum(f.kind == "parallel" for f in builder.loops)
    return made


def alloc_shared(*shape: Any, dtype: Any = None, scope: str = "shared.dyn", layout: Any = None) -> Buffer:
    """A tile in memory that the whole block shares. `T.alloc_shared((M, K), "float16")`, or sizes as varargs.

    `scope` is "shared.dyn" or "shared"; `layout` names a swizzle ("swizzle_128b", "_64b", "_32b") or is a Layout.
    """
    sizes, kind = _shape_and_dtype("T.alloc_shared", _without_scope(shape), dtype)
    if scope not in ("shared", "shared.dyn"):
        raise InvalidArgument(
            "T.alloc_shared got an unknown scope",
            found=f"{scope!r}",
            expected='"shared" or "shared.dyn"',
            repair="drop it",
        )
    made = allocate("T.alloc_shared", sizes, kind, scope)
    if layout is not None:
        from tilelang.language.hints import annotate_layout

        if isinstance(layout, str):
            from tilelang.layout import swizzle_by_name

            try:
                layout = swizzle_by_name(layout, made.shape, made.dtype)
            except ValueError as error:
                raise InvalidArgument(
                    f"T.alloc_shared: {made.name} cannot have this layout",
                    found=str(error),
                    expected='"swizzle_128b", "swizzle_64b" or "swizzle_32b" with rows that are whole swizzle spans',
                    repair="leave layout= out, or T.annotate_layout({tile: T.make_swizzled_layout(tile)})",
                ) from None
        annotate_layout({made: layout})
    return made


def _without_scope(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Drop a positional scope after the dtype: T.alloc_shared(shape, dtype, "shared")."""
    scopes = ("shared", "shared.dyn", "local.fragment", "local", "local.var", "global")
    return args[:-1] if args and isinstance(args[-1], str) and args[-1] in scopes else args


def alloc_fragment(*shape: Any, dtype: Any = None, scope: str = "local.fragment") -> Buffer:
    """A tile in the registers of the block; how it is spread over the threads is inferred."""
    sizes, kind = _shape_and_dtype("T.alloc_fragment", _without_scope(shape), dtype)
    return allocate("T.alloc_fragment", sizes, kind, "local.fragment")


def alloc_fragments(*shape: Any, dtype: Any = None) -> Buffer:
    """Same as `alloc_fragment` (the paper's spelling)."""
    return alloc_fragment(*shape, dtype=dtype)


def alloc_local(*shape: Any, dtype: Any = None, scope: str = "local") -> Buffer:
    """An array of one thread (of one iteration inside T.Parallel)."""
    sizes, kind = _shape_and_dtype("T.alloc_local", _without_scope(shape), dtype)
    return allocate("T.alloc_local", sizes, kind, "local")


def alloc_var(dtype: Any = None, *args: Any, init: Any = None, scope: str = "local.var") -> ScalarVar:
    """A mutable scalar of one thread: `x = T.alloc_var("int32", init=0)`, then `x = x + 1` stores."""
    if dtype is None:
        raise MissingDtype(
            "T.alloc_var names no element type", expected="a dtype", repair='T.alloc_var("int32", init=0)'
        )
    if args and init is None and not isinstance(args[0], str):
        init = args[0]
    builder = require_kernel("T.alloc_var")
    if not builder.names:
        builder.names = ["var"]
    made = allocate("T.alloc_var", (1,), known_dtype(dtype, "T.alloc_var"), "local.var")
    if init is not None:
        store(made, 0, init)
    return ScalarVar(made)


def alloc_global(*shape: Any, dtype: Any = None) -> Buffer:
    """Scratch in global memory, between the kernels of one function; sizes may be dynamic."""
    builder = require("T.alloc_global")
    sizes, kind = _shape_and_dtype("T.alloc_global", shape, dtype)
    if builder.kernel is not None:
        raise InvalidArgument(
            "T.alloc_global stands inside T.Kernel",
            expected="scratch of the whole function",
            repair="move it before `with T.Kernel`",
        )
    return allocate("T.alloc_global", sizes, kind, "global")


def alloc_buffer(*shape: Any, dtype: Any = None, scope: str = "shared.dyn", **_: Any) -> Buffer:
    """Memory of a scope given by name, as TVM writes it."""
    sizes, kind = _shape_and_dtype("T.alloc_buffer", _without_scope(shape), dtype or (None if shape[1:] else "float32"))
    return allocate("T.alloc_buffer", sizes, kind, scope)


def empty(*shape: Any, dtype: Any = None) -> Buffer:
    """Eager style: an output tensor, allocated by the call and returned when `return` names it."""
    builder = require("T.empty")
    if builder.eager is None:
        raise InvalidArgument(
            "T.empty stands in a function that is not of the eager style",
            expected="@tilelang.jit on a function whose body is the kernel",
            repair="make the output a parameter and name it in out_idx",
        )
    builder.eager.shapes_are_complete()
    sizes, kind = _shape_and_dtype("T.empty", shape, dtype)
    wanted = builder.names.pop(0) if builder.names else "out"
    return builder.eager.output(wanted, sizes, kind)


def _count(shape: Sequence[Any]) -> Any:
    total: Any = 1
    for size in shape:
        total = total * size
    return total


def view(buffer: Any, shape: Any = None, dtype: Any = None) -> Buffer:
    """The same storage with another shape and element type (as many bytes in all)."""
    builder = require_kernel("T.view")
    if isinstance(buffer, Region):
        raise ViewMismatch(
            "T.view of a region",
            found=f"{buffer!r}",
            expected="a whole buffer",
            repair="take the view first and index it afterwards",
        )
    kind = buffer.dtype if dtype is None else dtype_of(dtype)
    sizes = buffer.shape if shape is None else tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)
    have = _count(buffer.shape) * (buffer.dtype.bits * buffer.dtype.lanes)
    want = _count(sizes) * (kind.bits * kind.lanes)
    if not provably_equal(have, want):
        raise ViewMismatch(
            f"a view of {buffer.name} asks for another number of bytes",
            found=f"shape {tuple(sizes)} of {kind}",
            expected=f"as many bits as {buffer.name} has: shape {buffer.shape} of {buffer.dtype}",
            repair="make the products of shape and width equal",
        )
    from tvm import tirx

    node = tirx.decl_buffer(
        [index_node(s) for s in sizes],
        str(kind.storage),
        name=builder.name(f"{buffer.name}_view"),
        scope=buffer.scope,
        data_alignment=max(1, kind.storage.itemsize),
        layout=None,
    )
    builder.emit(tirx.DeclBuffer(node, data=tirx.buffer_data(buffer.node), span=builder.span()))
    made = Buffer(node, kind, sizes)
    made.private_depth = buffer.private_depth
    return made


def reshape(buffer: Any, *shape: Any) -> Buffer:
    """The same storage with another shape (as many elements)."""
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else shape
    return view(buffer, tuple(sizes))


def access_ptr(place: Any, mode: Any = "r", *_: Any, **__: Any) -> Value:
    """The address of an element (or of a buffer's first), for T.call_extern; `mode` is "r", "w" or "rw"."""
    return address_of(place)


def address_of(place: Any) -> Value:
    """The address of an element `A[i, j]`, or of a buffer's first element."""
    from tvm import tirx

    from tilelang.frontend.buffers import Element

    if isinstance(place, Buffer):
        place = place[tuple(0 for _ in place.shape)]
    elif isinstance(place, Region):
        place = place.buffer[tuple(r[0] for r in place.ranges)]
    if not isinstance(place, (Element, ScalarVar)):
        raise InvalidArgument(
            "the address of something that is not in memory",
            found=f"{place!r}",
            expected="an element such as A[i, j], or a buffer",
            repair="store the value into a T.alloc_local first",
        )
    return Value(tirx.address_of(place.node), DType("uint64"))


def evaluate(x: Any) -> None:
    """Evaluate an expression for its effect."""
    from tvm import tirx

    builder = require_kernel("T.evaluate")
    builder.emit(tirx.Evaluate(as_value(x).node, span=builder.span()))
