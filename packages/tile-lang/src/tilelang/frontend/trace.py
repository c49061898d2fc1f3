"""From a Python function to a `tirx.PrimFunc`: parameters from its annotations, body by running its rewritten text."""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tilelang.errors import BadAnnotation, InvalidArgument, NoKernel, OutputError, TileLangError, UndefinedName
from tilelang.frontend import runtime
from tilelang.frontend.annotations import TensorSpec
from tilelang.frontend.buffers import Buffer
from tilelang.frontend.builder import Builder, active, tracing
from tilelang.frontend.rewrite import instrument, syntax_of
from tilelang.frontend.values import Dynamic, Value, index_node
from tilelang.ir.dtypes import DType, dtype_of
from tilelang.location import Location


class Signature:
    """The parameters of one traced function, in the user's order, and the dimensions their shapes mention."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.nodes: list[Any] = []
        self.described: list[dict[str, str]] = []

    def tensor(self, name: str, spec: TensorSpec) -> Buffer:
        from tvm import tirx

        shape = [index_node(_dimension(name, e)) for e in spec.shape]
        strides = None if spec.strides is None else [index_node(_dimension(name, e)) for e in spec.strides]
        storage = spec.dtype.storage
        node = tirx.decl_buffer(
            shape,
            str(storage),
            name=self.builder.unique(name),
            strides=strides,
            data_alignment=storage.itemsize,
            scope="global",
            layout=None,
        )
        self.nodes.append(node)
        self.described.append({"name": name, "dtype": str(spec.dtype)})
        return Buffer(node, spec.dtype, spec.shape, parameter=True)

    def scalar(self, name: str, dtype: DType) -> Value:
        from tvm import tirx

        node = tirx.Var(self.builder.unique(name), str(dtype.storage))
        self.nodes.append(node)
        self.described.append({"name": name, "dtype": str(dtype)})
        return Value(node, dtype)

    def all_nodes(self) -> list[Any]:
        """Parameters, then the dynamic dimensions that shapes and strides mention and no parameter is."""
        from tvm import ir

        from tilelang.ir import tile_ir

        result = list(self.nodes)
        for node in self.nodes:
            if tile_ir.is_buffer(node):
                for extent in [*node.ty.shape, *node.ty.strides]:
                    for part in tile_ir.walk(extent):
                        if isinstance(part, ir.Var) and not any(part.same_as(x) for x in result):
                            result.append(part)
        return result


def _dimension(name: str, extent: Any) -> Any:
    if isinstance(extent, bool) or not (
        isinstance(extent, (int, Value)) or hasattr(extent, "ty") or _is_integer(extent)
    ):
        raise BadAnnotation(
            f"the shape of {name} holds something that is no size",
            found=f"{extent!r}",
            expected="integers, T.dynamic(...) dimensions, or expressions of them",
            repair="write the shape as a tuple, for example T.Tensor((M, K), 'float16')",
        )
    if _is_integer(extent) and int(extent) < 0:
        raise BadAnnotation(
            f"the shape of {name} has a negative size",
            found=f"{extent!r}",
            expected="0 or more",
            repair="mend the size that the shape is computed from",
        )
    return int(extent) if _is_integer(extent) else extent


def _is_integer(x: Any) -> bool:
    import numbers

    return isinstance(x, numbers.Integral)


def annotations_of(function: Callable[..., Any], frame_locals: dict[str, Any] | None = None) -> dict[str, Any]:
    """Annotations as objects; text ones (from __future__ import annotations) are evaluated where they stand."""
    scope = dict(frame_locals or {})
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        with contextlib.suppress(ValueError):  # empty: assigned later than the kernel is traced
            scope[name] = cell.cell_contents
    result = {}
    for name, value in getattr(function, "__annotations__", {}).items():
        if isinstance(value, str) and not _names_dtype(value):
            try:
                value = eval(value, function.__globals__, scope)
            except Exception as error:
                raise BadAnnotation(
                    f"the annotation of {name} in {function.__name__} cannot be evaluated",
                    found=f"{value!r}: {error}",
                    expected="names that are visible where the function is defined",
                    repair="drop `from __future__ import annotations`, or use names of the enclosing function",
                    at=Location(function.__code__.co_filename, parameter_lines(function.__code__)[name]),
                ) from None
        result[name] = value
    return result


def _names_dtype(text: str) -> bool:
    try:
        dtype_of(text)
    except ValueError:
        return False
    return True


def parameter_kind(annotation: Any) -> Any:
    """A TensorSpec, a DType (scalar parameter), or None when the annotation says neither."""
    if isinstance(annotation, TensorSpec):
        return annotation
    if isinstance(annotation, (DType, str)) or annotation in (int, float, bool):
        try:
            return dtype_of(annotation)
        except ValueError:
            return None
    return None


def is_run_time_scalar(annotation: Any) -> bool:
    """Eager style: `x: T.float32` is a number of each call; `block: int = 64`, a Python type, is a compile-time value."""
    return annotation not in (int, float, bool) and isinstance(parameter_kind(annotation), DType)


def prim_func(function: Callable[..., Any] | None = None, **_: Any) -> Any:
    """`@T.prim_func`: trace the function now and return its `tirx.PrimFunc`.

    Every parameter is annotated with `T.Tensor(shape, dtype)`, `T.StridedTensor(...)` or a scalar dtype. Sizes may
    be `T.dynamic` dimensions, which are bound from the arguments of a call.
    """
    if function is None:
        return prim_func
    scope = sys._getframe(1).f_locals
    return trace(function, scope)


def trace(function: Callable[..., Any], scope: dict[str, Any] | None = None) -> Any:
    """The PrimFunc of a function whose parameters are all annotated; raises the errors of tilelang/errors.py."""
    code = inspect.unwrap(function).__code__
    builder = Builder(code.co_filename, code.co_firstlineno)
    builder.taken = {}
    with tracing(builder):
        lines = parameter_lines(code)
        notes = annotations_of(function, scope)
        signature = Signature(builder)
        arguments: list[Any] = []
        for name in inspect.signature(function).parameters:
            builder.line = lines[name]
            kind = parameter_kind(notes.get(name))
            if isinstance(kind, TensorSpec):
                arguments.append(signature.tensor(name, kind))
            elif isinstance(kind, DType):
                arguments.append(signature.scalar(name, kind))
            else:
                raise BadAnnotation(
                    f"parameter {name} of {function.__name__} does not say what it is",
                    found="no annotation" if name not in notes else f"{notes[name]!r}",
                    expected="T.Tensor(shape, dtype) or a scalar type such as T.int32",
                    repair=f"write `{name}: T.Tensor((M, N), 'float16')`, or use the eager style (@tilelang.jit alone), "
                    "where shapes come from the first call",
                )
        builder.parameters = list(arguments)
        result = run(builder, function, arguments, {})
        if result is not None or builder.outputs:
            raise OutputError(
                f"{function.__name__} is a T.prim_func and returns a value",
                expected="outputs among the parameters, named by out_idx",
                repair="drop T.prim_func and return what T.empty gave (the eager style), or drop the return",
            )
        return finish(builder, signature, function, outputs=())


def parameter_lines(code: Any) -> dict[str, int]:
    """The line of each parameter."""
    a = syntax_of(code).args
    return {x.arg: x.lineno for x in (*a.posonlyargs, *a.args, a.vararg, *a.kwonlyargs, a.kwarg) if x is not None}


def definition(function: Callable[..., Any]) -> Location:
    """The line of `def`, below the decorators."""
    code = inspect.unwrap(function).__code__
    return Location(code.co_filename, syntax_of(code).lineno)


def run(builder: Builder, function: Callable[..., Any], arguments: Sequence[Any], keywords: dict[str, Any]) -> Any:
    """Execute the rewritten function; a NameError becomes an error with the user's line."""
    traced = instrument(function, runtime)
    try:
        return traced(*arguments, **keywords)
    except NameError as error:
        if isinstance(error, TileLangError):
            raise
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        at = None if where is None else Location(where.tb_frame.f_code.co_filename, where.tb_lineno)
        quoted = re.search(r"'(\w+)'", str(error))
        name = getattr(error, "name", None) or (quoted[1] if quoted else str(error))
        if isinstance(error, UnboundLocalError) or "free variable" in str(error):
            raise UndefinedName(
                f"{name} is used before it is assigned",
                found=f"{name} is a name of this function, and no assignment to it has run yet",
                expected="an assignment that always runs first",
                repair=f"assign {name} before this line",
                at=at,
            ) from error
        code = inspect.unwrap(function).__code__
        known = {*code.co_varnames, *code.co_cellvars, *code.co_freevars, *function.__globals__}
        near = difflib.get_close_matches(name, known, 1)
        raise UndefinedName(
            f"{name} is not defined",
            found="no local name, name of an enclosing function, or global of that spelling",
            expected="a name that is assigned or imported before this line",
            repair=f"did you mean {near[0]}?" if near else f"assign or import {name}",
            at=at,
        ) from error


