"""The complete check of one call: arguments against parameters, dims from shapes, every error with its repair.

This is the definition of what a call accepts. The generated launcher (launch_source.py) repeats the common cases in
line, fast; whatever it does not recognise comes here, so that each message exists once.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from . import errors
from .dtypes import DTYPES, accepted_names, integer_range
from .expression import evaluate, references, to_text
from .manifest import Dim, Manifest, Param
from .tensor import TensorView, Unreadable, is_contiguous, read


@dataclass
class Bound:
    """A checked call. Lists go by parameter; an output that was left out has object None and pointer 0."""

    objects: list[Any]
    pointers: list[int]
    scalars: list[Any]
    dims: dict[str, int]
    given: bool
    views: list[TensorView | None]
    keep: list[object] = field(default_factory=list)

    def first_tensor(self) -> TensorView | None:
        """The first tensor of the call: outputs left out take its library and device."""
        return next((v for v in self.views if v is not None), None)


class Binder:
    """Checks calls of one kernel. `device` is the kind of device its tensors must be on ("cpu", "cuda", "rocm")."""

    def __init__(self, manifest: Manifest, device: str) -> None:
        self.manifest = manifest
        self.device = device
        self.outputs = set(manifest.outputs)
        self.inputs = [p.name for p in manifest.params if p.name not in self.outputs]
        self.accepted = {p.name: accepted_names(p.dtype, p.storage) for p in manifest.params}
        self._integer_scalars = {
            p.name for p in manifest.params if p.kind == "scalar" and DTYPES[p.dtype].kind != "float"
        }

    def bind(self, args: Sequence[Any]) -> Bound:
        """Checks all of a call but the declared checks and guards. Raises the ArgumentXxxError that fits."""
        params = self.manifest.params
        given = len(args) == len(params)
        if not given and len(args) != len(self.inputs):
            raise errors.ArgumentCountError(self.count_message(len(args)))
        bound = Bound([None] * len(params), [0] * len(params), [None] * len(params), {}, given, [None] * len(params))
        remaining = iter(args)
        for i, param in enumerate(params):
            if not given and param.name in self.outputs:
                continue
            bound.objects[i] = value = next(remaining)
            if param.kind == "scalar":
                bound.scalars[i] = self._scalar(param, value)
            elif param.kind == "pointer":
                bound.pointers[i] = self._pointer(param, value, bound)
            else:
                self._tensor(i, param, value, bound)
        self._bind_dims(bound)
        for i, param in enumerate(params):
            view = bound.views[i]
            if view is not None and param.kind == "tensor":
                self._check_shape(param, view, bound)
                self._check_strides(param, view, bound)
                self._check_memory(param, view, bound)
        return bound

    def count_message(self, found: int) -> str:
        """The text for a call with `found` arguments."""
        name, total = self.manifest.name, len(self.manifest.params)
        text = f"Kernel expected {len(self.inputs)} inputs, but {found} are provided. {name}({', '.join(self.inputs)})"
        if self.outputs:
            every = ", ".join(p.name for p in self.manifest.params)
            text += f" allocates its outputs ({', '.join(self.manifest.outputs)}); "
            text += f"with {total} arguments, {name}({every}), it writes into yours."
        return text

    # -- one argument ------------------------------------------------------------------------------------------------

    def _scalar(self, param: Param, value: Any) -> Any:
        info, label = DTYPES[param.dtype], self._label(param)
        if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # numpy scalars, 0-d arrays and tensors
            value = value.item()
        if info.kind == "float":
            try:
                return float(value)
            except (TypeError, ValueError, OverflowError):
                self._not_a(param, "a number", value)
        try:
            number = operator.index(value)
        except TypeError:
            self._not_a(param, "an integer" if info.kind != "bool" else "a bool", value)
        low, high = integer_range(param.dtype)
        if not low <= number <= high:
            raise errors.ScalarRangeError(f"{label} is {number}, which {param.dtype} cannot hold ({low} to {high})")
        return number

    def _pointer(self, param: Param, value: Any, bound: Bound) -> int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        view = self._read(param, value)
        bound.keep.append(view.owner)
        return view.pointer

    def _tensor(self, i: int, param: Param, value: Any, bound: Bound) -> None:
        if value is None and param.access == "none":
            return
        view = self._read(param, value)
        label = self._label(param)
        if view.device != self.device:
            raise errors.ArgumentDeviceError(self._device_message(label, view))
        if view.dtype not in self.accepted[param.name]:
            raise errors.ArgumentDtypeError(self._dtype_message(param, view))
        if len(view.shape) != len(param.shape):
            raise errors.ArgumentShapeError(
                f"{label}.ndim is expected to be {len(param.shape)}, but got {len(view.shape)}: declared shape "
                f"({', '.join(map(to_text, param.shape))}), found {view.shape}"
            )
        if "w" in param.access and not view.writable:
            raise errors.ReadOnlyError(f"{label} is read-only and the kernel writes to it; pass a writable copy")
        bound.views[i] = view
        bound.pointers[i] = view.pointer
        bound.keep.append(view.owner)

    def _read(self, param: Param, value: Any) -> TensorView:
        try:
            view = read(value)
        except Unreadable as reason:
            raise errors.ArgumentTypeError(f"{self._label(param)} is {reason}") from None
        if view is None:
            self._not_a(param, "a tensor (numpy, torch or any array with __dlpack__)", value)
        return view

    # -- dims and equations ------------------------------------------------------------------------------------------

    def _bind_dims(self, bound: Bound) -> None:
        index = {p.name: i for i, p in enumerate(self.manifest.params)}
        for dim in self.manifest.dims:
            i = index[dim.param]
            param, view = self.manifest.params[i], bound.views[i]
            if view is None:
                raise errors.OutputError(
                    f"{self.manifest.name}: dim {dim.name} is known only from {dim.param}, which this call left out; "
                    f"pass {dim.param}"
                )
            extent = (
                logical_extent(param, view, dim.axis) if dim.of == "shape" else logical_stride(param, view, dim.axis)
            )
            value, rest = divmod(extent - dim.offset, dim.scale)
            if rest or value < 0:
                self._unsatisfied(param, dim, extent)
            bound.dims[dim.name] = value

    def _check_shape(self, param: Param, view: TensorView, bound: Bound) -> None:
        per = DTYPES[param.dtype].per_byte
        for axis, expression in enumerate(param.shape):
            wanted = self._value(expression, bound)
            packed = per > 1 and axis == len(param.shape) - 1
            found = view.shape[axis]
            if found == (-(-wanted // per) if packed else wanted):
                continue
            text = to_text(expression)
            detail = f"{found} == {wanted}" if text == str(wanted) else f"{found} == {text}, which is {wanted}"
            if packed:
                detail = f"{found} bytes of {per} elements == ceildiv({text}, {per}), which is {-(-wanted // per)}"
            because = self._where_dims_come_from(expression, bound)
            raise errors.ArgumentShapeError(
                f"Argument {self._label(param)}.shape[{axis}] has an unsatisfied constraint: {detail}{because}. "
                f"Found shape {view.shape}"
            )

    def _check_strides(self, param: Param, view: TensorView, bound: Bound) -> None:
        label = self._label(param)
        if param.strides is None:
            if not is_contiguous(view.shape, view.strides):
                raise errors.ArgumentStrideError(
                    f"{label}.strides is expected to be contiguous, but got strides {view.strides} "
                    f"for shape {view.shape}; pass {param.name}.contiguous() (torch) or "
                    f"numpy.ascontiguousarray({param.name}), or declare the parameter as T.StridedTensor"
                )
            return
        for axis, expression in enumerate(param.strides):
            if expression is None or view.shape[axis] <= 1:
                continue
            found, wanted = logical_stride(param, view, axis), self._value(expression, bound)
            if found != wanted:
                because = self._where_dims_come_from(expression, bound)
                raise errors.ArgumentStrideError(
                    f"Argument {label}.strides[{axis}] has an unsatisfied constraint: "
                    f"{found} == {to_text(expression)}, which is {wanted}{because}. "
                    f"Found strides {view.strides} for shape {view.shape}"
                )

    def _check_memory(self, param: Param, view: TensorView, bound: Bound) -> None:
        if view.pointer % param.align and 0 not in view.shape:
            raise errors.ArgumentAlignmentError(
                f"{self._label(param)} is at address {view.pointer:#x}, which is no multiple of {param.align} bytes; "
                "pass a fresh copy, or compile the kernel for less alignment"
            )
        first = bound.first_tensor()
        if first is not None and view.device_index != first.device_index:
            raise errors.ArgumentDeviceError(
                f"{self._label(param)} is on {view.device}:{view.device_index}, "
                f"the first tensor on {first.device}:{first.device_index}; move one of them"
            )

    def _value(self, expression: Any, bound: Bound) -> int:
        params = {
            p.name: int(bound.scalars[i]) for i, p in enumerate(self.manifest.params) if p.name in self._integer_scalars
        }
        return evaluate(expression, bound.dims, params)

    # -- texts -------------------------------------------------------------------------------------------------------

    def _label(self, param: Param) -> str:
        return f"{self.manifest.name}.{param.name}"

    def _not_a(self, param: Param, wanted: str, value: Any) -> NoReturn:
        shown = (
            "None"
            if value is None
            else f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
        )
        raise errors.ArgumentTypeError(
            f"{self._label(param)} is expected to be {wanted} of dtype {param.dtype}, but got {shown}"
        )

    def _unsatisfied(self, param: Param, dim: Dim, extent: int) -> NoReturn:
        equation = f"{dim.scale} * {dim.name}" if dim.scale != 1 else dim.name
        if dim.offset:
            equation += f" {'+' if dim.offset > 0 else '-'} {abs(dim.offset)}"
        where = "shape" if dim.of == "shape" else "strides"
        raise errors.ArgumentShapeError(
            f"Argument {self._label(param)}.{where}[{dim.axis}] has an unsatisfied constraint: {extent} == {equation} "
            f"for a whole {dim.name} that is not negative"
        )

    def _where_dims_come_from(self, expression: Any, bound: Bound) -> str:
        used = references(expression, "dim")
        sources = [
            f"{d.name} = {bound.dims[d.name]} from {d.param}.{d.of}[{d.axis}]"
            for d in self.manifest.dims
            if d.name in used
        ]
        return f" ({'; '.join(sources)})" if sources else ""

    def _dtype_message(self, param: Param, view: TensorView) -> str:
        text = f"{self._label(param)}.dtype is expected to be {param.dtype}, but got {view.dtype}"
        info = DTYPES[param.dtype]
        if info.per_byte > 1:
            per = info.per_byte
            return (
                f"{text}; pass {param.dtype} packed {per} to a byte, low bits first: "
                f"a uint8 or int8 array whose last extent is K // {per}"
            )
        others = sorted(self.accepted[param.name] - {param.dtype})
        if others and param.dtype not in self.accepted[param.name]:
            text += f" ({param.dtype} is carried by {', '.join(others)})"
        convert = (
            f"{param.name}.to(torch.{param.storage})"
            if view.library == "torch"
            else f"{param.name}.astype({param.storage!r})"
        )
        return f"{text}; convert it, e.g. {convert}"

    def _device_message(self, label: str, view: TensorView) -> str:
        text = f"{label}.device_type is expected to be {self.device}, but got a {view.library} array on {view.device}"
        if self.device == "cpu":
            return f"{text}; move it with .cpu(), or compile the kernel for target {view.device!r}"
        return (
            f"{text}; move it with .to('cuda'), or compile the kernel for target 'cpu' "
            "(TILELANG_TARGET_OVERRIDE=cpu; without a GPU: TILELANG_EXECUTION=emulate)"
        )


def logical_extent(param: Param, view: TensorView, axis: int) -> int:
    """Extent in elements of the kernel's dtype: a packed last axis holds several to a byte."""
    last = axis == len(view.shape) - 1
    return view.shape[axis] * (DTYPES[param.dtype].per_byte if last else 1)


def logical_stride(param: Param, view: TensorView, axis: int) -> int:
    """Stride in elements of the kernel's dtype; the last axis of a packed tensor counts as dense if it is."""
    per = DTYPES[param.dtype].per_byte
    last = axis == len(view.shape) - 1
    return view.strides[axis] if per == 1 or (last and view.strides[axis] == 1) else view.strides[axis] * per
