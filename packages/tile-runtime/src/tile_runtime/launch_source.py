"""Writes the Python text of a launcher specialised to one manifest.

A kernel `add(A[n, 64], B[n, 64]) -> C` on the CPU becomes, in outline:

    def launch(*args):
        bound = False
        try:
            if len(args) == 3: a0, a1, a2 = args; given = True      # A, B, C
            elif ...                                                # C left out
            t0 = type(a0)
            if t0 is ndarray:
                if a0.dtype not in nd0 or not a0.flags.c_contiguous: raise Mismatch
                x0_0, x0_1 = a0.shape
                p0 = word(id(a0) + 16).value
            elif t0 in torch_types: ...
            d0 = x0_0                                               # dim n
            if x1_0 != d0 or x0_1 != 64 ...: raise Mismatch
            bound = True
        except Exception: pass
        if not bound: a0, ..., p0, ..., d0, given, keep = slow(args)
        if not given: a2 = empty((d0, 64), od2); p2 = ...
        <the vendor's lines for each launch>
        return a2

The part in `try` recognises the common calls and never explains. Whatever it does not recognise goes to `slow`
(binding.py), which accepts the call or raises the right error. Names of the manifest never enter the text: parameters
are a0, a1, …, pointers p0, …, scalars s0, …, dims d0, …, so a hostile manifest cannot inject code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from .dtypes import DTYPES, integer_range
from .expression import Expression, to_python
from .manifest import Launch, Manifest, Param
from .tensor import NUMPY_DATA_OFFSET


@dataclass(frozen=True)
class Argument:
    """One launch argument: `text` is Python for an address ("pointer"), a number ("value") or what the vendor's
    `tensor_map` gives ("tensormap")."""

    kind: str
    dtype: str
    text: str


@dataclass(frozen=True)
class LaunchSite:
    """One launch as the vendor sees it: `grid`, `block`, `shared` are Python texts of ints, free of side effects."""

    number: int  # counts the launches of all variants: a suffix for names in the namespace
    launch: Launch
    arguments: tuple[Argument, ...]
    grid: tuple[str, str, str]
    block: tuple[str, str, str]
    shared: str


class Backend(Protocol):
    """What a vendor adds to the launcher."""

    device: str
    """Where tensors must be: "cpu", "cuda", "rocm"."""

    def torch_test(self, name: str) -> str:
        """Python text that is true if the torch tensor in variable `name` is on this device."""

    def emit(self, site: LaunchSite, namespace: dict[str, Any]) -> list[str]:
        """Lines that launch; they may use globals that this call puts into `namespace` (names ending in the number)."""

    def workspace(self, nbytes: int, zero: bool, align: int) -> tuple[object, int]:
        """Memory for one call: what keeps it alive, and its address."""


class Writer:
    """Writes the two functions of one kernel: `launch(*args)` and `prepared(*tensors)`."""

    def __init__(self, manifest: Manifest, backend: Backend, namespace: dict[str, Any]) -> None:
        self.manifest = manifest
        self.backend = backend
        self.namespace = namespace
        self.index = {p.name: i for i, p in enumerate(manifest.params)}
        self.dim_index = {d.name: k for k, d in enumerate(manifest.dims)}
        self.outputs = [i for i, p in enumerate(manifest.params) if p.name in manifest.outputs]
        self.inputs = [i for i in range(len(manifest.params)) if i not in self.outputs]
        self.lines: list[str] = []
        self.depth = 0

    def text(self) -> str:
        """Source of both functions. The namespace then holds what the vendor's lines need."""
        self._launch_function()
        self._prepared_function()
        return "\n".join(self.lines) + "\n"

    # -- pieces ------------------------------------------------------------------------------------------------------

    def _put(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    def _expr(self, expression: Expression) -> str:
        def rename(operator: str, name: str) -> str:
            if operator == "dim":
                return f"d{self.dim_index[name]}"
            return f"{'s' if operator == 'param' else 'p'}{self.index[name]}"

        return to_python(expression, rename)

    def bound_names(self) -> list[str]:
        """Variables that `slow` returns, in order."""
        params = self.manifest.params
        names = [f"a{i}" for i in range(len(params))]
        names += [f"{'s' if p.kind == 'scalar' else 'p'}{i}" for i, p in enumerate(params)]
        return [*names, *(f"d{k}" for k in range(len(self.manifest.dims))), "given", "keep"]

    def _launch_function(self) -> None:
        params = self.manifest.params
        self._put("def launch(*args):")
        self.depth = 1
        self._put("bound = False", "try:")
        self.depth = 2
        self._unpack()
        for i in self.inputs:
            self._read(i, params[i])
        if self.outputs:
            self._put("if given:")
            self.depth += 1
            for i in self.outputs:
                self._read(i, params[i])
            self.depth -= 1
        self._bind_dims()
        self._equations(self.inputs)
        if any(self._conditions(i) for i in self.outputs):
            self._put("if given:")
            self.depth += 1
            self._equations(self.outputs)
            self.depth -= 1
        self._put("bound = True")
        self.depth = 1
        self._put("except Exception:", "    pass", "if not bound:", f"    {', '.join(self.bound_names())} = slow(args)")
        self._run()

    def _unpack(self) -> None:
        every = targets("a{}", range(len(self.manifest.params)))
        self._put(f"if len(args) == {len(self.manifest.params)}:", f"    {every} = args", "    given = True")
        if self.outputs:
            some = targets("a{}", self.inputs)
            self._put(f"elif len(args) == {len(self.inputs)}:", f"    {some} = args", "    given = False")
        self._put("else:", "    raise Mismatch")

    def _read(self, i: int, param: Param) -> None:
        """Sets p{i} and x{i}_{axis} (stored extents), y{i}_{axis} (strides) of a tensor, s{i} of a scalar."""
        if param.kind == "scalar":
            self._read_scalar(i, param)
        elif param.kind == "pointer":
            self._put(f"if type(a{i}) is not int: raise Mismatch", f"p{i} = a{i}")
        elif param.access == "none":
            self._put(f"if a{i} is None: p{i} = 0", "else:")
            self.depth += 1
            self._read_tensor(i, param)
            self.depth -= 1
        else:
            self._read_tensor(i, param)

    def _read_scalar(self, i: int, param: Param) -> None:
        kind = DTYPES[param.dtype].kind
        if kind == "float":
            self._put(f"if type(a{i}) is float: s{i} = a{i}", f"elif type(a{i}) is int: s{i} = float(a{i})")
            self._put("else: raise Mismatch")
            return
        low, high = integer_range(param.dtype)
        also = " and type(a{i}) is not bool" if kind == "bool" else ""
        self._put(
            f"if type(a{i}) is not int{also.format(i=i)} or not {low} <= a{i} <= {high}: raise Mismatch", f"s{i} = a{i}"
        )

    def _read_tensor(self, i: int, param: Param) -> None:
        if self._is_packed_and_strided(param):
            self._put("raise Mismatch")
            return
        rank, writes = len(param.shape), "w" in param.access
        shape = f"{targets(f'x{i}_{{}}', range(rank))} = a{i}.shape"
        strided = param.strides is not None and rank > 0
        self._put(f"t{i} = type(a{i})")
        branch = "if"
        if self.backend.device == "cpu":
            flags = ("writeable" if writes else "") if strided else ("carray" if writes else "c_contiguous")
            test = f" or not a{i}.flags.{flags}" if flags else ""
            self._put(f"if t{i} is ndarray:", f"    if a{i}.dtype not in nd{i}{test}: raise Mismatch", f"    {shape}")
            if strided:
                size = DTYPES[param.dtype].itemsize
                steps = [f"y{i}_{axis}" for axis in range(rank)]
                self._put(f"    {targets(f'y{i}_{{}}', range(rank))} = a{i}.strides")
                if size > 1:
                    self._put(f"    if ({' | '.join(steps)}) & {size - 1}: raise Mismatch")
                    self._put(*(f"    {step} //= {size}" for step in steps))
            self._put(f"    p{i} = {numpy_pointer(f'a{i}')}")
            branch = "elif"
        contiguous = "" if strided else f" or not a{i}.is_contiguous()"
        self._put(f"{branch} t{i} in torch_types:")
        self._put(
            f"    if a{i}.dtype not in td{i} or not {self.backend.torch_test(f'a{i}')}{contiguous}: raise Mismatch"
        )
        self._put(f"    {shape}")
        if strided:
            self._put(f"    {targets(f'y{i}_{{}}', range(rank))} = a{i}.stride()")
            self._put(f"    if a{i}.is_neg(): raise Mismatch")
        self._put(f"    p{i} = a{i}.data_ptr()", "else: raise Mismatch")
        if param.align > 1:
            self._put(f"if p{i} & {param.align - 1}: raise Mismatch")

    def _bind_dims(self) -> None:
        for k, dim in enumerate(self.manifest.dims):
            i = self.index[dim.param]
            param = self.manifest.params[i]
            if i in self.outputs:
                self._put("if not given: raise Mismatch")
            if self._is_packed_and_strided(param):
                self._put("raise Mismatch")
                continue
            if param.access == "none":
                self._put(f"if a{i} is None: raise Mismatch")
            extent = f"{'x' if dim.of == 'shape' else 'y'}{i}_{dim.axis}"
            per = DTYPES[param.dtype].per_byte
            if dim.of == "shape" and per > 1 and dim.axis == len(param.shape) - 1:
                extent = f"{extent} * {per}"
            if (dim.scale, dim.offset) == (1, 0):
                self._put(f"d{k} = {extent}")
                if dim.of == "strides":
                    self._put(f"if d{k} < 0: raise Mismatch")
            else:
                self._put(
                    f"d{k}, rest = divmod({extent} - ({dim.offset}), {dim.scale})",
                    f"if rest or d{k} < 0: raise Mismatch",
                )

    def _is_packed_and_strided(self, param: Param) -> bool:
        return param.strides is not None and DTYPES[param.dtype].per_byte > 1

    def _equations(self, indices: list[int]) -> None:
        used = [i for i in indices if self.manifest.params[i].access != "none"]
        conditions = [c for i in used for c in self._conditions(i)]
        if conditions:
            self._put(f"if {' or '.join(conditions)}: raise Mismatch")
        for i in indices:
            if i not in used and (conditions := self._conditions(i)):
                self._put(f"if a{i} is not None and ({' or '.join(conditions)}): raise Mismatch")

    def _conditions(self, i: int) -> list[str]:
        """What must be false: extents and strides of parameter i that differ from their expressions."""
        param = self.manifest.params[i]
        if param.kind != "tensor" or self._is_packed_and_strided(param):
            return []
        per, conditions = DTYPES[param.dtype].per_byte, []
        bound = {
            (d.axis, d.of): d.name
            for d in self.manifest.dims
            if d.param == param.name and (d.scale, d.offset) == (1, 0)
        }
        for axis, expression in enumerate(param.shape):
            if expression == ("dim", bound.get((axis, "shape"))):
                continue  # this extent is where the dim comes from
            wanted = self._expr(expression)
            if per > 1 and axis == len(param.shape) - 1:
                wanted = f"-(-{wanted} // {per})"
            conditions.append(f"x{i}_{axis} != {wanted}")
        for axis, stride in enumerate(param.strides or ()):
            if stride is not None and stride != ("dim", bound.get((axis, "strides"))):
                conditions.append(f"x{i}_{axis} > 1 and y{i}_{axis} != {self._expr(stride)}")
        return conditions

    # -- after the arguments are bound -------------------------------------------------------------------------------

    def _run(self) -> None:
        """Checks, outputs, the launches of the right variant, the result."""
        for k, check in enumerate(self.manifest.checks):
            self._put(f"if not {self._expr(check.expr)}: raise check_failed({k}, {self._facts()})")
        self._allocate()
        for k, space in enumerate(self.manifest.workspace):
            self._put(f"k{k}, w{k} = workspace({self._expr(space.bytes)}, {space.zero}, {space.align})")
        number, closed = 0, False
        for v, variant in enumerate(self.manifest.variants):
            if variant.guard is None:
                self._put("if True:" if v == 0 else "else:")
                closed = True
            else:
                self._put(f"{'elif' if v else 'if'} {self._expr(variant.guard)}:")
            self.depth += 1
            for launch in variant.launches:
                self._launch(launch, number)
                number += 1
            if not variant.launches:
                self._put("pass")
            self.depth -= 1
            if closed:
                break
        if not closed:
            every = ", ".join(f"{'s' if p.kind == 'scalar' else 'a'}{i}" for i, p in enumerate(self.manifest.params))
            other = f"return other_variant({self._facts()}, [{every}])"
            self._put(*(["else:", f"    {other}"] if self.manifest.variants else [other]))
        results = [f"a{i}" for name in self.manifest.outputs for i in [self.index[name]]]
        shown = ", ".join(results) or "None"
        self._put(f"return [{shown}]" if len(results) > 1 else f"return {shown}")
        self.depth = 0
        self._put("", "")

    def _facts(self) -> str:
        dims = ", ".join(f"d{k}" for k in range(len(self.manifest.dims)))
        scalars = ", ".join(f"s{i}" for i, p in enumerate(self.manifest.params) if p.kind == "scalar")
        return f"[{dims}], [{scalars}]"

    def _allocate(self) -> None:
        if not self.outputs:
            return
        first = next((f"a{i}" for i in self.inputs if self.manifest.params[i].kind == "tensor"), "None")
        self._put("if not given:")
        for i in self.outputs:
            param = self.manifest.params[i]
            extents = [self._expr(e) for e in param.shape]
            if DTYPES[param.dtype].per_byte > 1:
                extents[-1] = f"-(-{extents[-1]} // {DTYPES[param.dtype].per_byte})"
            shape = f"({', '.join(extents)}{',' if len(extents) == 1 else ''})"
            if (
                self.backend.device == "cpu"
                and first != "None"
                and self.namespace[f"od{i}"] is not None
                and param.align <= 16
            ):
                self._put(f"    if type({first}) is ndarray:", f"        a{i} = empty({shape}, od{i})")
                self._put(
                    f"        p{i} = {numpy_pointer(f'a{i}')}",
                    "    else:",
                    f"        a{i}, p{i} = allocate({i}, {first}, {shape})",
                )
            else:
                self._put(f"    a{i}, p{i} = allocate({i}, {first}, {shape})")

    def _launch(self, launch: Launch, number: int) -> None:
        grid: list[str] = []
        tests: list[str] = []
        for axis, expression in enumerate(launch.grid):
            if isinstance(expression, int):
                grid.append(str(expression))
                tests += [] if expression > 0 else ["False"]
            else:
                self._put(f"g{axis} = {self._expr(expression)}")
                grid.append(f"g{axis}")
                tests.append(f"g{axis} > 0")
        site = LaunchSite(
            number,
            launch,
            tuple(self._argument(entry) for entry in launch.args),
            (grid[0], grid[1], grid[2]),
            (self._expr(launch.block[0]), self._expr(launch.block[1]), self._expr(launch.block[2])),
            self._expr(launch.shared),
        )
        lines = self.backend.emit(site, self.namespace)
        if tests:
            self._put(f"if {' and '.join(tests)}:")
            lines = ["    " + line for line in lines]
        self._put(*lines)

    def _argument(self, entry: tuple[Any, ...]) -> Argument:
        kind, *rest = entry
        if kind == "param":
            param, i = self.manifest.param(rest[0]), self.index[rest[0]]
            return (
                Argument("value", param.dtype, f"s{i}") if param.kind == "scalar" else Argument("pointer", "", f"p{i}")
            )
        if kind == "dim":
            return Argument("value", "int64", self._expr(("dim", rest[0])))
        if kind == "value":
            return Argument("value", rest[0], self._expr(rest[1]))
        return Argument("pointer", "", f"w{rest[0]}") if kind == "workspace" else self._tensor_map(rest[0])

    def _tensor_map(self, number: int) -> Argument:
        """`tensor_map(number, address, shape, strides in bytes)`; the backend has put that function into the namespace."""
        mapping = self.manifest.tensormaps[number]
        param, size = self.manifest.param(mapping.param), DTYPES[mapping.dtype].itemsize
        shape, strides = mapping.dimensions(param)
        extents = "".join(f"{self._expr(e)}, " for e in shape)
        steps = "".join(f"{self._expr(('*', s, size))}, " for s in strides)
        return Argument("tensormap", "", f"tensor_map({number}, p{self.index[mapping.param]}, ({extents}), ({steps}))")

    # -- prepared calls ----------------------------------------------------------------------------------------------

    def _prepared_function(self) -> None:
        """`prepared(*tensors)`: dims, scalars and `given` are globals that `prepare` fixed; only pointers are read."""
        params = self.manifest.params
        tensors = [i for i, p in enumerate(params) if p.kind != "scalar"]
        inputs = [i for i in tensors if i not in self.outputs]
        self._put("def prepared(*args):")
        self.depth = 1
        self._put("if len(args) != prepared_count: raise prepared_mismatch(len(args), prepared_count)")
        if self.outputs:
            self._put("if given:", f"    {targets('a{}', tensors)} = args", "else:")
            self._put(f"    {targets('a{}', inputs)} = args")
        else:
            self._put(f"{targets('a{}', tensors)} = args")
        for i in inputs:
            self._read_pointer(i, params[i])
        if self.outputs:
            self._put("if given:")
            self.depth += 1
            for i in self.outputs:
                self._read_pointer(i, params[i])
            self.depth -= 1
        self._run()

    def _read_pointer(self, i: int, param: Param) -> None:
        self._put(f"if type(a{i}) in torch_types: p{i} = a{i}.data_ptr()")
        if self.backend.device == "cpu":
            self._put(f"elif type(a{i}) is ndarray: p{i} = {numpy_pointer(f'a{i}')}")
        self._put(f"elif type(a{i}) is int: p{i} = a{i}", f"else: p{i}, keep{i} = pointer_of({i}, a{i})")
        if param.kind == "tensor" and param.align > 1:
            self._put(f"if p{i} & {param.align - 1}: raise misaligned({i}, p{i})")


def targets(pattern: str, numbers: Iterable[int]) -> str:
    """Text to unpack a tuple into: `(a0, a1)`, `(a0,)`, `()`; a tuple of another length raises there."""
    names = [pattern.format(number) for number in numbers]
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def numpy_pointer(name: str) -> str:
    """Text of the address of the numpy array in variable `name`."""
    return f"address({name})" if NUMPY_DATA_OFFSET is None else f"word(id({name}) + {NUMPY_DATA_OFFSET}).value"
