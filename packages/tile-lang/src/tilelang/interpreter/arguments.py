"""From the caller's arrays and scalars to bound parameters: shapes, strides and dynamic dimensions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import ir

from tilelang.interpreter.errors import InterpreterError
from tilelang.interpreter.expressions import Evaluator, constant, dtype_of_node
from tilelang.interpreter.memory import Buffer, Storage
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of


def user_parameters(func: Any, count: int) -> list[Any]:
    """The parameters that a caller passes: all but the dynamic dimensions at the end."""
    if func.attrs is not None and "tl.params" in func.attrs:
        declared = len(json.loads(str(func.attrs["tl.params"])))
        if declared != count:
            raise InterpreterError(f"the kernel takes {declared} arguments, but {count} are given")
    if count > len(func.params):
        raise InterpreterError(f"the kernel takes at most {len(func.params)} arguments, but {count} are given")
    return list(func.params)[:count]


def bind_arguments(machine: Evaluator, func: Any, arguments: Sequence[Any], dims: Mapping[str, int]) -> dict[Any, int]:
    """Give every parameter its value, in `machine`; returns the dynamic dimensions (variable -> size).

    Dimensions are solved from shapes and strides: an equation with one unknown, in which it is linear.
    """
    parameters = user_parameters(func, len(arguments))
    equations: list[tuple[str, Any, int]] = []
    for parameter, argument in zip(parameters, arguments, strict=True):
        if not tile_ir.is_buffer(parameter):
            machine.bind(parameter, constant(argument, dtype_of_node(parameter)))
            continue
        equations += _shape_equations(parameter, argument)
    solved = _given(machine, func, equations, dims)
    _solve(machine, equations, solved)
    for parameter, argument in zip(parameters, arguments, strict=True):
        if tile_ir.is_buffer(parameter):
            dtype, shape = dtype_of(str(parameter.dtype)), [machine.integer(n) for n in parameter.ty.shape]
            machine.buffers[machine.same(parameter)] = Buffer(
                str(parameter.name), dtype, shape, "global", Storage.over(argument)
            )
    for parameter in func.params:
        if not tile_ir.is_buffer(parameter) and parameter not in machine.values:
            raise InterpreterError(
                f"{parameter.name} has no value",
                found="no shape or stride of an argument mentions it",
                repair=f"run(..., dims={{{str(parameter.name)!r}: size}})",
            )
    return solved


def _shape_equations(parameter: Any, array: Any) -> list[tuple[str, Any, int]]:
    """(name for messages, expression, value) for each dimension and stride of an argument."""
    name, dtype = str(parameter.name), dtype_of(str(parameter.dtype))
    wanted = np.dtype(np.uint8) if dtype.bits < 8 else dtype.as_numpy()
    if not isinstance(array, np.ndarray):
        raise InterpreterError(f"argument {name} must be a numpy array", found=type(array).__name__)
    if array.dtype != wanted and not (dtype.bits < 8 and array.dtype == np.int8):
        raise InterpreterError(f"argument {name} must be an array of {wanted}", found=f"an array of {array.dtype}")
    shape, vector = list(array.shape), 1 if dtype.lanes > 1 else 0
    if len(shape) != len(parameter.ty.shape) + vector:
        raise InterpreterError(
            f"argument {name} has the wrong number of dimensions",
            found=str(array.shape),
            expected=f"{len(parameter.ty.shape)} dimensions" + (f" and one of {dtype.lanes} lanes" if vector else ""),
        )
    per = dtype.per_byte
    expected = list(parameter.ty.shape)
    equations: list[tuple[str, Any, int]] = []
    for axis, expr in enumerate(expected):
        if per > 1 and axis == len(expected) - 1:
            static = tile_ir.static(expr)
            # An odd constant length is rounded up to whole bytes; a dynamic one is taken to fill them.
            if static is not None and -(-static // per) == shape[axis]:
                continue
            equations.append((f"{name}.shape[{axis}]", expr, shape[axis] * per))
        else:
            equations.append((f"{name}.shape[{axis}]", expr, shape[axis]))
    for axis, expr in enumerate(parameter.ty.strides):
        in_elements = array.strides[axis] // (array.itemsize * dtype.lanes)
        if shape[axis] > 1 or tile_ir.static(expr) is None:  # the stride of an axis of length 1 says nothing
            last = axis == len(expected) - 1
            equations.append((f"{name}.strides[{axis}]", expr, in_elements if last else in_elements * per))
    return equations


def _given(
    machine: Evaluator, func: Any, equations: list[tuple[str, Any, int]], dims: Mapping[str, int]
) -> dict[Any, int]:
    """Bind the dimensions that the caller names; an unknown name is an error."""
    unknown = {v for _, expr, _ in equations for v in _unbound(machine, expr)}
    unknown |= {p for p in func.params if not tile_ir.is_buffer(p) and p not in machine.values}
    by_name = {str(v.name): v for v in unknown}
    solved: dict[Any, int] = {}
    for name, size in dims.items():
        if name not in by_name:
            names = ", ".join(sorted(by_name)) or "none"
            raise InterpreterError(f"the kernel has no dynamic dimension {name!r}", found=f"its dimensions: {names}")
        _bind_dim(machine, by_name[name], int(size), solved)
    return solved


def _solve(machine: Evaluator, equations: list[tuple[str, Any, int]], solved: dict[Any, int]) -> None:
    """Bind unknowns until no equation has just one of them; then check every equation."""
    progress = True
    while progress:
        progress = False
        for _, expr, value in equations:
            unknown = _unbound(machine, expr)
            if len(unknown) == 1:
                var = unknown.pop()
                size = _solve_linear(machine, expr, var, value)
                if size is not None:
                    _bind_dim(machine, var, size, solved)
                    progress = True
    for name, expr, value in equations:
        unknown = _unbound(machine, expr)
        if unknown:
            missing = ", ".join(sorted(str(v.name) for v in unknown))
            raise InterpreterError(
                f"dimension {missing} cannot be found from the arguments",
                found=f"{name} == {expr}",
                expected="an equation that is linear in one unknown",
                repair="run(..., dims={name: size})",
            )
        if machine.integer(expr) != value:
            raise InterpreterError(
                f"{name} does not fit", found=str(value), expected=f"{expr} == {machine.integer(expr)}"
            )


def _solve_linear(machine: Evaluator, expr: Any, var: Any, value: int) -> int | None:
    """The integer at which `expr` equals `value`, if expr is linear in `var` and there is one."""

    def at(x: int) -> int:
        machine.bind(var, constant(x, dtype_of_node(var)))
        result = machine.integer(expr)
        del machine.values[machine.same(var)]
        return result

    base = at(0)
    slope = at(1) - base
    if slope == 0 or (value - base) % slope:
        return None
    size = (value - base) // slope
    return size if at(size) == value else None


def _bind_dim(machine: Evaluator, var: Any, size: int, solved: dict[Any, int]) -> None:
    machine.bind(var, constant(size, dtype_of_node(var)))
    solved[var] = size


def _unbound(machine: Evaluator, expr: Any) -> set[Any]:
    return {n for n in tile_ir.walk(expr) if isinstance(n, ir.Var) and n not in machine.values}
