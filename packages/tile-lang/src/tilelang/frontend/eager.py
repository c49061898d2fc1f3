"""The eager style: a function whose body is the kernel, specialised by the arguments of its call.

`M, N = T.const("M, N")` are sizes known at compile time, taken from the shapes of the tensors that body annotations
name. The body is run until it asks for a size that no annotation has given yet; then it is run again with what was
learnt, until nothing is missing. So sizes are plain ints wherever the kernel uses them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilelang.errors import BadAnnotation, InvalidArgument, OutputError, UnboundDimension
from tilelang.frontend.annotations import Tensor, TensorSpec, is_bare_tensor
from tilelang.frontend.buffers import Buffer
from tilelang.frontend.builder import Builder, require, tracing
from tilelang.frontend.rewrite import source_of
from tilelang.frontend.trace import (
    Signature,
    annotations_of,
    definition,
    finish,
    is_run_time_scalar,
    parameter_kind,
    parameter_lines,
    run,
)
from tilelang.ir.dtypes import DType


@dataclass(frozen=True)
class TensorArgument:
    """What a call's tensor argument tells the trace: shape, element type, strides in elements (None: row-major)."""

    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...] | None = None


class _SizeNeeded(BaseException):
    """The trace needs a size that is not known yet."""


class _Unknown:
    """A `T.const` size before its annotation was met; any use ends this attempt."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def _stop(self, *_: Any, **__: Any) -> Any:
        raise _SizeNeeded

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = _stop
    __mod__ = __rmod__ = __truediv__ = __rtruediv__ = __neg__ = __index__ = __int__ = __bool__ = _stop
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __call__ = __getitem__ = __iter__ = _stop
    __pow__ = __and__ = __or__ = __float__ = __format__ = _stop
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise _SizeNeeded


@dataclass
class EagerTrace:
    """One attempt to trace an eager function."""

    builder: Builder
    signature: Signature
    given: Mapping[str, Any]  # parameter name -> TensorArgument, or anything else: a compile-time value
    sizes: dict[str, int]  # T.const names whose value is known
    unknown: set[str] = field(default_factory=set)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    outputs: list[Buffer] = field(default_factory=list)
    output_sources: list[int] = field(default_factory=list)

    def const(self, name: str) -> Any:
        if name in self.sizes:
            return self.sizes[name]
        self.unknown.add(name)
        return _Unknown(name)

    def shapes_are_complete(self) -> None:
        if self.unknown:
            raise _SizeNeeded

    def learn(self, name: str, spec: TensorSpec, argument: TensorArgument) -> None:
        """Take the sizes that a tensor's annotation leaves open from the argument."""
        pairs = [(e, s) for e, s in zip(spec.shape, argument.shape)]
        if spec.strides is not None:
            pairs += list(zip(spec.strides, argument.strides or _row_major(argument.shape)))
        for extent, size in pairs:
            if isinstance(extent, _Unknown):
                known = self.sizes.get(extent.name)
                if known is not None and known != size:
                    raise UnboundDimension(
                        f"two arguments disagree on {extent.name}",
                        found=f"{extent.name} = {known} so far, and {size} in {name} with shape {argument.shape}",
                        expected="one value",
                        repair="pass tensors whose shapes fit together",
                    )
                self.sizes[extent.name] = int(size)

    def declare(self, name: str, annotation: Any) -> Any:
        """`name: T.Tensor(...)` in the body: the parameter as a buffer of the kernel."""
        if name not in self.given:
            raise BadAnnotation(
                f"{name} is annotated as a tensor and is no parameter",
                found=f"{name}: {annotation.describe() if isinstance(annotation, TensorSpec) else annotation}",
                expected="a parameter of the function",
                repair=f"add {name} to the parameters, or write {name} = T.empty(shape, dtype) for an output",
            )
        argument = self.given[name]
        if is_bare_tensor(annotation):
            annotation = self._spec_of(name, argument)
        if isinstance(argument, TensorArgument):
            if len(argument.shape) != len(annotation.shape):
                raise InvalidArgument(
                    f"{name} has the wrong number of dimensions",
                    found=f"a tensor of shape {argument.shape}",
                    expected=annotation.describe(),
                    repair="reshape the argument, or mend the annotation",
                )
            self.learn(name, annotation, argument)
        sizes = [*annotation.shape, *(annotation.strides or ())]
        if any(isinstance(s, _Unknown) and s.name not in self.sizes for s in sizes):
            raise _SizeNeeded
        resolve = lambda parts: tuple(self.sizes[s.name] if isinstance(s, _Unknown) else s for s in parts)  # noqa: E731
        strides = None if annotation.strides is None else resolve(annotation.strides)
        spec = TensorSpec(resolve(annotation.shape), annotation.dtype, strides)
        if name in self.buffers:
            return self.buffers[name]
        self.buffers[name] = self.signature.tensor(name, spec)
        return self.buffers[name]

    def _spec_of(self, name: str, argument: Any) -> TensorSpec:
        if not isinstance(argument, TensorArgument):
            raise BadAnnotation(
                f"the shape of {name} is not known",
                found="a bare annotation and no tensor argument",
                expected="a shape and dtype, or a tensor in the call",
                repair=f"annotate {name}: T.Tensor((M, N), 'float16'), or call the function with tensors",
            )
        row_major = argument.strides is None or argument.strides == _row_major(argument.shape)
        return TensorSpec(argument.shape, argument.dtype, None if row_major else argument.strides)

    def output(self, name: str, sizes: tuple[Any, ...], dtype: DType) -> Buffer:
        """`T.empty`: one more parameter, allocated by the call."""
        made = self.signature.tensor(name, TensorSpec(sizes, dtype))
        self.outputs.append(made)
        self.output_sources.append(len(self.signature.nodes) - 1)
        self.builder.outputs.append(made)
        return made


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    return tuple(strides)