def finish(builder: Builder, signature: Signature, function: Callable[..., Any], outputs: Sequence[int]) -> Any:
    """The PrimFunc of a completed trace."""
    from tvm import ir, tirx

    from tilelang.ir import tile_ir

    code = inspect.unwrap(function).__code__
    where = Location(code.co_filename, code.co_firstlineno)
    if builder.kernel_count == 0:
        raise NoKernel(
            f"{function.__name__} launches nothing",
            found="no `with T.Kernel(...)` in its body",
            expected="at least one",
            repair="`with T.Kernel(T.ceildiv(N, 128), threads=128) as bx:` around the work",
            at=definition(function),
        )
    body = tile_ir.sequence(builder.bodies[0])
    span = ir.Span(ir.SourceName(where.file), where.line, where.line, 0, 0)
    func = tirx.PrimFunc(signature.all_nodes(), body, span=span)
    func = func.with_attr("global_symbol", function.__name__)
    func = func.with_attr("tl.params", json.dumps(signature.described))
    func = func.with_attr("tl.source", json.dumps({"file": where.file, "line": where.line}))
    if outputs:
        func = func.with_attr("tl.outputs", list(outputs))
    return func


class Macro:
    """A function whose body becomes part of the kernel that calls it; it may contain loops, `if` and tile operators."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        builder = active()
        if builder is None:
            return self.function(*args, **kwargs)
        traced = instrument(self.function, runtime)
        line, names, file = builder.line, builder.names, builder.file
        dynamic = len([f for f in builder.loops if f.kind != "static"])
        builder.macro_frames.append((builder.branch_depth, dynamic))
        builder.callers.append(builder.location)
        builder.file = inspect.unwrap(self.function).__code__.co_filename
        try:
            return traced(*args, **kwargs)
        finally:
            builder.macro_frames.pop()
            builder.callers.pop()
            builder.line, builder.names, builder.file = line, names, file

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)


def macro(function: Callable[..., Any] | None = None, **_: Any) -> Any:
    """`@T.macro`: a helper whose control flow on run-time values is traced, inlined at each call."""
    return macro if function is None else Macro(function)


def dynamic(names: str, dtype: Any = "int32") -> Any:
    """`T.dynamic("m")` or `m, n = T.dynamic("m, n")`: sizes bound from the arguments of each call."""
    parts = [n for n in names.replace(",", " ").split() if n]
    kind = dtype_of(dtype)
    if kind not in ("int32", "int64"):
        raise InvalidArgument("a dynamic dimension is int32 or int64", found=str(kind), repair="drop the dtype")
    made = tuple(Dynamic(n, kind) for n in parts)
    return made[0] if len(made) == 1 else made
