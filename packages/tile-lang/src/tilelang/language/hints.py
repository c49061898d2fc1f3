"""Scheduling hints and declarations: accepted on every target, ignored where a target has no use for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tilelang.errors import DtypeError, InvalidArgument, RuntimeValueNeeded
from tilelang.frontend.buffers import Buffer, Element, Region, ScalarVar
from tilelang.frontend.builder import require_kernel
from tilelang.frontend.values import Value, as_value, convert
from tilelang.ir.dtypes import DType, dtype_of
from tilelang.ops.debug import DeviceAssert, Print
from tilelang.ops.hints import AnnotateLayout, Hint, ImportSource, SafeValue
from tilelang.ops.sync import SyncThreads


def use_swizzle(panel_size: int = 10, order: str = "row", enable: bool = True) -> None:
    """`T.use_swizzle(panel_size=10, order="row")`: the order in which blocks run, for L2 reuse; changes no result.

    `order` is "row" or "column" ("col").
    """
    builder = require_kernel("T.use_swizzle")
    names = {"row": "row", "col": "column", "column": "column", "mlx": "mlx"}
    if order not in names:
        raise InvalidArgument(
            "T.use_swizzle: unknown order", found=f"{order!r}", expected='"row" or "column"', repair='order="row"'
        )
    if not isinstance(panel_size, int) or panel_size < 1:
        raise InvalidArgument(
            "T.use_swizzle: impossible panel size",
            found=f"{panel_size!r}",
            expected="1 or more",
            repair="panel_size=10",
        )
    settings = json.dumps({"panel_size": panel_size, "order": names[order], "enable": bool(enable)})
    builder.emit(Hint("use_swizzle", settings).to_stmt(builder.span()))


def annotate_layout(layouts: Mapping[Any, Any], **_: Any) -> None:
    """`T.annotate_layout({A_shared: layout})`: the layout of a buffer, a Layout, a Fragment or a function of indices.

    A fragment needs a Fragment; a shared layout must be one-to-one (padding is allowed).
    """
    from tilelang.layout import Fragment, Layout

    builder = require_kernel("T.annotate_layout")
    for buffer, layout in layouts.items():
        if not isinstance(buffer, Buffer):
            raise RuntimeValueNeeded(
                "T.annotate_layout of something that is no buffer",
                found=f"{buffer!r}",
                expected="a buffer as key",
                repair="use the buffer itself as the key, not its name",
            )
        if callable(layout) and not isinstance(layout, (Layout, Fragment)):
            layout = Layout(buffer.shape, layout)
        if not isinstance(layout, (Layout, Fragment)):
            raise InvalidArgument(
                f"T.annotate_layout of {buffer.name}: this is no layout",
                found=f"{layout!r}",
                expected="a Layout, a Fragment, or a function from indices to indices",
                repair="T.make_swizzled_layout(buffer)",
            )
        if (buffer.scope == "local.fragment") != isinstance(layout, Fragment):
            raise InvalidArgument(
                f"T.annotate_layout of {buffer.name}: the wrong kind of layout",
                found=f"{type(layout).__name__} for memory of scope {buffer.scope}",
                expected="a Fragment for fragments, a Layout for everything else",
                repair="T.Fragment(shape, forward_fn=lambda i, j: (thread, register))",
            )
        if isinstance(layout, Layout) and buffer.scope.startswith("shared") and not layout.is_injective():
            raise InvalidArgument(
                f"T.annotate_layout of {buffer.name}: two elements share one place",
                found=f"{layout!r}",
                expected="a one-to-one map",
                repair="let the index function keep all of its indices",
            )
        text = json.dumps(layout.to_json())
        builder.emit(AnnotateLayout(buffer.region().node(), text).to_stmt(builder.span()))


def annotate_safe_value(values: Mapping[Any, Any]) -> None:
    """`T.annotate_safe_value({A: v})`: what reads outside of A give instead of 0, from here on in this kernel."""
    builder = require_kernel("T.annotate_safe_value")
    for buffer, value in values.items():
        node = convert(as_value(value, buffer.dtype), buffer.dtype).node
        builder.emit(SafeValue(buffer.region().node(), node).to_stmt(builder.span()))


def kernel_hint(name: str, doc: str) -> Callable[..., None]:
    def function(*args: Any, **settings: Any) -> None:
        builder = require_kernel(f"T.{name}")
        text = json.dumps({"args": [repr(a) for a in args], **{k: repr(v) for k, v in settings.items()}})
        builder.emit(Hint(name, text).to_stmt(builder.span()))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{doc} A hint: it changes no result."
    return function


annotate_l2_hit_ratio = kernel_hint("annotate_l2_hit_ratio", "Which buffers to keep in L2, and how much of them.")
annotate_min_blocks_per_sm = kernel_hint("annotate_min_blocks_per_sm", "How many blocks should fit one multiprocessor.")


def assume(condition: Any) -> None:
    """`T.assume(m % 8 == 0)`: a promise to the compiler about run-time values; nothing checks it on a device.

    What it says of dimensions at the top of a kernel holds in the whole kernel; elsewhere it holds after it.
    """
    builder = require_kernel("T.assume")
    if isinstance(condition, bool) and not condition:
        raise InvalidArgument(
            "T.assume of something false",
            found="False",
            expected="a condition that holds",
            repair="drop it, or mend the sizes it speaks of",
        )
    if not isinstance(condition, bool) and not builder.in_parallel:
        from tvm import ir, tirx

        node = convert(as_value(condition), DType("bool")).node
        promise = ir.Call(ir.Op.get("tirx.assume"), [node], ret_ty="bool", span=builder.span())
        builder.emit(tirx.Evaluate(promise, span=builder.span()))


# -- synchronisation ------------------------------------------------------------------------------------------


def sync_threads(barrier_id: int | None = None, arrive_count: int | None = None) -> None:
    """`T.sync_threads()`: all threads of the block meet here; needed only in code that names threads itself."""
    builder = require_kernel("T.sync_threads")
    if builder.in_parallel:
        raise InvalidArgument(
            "T.sync_threads stands inside T.Parallel", expected="a barrier between loops", repair="end the loop first"
        )
    builder.emit(SyncThreads(int(barrier_id or 0), arrive_count).to_stmt(builder.span()))


# -- debugging ------------------------------------------------------------------------------------------------


def print(obj: Any, msg: str = "", warp_group_id: int = 0, warp_id: int = 0) -> None:
    """`T.print(buffer)`, `T.print(x, msg="...")`: print a tile, an element or a scalar from inside the kernel."""
    builder = require_kernel("T.print")
    if isinstance(obj, ScalarVar):
        obj = Value(obj.node, obj.dtype)
    name = msg
    if isinstance(obj, (Buffer, Region)):
        if builder.in_parallel:
            raise InvalidArgument("T.print of a tile inside T.Parallel", expected="an element", repair="index it")
        node = obj.region().node() if isinstance(obj, Buffer) else obj.node()
        name = msg or (obj.name if isinstance(obj, Buffer) else repr(obj))
    else:
        node = as_value(obj).node
        name = msg or (repr(obj) if isinstance(obj, Element) else "")
    builder.emit(Print(node, name).to_stmt(builder.span()))


def device_assert(condition: Any, msg: str = "") -> None:
    """`T.device_assert(cond, "text")`: stop the launch when the condition is false in any thread or iteration."""
    builder = require_kernel("T.device_assert")
    if isinstance(condition, bool):
        condition = as_value(condition, DType("bool"))
    node = convert(as_value(condition), DType("bool")).node
    text = msg or "T.device_assert failed"
    builder.emit(DeviceAssert(node, text).to_stmt(builder.span()))


# -- other languages ------------------------------------------------------------------------------------------


def _register(meanings: Mapping[str, Callable[..., Any]]) -> None:
    from tilelang.interpreter.extern import externs

    externs.update(meanings)


def import_source(source: str | None, meaning: Mapping[str, Callable[..., Any]] | None = None) -> None:
    """`T.import_source(text)`: C, CUDA or HIP text above the kernel; call its functions with T.call_extern.

    `meaning` maps function names to Python functions, by which the interpreter runs them.
    """
    builder = require_kernel("T.import_source")
    if meaning:
        _register(meaning)
    if source is not None:
        builder.emit(ImportSource(str(source)).to_stmt(builder.span()))


def _argument(x: Any) -> Any:
    from tvm import ir

    from tilelang.language.allocate import address_of

    if isinstance(x, str):
        return ir.StringImm(x)
    if isinstance(x, (Buffer, Region)):
        return address_of(x).node
    return as_value(x).node


def call_extern(*args: Any, meaning: Callable[..., Any] | None = None) -> Value:
    """`T.call_extern(dtype, name, *args)` or `T.call_extern(name, dtype, *args)`: call a function of T.import_source.

    Buffers and regions are passed as addresses. The result is a value of `dtype` ("handle" or "void": none); as a
    statement of its own, the call is emitted here.
    """
    builder = require_kernel("T.call_extern")
    texts = [a for a in args[:2] if isinstance(a, str)]
    if not texts:
        raise InvalidArgument(
            "T.call_extern names no function",
            expected='T.call_extern("float32", "name", ...)',
            repair="give the function's name as text",
        )
    first_is_type = _is_type(args[0])
    if first_is_type and len(args) > 1 and isinstance(args[1], str):
        dtype, name, rest = str(args[0]), args[1], args[2:]
    elif len(args) > 1 and _is_type(args[1]):
        dtype, name, rest = str(args[1]), args[0], args[2:]
    else:
        dtype, name, rest = "void", args[0], args[1:]
    if meaning is not None:
        _register({name: meaning})
    from tvm import tirx

    kind = "int32" if dtype in ("void", "handle") else str(dtype_of(dtype).storage)
    node = tirx.call_extern(kind, name, *[_argument(a) for a in rest])
    if dtype in ("void", "handle"):
        builder.emit(tirx.Evaluate(node, span=builder.span()))
        return as_value(0)
    variable = tirx.Var(builder.name("result"), kind)
    builder.emit(tirx.Bind(variable, node, span=builder.span()))
    return Value(variable, dtype_of(dtype))


PTX = "ptx:"  # how the IR names an instruction given by its opcode: call_extern("ptx:<opcode>", ...)


def ptx(opcode: str, *operands: Any, dtype: Any = None, meaning: Callable[..., Any] | None = None) -> Any:
    """`T.ptx("dp4a.s32.s32", a, b, c, dtype="int32", meaning=f)`: one PTX instruction, executed by each thread.

    Buffers and regions are passed as addresses. With `dtype` the instruction gives a value. `meaning` is a Python
    function of the operands, by which `execution="interpret"` runs it; targets other than CUDA refuse the kernel.
    """
    if not isinstance(opcode, str) or not opcode.strip():
        raise InvalidArgument(
            "T.ptx names no instruction",
            found=f"{opcode!r}",
            expected='an opcode such as "dp4a.s32.s32"',
            repair="T.ptx('dp4a.s32.s32', ...)",
        )
    name = PTX + opcode.strip().rstrip(";")
    if dtype is None:
        return call_extern("void", name, *operands, meaning=meaning)
    return call_extern(dtype_of(dtype), name, *operands, meaning=meaning)


def _is_type(x: Any) -> bool:
    if isinstance(x, DType) or x in ("void", "handle"):
        return True
    if not isinstance(x, str):
        return False
    try:
        dtype_of(x)
    except (ValueError, DtypeError):
        return False
    return True