def const(names: str) -> Any:
    """`T.const("M, N")` in a kernel under trace."""
    builder = require("T.const")
    parts = [n for n in names.replace(",", " ").split() if n]
    if builder.eager is None:
        raise BadAnnotation(
            "T.const stands in a function that is not of the eager style",
            found=f"T.const({names!r})",
            expected="@tilelang.jit on a function whose body is the kernel",
            repair="make the sizes parameters of the enclosing function",
        )
    made = tuple(builder.eager.const(n) for n in parts)
    return made[0] if len(made) == 1 else made


def trace_eager(function: Callable[..., Any], arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    """The PrimFunc of an eager function for these arguments (TensorArgument or compile-time values)."""
    known = dict(sizes)
    while True:
        builder = Builder(function.__code__.co_filename, function.__code__.co_firstlineno)
        signature = Signature(builder)
        attempt = EagerTrace(builder, signature, arguments, known)
        builder.eager = attempt
        with tracing(builder):
            try:
                return _attempt(builder, signature, attempt, function)
            except _SizeNeeded:
                learnt = dict(attempt.sizes)
                missing = attempt.unknown - set(learnt)
                if not (attempt.unknown & set(learnt)):
                    raise UnboundDimension(
                        f"the size {', '.join(sorted(missing))} of {function.__name__} has no value",
                        found="T.const sizes that no tensor annotation before their first use mentions",
                        expected="each one in the shape of an annotated argument, or as a keyword of compile()",
                        repair="annotate the arguments right after T.const, before the sizes are used",
                    ) from None
                known = learnt


def _attempt(builder: Builder, signature: Signature, attempt: EagerTrace, function: Callable[..., Any]) -> Any:
    source_of(function.__code__)
    notes = annotations_of(function)
    annotated = annotated_in_body(function)
    values: dict[str, Any] = {}
    lines = parameter_lines(inspect.unwrap(function).__code__)
    for name in inspect.signature(function).parameters:
        builder.line = lines[name]
        kind = parameter_kind(notes.get(name))
        if isinstance(kind, TensorSpec) or is_bare_tensor(notes.get(name)):
            values[name] = attempt.declare(name, notes[name])
        elif isinstance(attempt.given.get(name), TensorArgument) and name not in annotated:
            values[name] = attempt.declare(name, Tensor)
        elif is_run_time_scalar(notes.get(name)) or (isinstance(kind, DType) and name not in attempt.given):
            values[name] = signature.scalar(name, kind)
        elif name in attempt.given:
            values[name] = attempt.given[name]
    builder.parameters = list(values.values())
    result = run(builder, function, (), values)
    returned = [] if result is None else list(result) if isinstance(result, (tuple, list)) else [result]
    indices = []
    for item in returned:
        if not any(item is made for made in attempt.outputs):
            raise OutputError(
                f"{function.__name__} returns something that T.empty did not make",
                found=f"{item!r}",
                expected="outputs from T.empty",
                repair="C = T.empty(shape, dtype) before the kernel, and return C",
            )
        indices.append(attempt.output_sources[[item is made for made in attempt.outputs].index(True)])
    if len(indices) != len(attempt.outputs):
        returned_sources = set(indices)
        left = [o.name for o, i in zip(attempt.outputs, attempt.output_sources) if i not in returned_sources]
        raise OutputError(
            f"{function.__name__} makes an output that it does not return: {', '.join(left) or 'one is returned twice'}",
            found=f"{len(attempt.outputs)} from T.empty, {len(indices)} returned",
            expected="every output returned once",
            repair=f"return {', '.join(o.name for o in attempt.outputs)}, or use T.alloc_global for scratch",
            at=definition(function),
        )
    return finish(builder, signature, function, indices)


def annotated_in_body(function: Callable[..., Any]) -> set[str]:
    """Names that the body annotates without a value, `A: T.Tensor[...]`."""
    import ast

    from tilelang.frontend.rewrite import syntax_of

    tree = syntax_of(inspect.unwrap(function).__code__)
    return {
        n.target.id
        for n in ast.walk(tree)
        if isinstance(n, ast.AnnAssign) and n.value is None and isinstance(n.target, ast.Name)
    }
