"""`@tilelang.jit`: kernels compiled when they are first needed, in the lazy and in the eager style.

The way: (function, arguments, options) -> level-1 key -> artifact in the cache, or trace and `kernel.compile_func`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tilelang import fingerprint
from tilelang import target as targets
from tilelang.errors import BadAnnotation, InvalidArgument, OutputError
from tilelang.ir.dtypes import dtype_of
from tilelang.kernel import (
    JITKernel,
    check_target,
    compile,
    compile_func,
    digest,
    full_target,
    kernel_cache,
    load_artifact,
    with_outputs,
)
from tilelang.options import Options, make_options
from tilelang.target import Target


def jit(
    func: Callable[..., Any] | None = None,
    *,
    out_idx: int | Sequence[int] | None = None,
    target: Any = None,
    target_host: Any = None,
    execution_backend: str | None = None,
    execution: str | None = None,
    verbose: bool | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    debug_root_path: str | None = None,
    compile_flags: Any = None,
) -> Any:
    """Compile kernels when they are first needed.

    On a factory (a function that returns a `T.prim_func`): calling it with sizes gives a kernel. On a function whose
    body is the kernel (the eager style): calling it with tensors compiles, runs and returns what `return` names.
    """
    if func is None:
        return functools.partial(
            jit,
            out_idx=out_idx,
            target=target,
            execution_backend=execution_backend,
            execution=execution,
            verbose=verbose,
            pass_configs=pass_configs,
            debug_root_path=debug_root_path,
            compile_flags=compile_flags,
        )
    settings = {
        "execution": execution,
        "execution_backend": execution_backend,
        "pass_configs": pass_configs,
        "verbose": verbose,
        "compile_flags": compile_flags,
    }
    make_options(**settings)  # a wrong option is an error here, not at the first call
    if hasattr(func, "with_attr"):
        return compile(func, out_idx, target, **settings)
    cls = EagerKernel if is_eager(func) else LazyKernel
    return cls(func, out_idx, target, settings)


def is_eager(func: Callable[..., Any]) -> bool:
    """Whether the body of the function is the kernel: it opens T.Kernel itself, outside of any nested function."""
    import ast

    from tilelang.errors import SourceUnavailable
    from tilelang.frontend.rewrite import syntax_of

    code = inspect.unwrap(func).__code__
    try:
        tree = syntax_of(code)
    except SourceUnavailable:
        if "Kernel" in code.co_names:
            raise
        return False
    stack: list[ast.AST] = list(tree.body)
    nested = False
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            nested = nested or (isinstance(node, ast.FunctionDef) and bool(node.decorator_list))
            continue
        if isinstance(node, ast.With):
            for item in node.items:
                name = ast.unparse(item.context_expr).split("(")[0]
                if name.split(".")[-1] in ("Kernel", "ClusterKernel"):
                    return True
        if isinstance(node, ast.AnnAssign) and node.value is None and "Tensor" in ast.unparse(node.annotation):
            return True
        stack.extend(ast.iter_child_nodes(node))
    if nested:
        return False
    notes = getattr(func, "__annotations__", {}).values()
    from tilelang.frontend.annotations import TensorSpec, is_bare_tensor

    return any(isinstance(n, TensorSpec) or is_bare_tensor(n) for n in notes)


class _Jitted:
    """What both styles share."""

    def __init__(self, func: Any, out_idx: Any, target: Any, settings: dict[str, Any]) -> None:
        functools.update_wrapper(cast(Any, self), func)
        self.func = func
        self.out_idx = out_idx
        self.target = target
        self.settings = settings
        self.signature = inspect.signature(func)
        self._fingerprint: str | None = None
        self._fingerprinted = False

    def source_identity(self) -> str | None:
        """Recomputed for each new specialisation: a global that the kernel mentions may have changed."""
        return fingerprint.of_function(self.func)

    def options(self) -> Options:
        return make_options(**self.settings)


class LazyKernel(_Jitted):
    """A factory under `@tilelang.jit`: `matmul(1024, 1024, 1024)` gives a `JITKernel`."""

    def __init__(self, func: Any, out_idx: Any, target: Any, settings: dict[str, Any]) -> None:
        super().__init__(func, out_idx, target, settings)
        self._kernels: dict[Any, JITKernel] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> JITKernel:
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        options, target = self.options(), targets.resolve(self.target)
        key = self._key(bound, target, options)
        known = None if key is None else self._kernels.get(key)
        if known is not None:
            return known
        kernel = self._from_disk(key, bound, target, options) or self._compile(bound, target, options, key)
        if key is not None:
            self._kernels[key] = kernel
        return kernel

    def origin(self, *args: Any, **kwargs: Any) -> str:
        """Where a call with these sizes would take its kernel from: "loaded", "cache" or "compile". Compiles nothing."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        options, target = self.options(), targets.resolve(self.target)
        key = self._key(bound, target, options)
        if key in self._kernels:
            return "loaded"
        return "compile" if self._from_disk(key, bound, target, options) is None else "cache"

    def _key(self, bound: inspect.BoundArguments, target: Target, options: Options) -> str | None:
        """The level-1 key; None where function or arguments have no identity that outlives the process."""
        identity = self.source_identity()
        values = fingerprint.of_values(bound.arguments)
        if identity is None or values is None:
            return None
        return digest("lazy", identity, values, repr(self.out_idx), str(target), repr(options), fingerprint.toolchain())

    def _from_disk(
        self, key: str | None, bound: inspect.BoundArguments, target: Target, options: Options
    ) -> JITKernel | None:
        if key is None or options.execution != "device":
            return None
        check_target(target, options)
        artifact = kernel_cache().find(digest(key, str(full_target(target))))
        retrace = functools.partial(self._traced, bound)
        return None if artifact is None else load_artifact(artifact, target, options, retrace)

    def _traced(self, bound: inspect.BoundArguments) -> Any:
        return with_outputs(self.get_tir(*bound.args, **bound.kwargs), self.out_idx)

    def _compile(self, bound: inspect.BoundArguments, target: Target, options: Options, key: str | None) -> JITKernel:
        kernel = compile_func(self._traced(bound), target, options)
        if key is not None and options.execution == "device":
            kernel_cache().link(digest(key, str(full_target(target))), kernel.manifest.key)
        return kernel

    def get_tir(self, *args: Any, **kwargs: Any) -> Any:
        """The traced function for these sizes."""
        func = self.func(*args, **kwargs)
        if not hasattr(func, "with_attr"):
            raise InvalidArgument(
                f"{self.func.__name__} under @tilelang.jit returned no T.prim_func",
                found=f"{type(func).__name__}",
                expected="`return main` where main is a T.prim_func, or a body that is the kernel (the eager style)",
                repair="put @T.prim_func above the inner function and return it",
            )
        return func

    def compile(self, *args: Any, **kwargs: Any) -> JITKernel:
        """Same as calling it."""
        return self(*args, **kwargs)

    def get_kernel_source(self, *args: Any, **kwargs: Any) -> str:
        return self(*args, **kwargs).get_kernel_source()

    def par_compile(self, configs: Sequence[Any], num_workers: int | None = None) -> list[JITKernel]:
        """One kernel for each configuration (a dict of keywords or a tuple of arguments)."""
        return [self(**c) if isinstance(c, Mapping) else self(*c) for c in configs]


@dataclass
class _Specialisation:
    """A compiled eager kernel and the calls it serves: per tensor its dtype and, where fixed, its extents."""

    pattern: tuple[Any, ...]
    kernel: JITKernel

    def serves(self, described: tuple[Any, ...]) -> bool:
        if len(described) != len(self.pattern):
            return False
        for want, have in zip(self.pattern, described):
            if want is None:
                continue
            if not isinstance(want, tuple) or want[0] != "tensor":
                if want != have:
                    return False
                continue
            _, dtype, shape, strides = want
            if have[0] != "tensor" or have[1] != dtype or len(have[2]) != len(shape):
                return False
            if any(w is not None and w != h for w, h in zip(shape, have[2])):
                return False
            if strides is not None and have[3] != strides:
                return False
        return True


class EagerKernel(_Jitted):
    """A kernel function under `@tilelang.jit`: `matmul(a, b)` compiles for these arguments, runs and returns."""

    def __init__(self, func: Any, out_idx: Any, target: Any, settings: dict[str, Any]) -> None:
        super().__init__(func, out_idx, target, settings)
        if out_idx is not None:
            raise OutputError(
                f"out_idx is given for {func.__name__}, which is of the eager style",
                found=f"out_idx={out_idx!r}",
                expected="outputs made by T.empty and returned",
                repair="drop out_idx; C = T.empty(shape, dtype) and return C",
            )
        self._by_call: dict[Any, tuple[JITKernel, tuple[int, ...]]] = {}
        self._specialisations: dict[Any, list[_Specialisation]] = {}
        self._names = list(self.signature.parameters)
        self.scalars = self._run_time_scalars()

    def _run_time_scalars(self) -> frozenset[str]:
        """Parameters such as `x: T.float32`: their values make no new kernel."""
        from tilelang.frontend.trace import annotations_of, is_run_time_scalar

        try:
            notes = annotations_of(self.func)
        except BadAnnotation:  # text that means something only later: the trace will ask again
            return frozenset()
        return frozenset(n for n in self._names if is_run_time_scalar(notes.get(n)))

    # -- calls -------------------------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not kwargs and len(args) == len(self._names):
            values: tuple[Any, ...] = args
        else:
            bound = self.signature.bind(*args, **kwargs)
            bound.apply_defaults()
            values = tuple(bound.arguments.values())
        kernel, positions = self.kernel_of(values)
        return kernel.launch(*[values[i] for i in positions])

    def kernel_of(self, values: tuple[Any, ...]) -> tuple[JITKernel, tuple[int, ...]]:
        """The kernel of a call with these values of all parameters, and which of them it takes."""
        described, tensors = self.describe(self._names, values)
        known = self._by_call.get(described)
        if known is None:
            known = self._specialise(dict(zip(self._names, values)), _canonical(described), tensors)
            if len(self._by_call) > 4096:
                self._by_call.clear()
            self._by_call[described] = known
        return known

    def describe(self, names: Sequence[str], values: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[str]]:
        """What of the values of these parameters decides which kernel serves a call; and the tensors' devices."""
        described, tensors = _describe_call(values)
        if self.scalars:
            described = tuple(None if n in self.scalars else d for n, d in zip(names, described))
        return described, tensors

    def _specialise(
        self, values: dict[str, Any], described: tuple[Any, ...], tensors: list[str]
    ) -> tuple[JITKernel, tuple[int, ...]]:
        options = self.options()
        target = targets.resolve(self.target, tensors[0] if tensors else None)
        place = (target, options, self.source_identity())
        kernel = next((s.kernel for s in self._specialisations.get(place, ()) if s.serves(described)), None)
        if kernel is None:
            arguments = dict(zip(self._names, described))
            kernel = self._build(arguments, values, {}, target, options)
            pattern = self._pattern(described, kernel)
            self._specialisations.setdefault(place, []).append(_Specialisation(pattern, kernel))
        names = [p.name for p in kernel.manifest.params if p.name not in kernel.manifest.outputs]
        return kernel, tuple(self._names.index(n) for n in names)

    def _pattern(self, described: tuple[Any, ...], kernel: JITKernel) -> tuple[Any, ...]:
        """Which calls this kernel serves, from the shapes that its manifest leaves open."""
        params = {p.name: p for p in kernel.manifest.params}
        pattern: list[Any] = []
        for name, have in zip(self._names, described):
            param = params.get(name)
            if not (isinstance(have, tuple) and have and have[0] == "tensor"):
                pattern.append(None if param is not None else have)
                continue
            if param is None:
                pattern.append(have)
                continue
            fixed = tuple(h if isinstance(e, int) else None for h, e in zip(have[2], param.shape))
            strided = param.strides is not None and all(isinstance(s, int) for s in param.strides)
            pattern.append(("tensor", have[1], fixed, have[3] if strided else None))
        return tuple(pattern)

    def _build(
        self,
        arguments: dict[str, Any],
        values: dict[str, Any],
        sizes: dict[str, int],
        target: Target,
        options: Options,
    ) -> JITKernel:
        from tilelang.frontend.eager import trace_eager

        given = _trace_arguments(arguments, values)
        key = self._disk_key(arguments, values, sizes, target, options)
        if key is not None:
            artifact = kernel_cache().find(key)
            if artifact is not None:
                retrace = functools.partial(trace_eager, self.func, given, sizes)
                return load_artifact(artifact, target, options, retrace)
        kernel = compile_func(trace_eager(self.func, given, sizes), target, options)
        if key is not None:
            kernel_cache().link(key, kernel.manifest.key)
        return kernel

    def _disk_key(
        self, arguments: dict[str, Any], values: dict[str, Any], sizes: dict[str, int], target: Target, options: Options
    ) -> str | None:
        if options.execution != "device":
            return None
        check_target(target, options)
        identity = self.source_identity()
        plain = {n: v for n, v in values.items() if n not in self.scalars and not _is_tensor_note(arguments.get(n))}
        constants = fingerprint.of_values({**plain, **{f"size {n}": s for n, s in sizes.items()}})
        if identity is None or constants is None:
            return None
        tensors = repr({n: a for n, a in arguments.items() if _is_tensor_note(a)})
        full = str(full_target(target))
        return digest("eager", identity, constants, tensors, full, repr(options), fingerprint.toolchain())

    # -- without tensors ---------------------------------------------------------------------------------
    def compile(self, **kwargs: Any) -> JITKernel:
        """A kernel for given sizes and parameters: `f.compile(M=1024, N=1024, block_M=64)`; tensors are left out."""
        values, sizes = self._split(kwargs)
        target = targets.resolve(self.target)
        described = dict.fromkeys(values)
        return self._build(described, values, sizes, target, self.options())

    def get_tir(self, *args: Any, **kwargs: Any) -> Any:
        """The traced function for given sizes and parameters, or for tensors as a call takes them."""
        from tilelang.frontend.eager import trace_eager

        if args:
            bound = self.signature.bind(*args, **kwargs)
            bound.apply_defaults()
            described, _ = _describe_call(tuple(bound.arguments.values()))
            notes = dict(zip(bound.arguments, _canonical(described)))
            return trace_eager(self.func, _trace_arguments(notes, dict(bound.arguments)), {})
        values, sizes = self._split(kwargs)
        return trace_eager(self.func, _trace_arguments(dict.fromkeys(values), values), sizes)

    def get_kernel_source(self, *args: Any, **kwargs: Any) -> str:
        """The generated source for given sizes, or for tensors."""
        if args:
            func = self.get_tir(*args, **kwargs)
            return compile_func(func, targets.resolve(self.target), self.options()).get_kernel_source()
        return self.compile(**kwargs).get_kernel_source()

    def par_compile(self, configs: Sequence[Mapping[str, Any]], num_workers: int | None = None) -> list[JITKernel]:
        """One kernel for each set of keywords."""
        return [self.compile(**c) for c in configs]

    def tensor_names(self) -> set[str]:
        """The parameters that are tensors."""
        from tilelang.frontend.annotations import TensorSpec, is_bare_tensor
        from tilelang.frontend.eager import annotated_in_body
        from tilelang.frontend.trace import annotations_of

        notes = annotations_of(self.func)
        noted = {n for n, note in notes.items() if is_bare_tensor(note) or isinstance(note, TensorSpec)}
        return {n for n in self._names if n in noted or n in annotated_in_body(self.func)}

    def _split(self, kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
        tensors = self.tensor_names()
        values: dict[str, Any] = {}
        for name, parameter in self.signature.parameters.items():
            if name in kwargs:
                values[name] = kwargs.pop(name)
            elif name in tensors:
                values[name] = _ABSENT
            elif parameter.default is not inspect.Parameter.empty:
                values[name] = parameter.default
        return values, {n: int(v) for n, v in kwargs.items()}


class _Absent:
    def __repr__(self) -> str:
        return "<a tensor>"

    def fingerprint_parts(self) -> tuple[str]:
        return ("absent tensor",)


_ABSENT = _Absent()


def _is_tensor_note(note: Any) -> bool:
    return isinstance(note, tuple) and len(note) == 4 and note[0] == "tensor"


def _describe_call(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[str]]:
    """For each argument ("tensor", dtype, shape, strides or None), or the value itself; and the tensors' devices."""
    described: list[Any] = []
    devices: list[str] = []
    for value in values:
        if hasattr(value, "__dlpack__"):
            shape = tuple(value.shape)
            kind = value.dtype
            strides = None
            contiguous = value.flags.c_contiguous if hasattr(value, "flags") else None
            if contiguous is None:
                contiguous = value.is_contiguous() if hasattr(value, "is_contiguous") else True
            if not contiguous:
                raw = value.strides if not callable(getattr(value, "stride", None)) else value.stride()
                step = value.itemsize if not callable(getattr(value, "stride", None)) else 1
                strides = tuple(int(s) // step for s in raw)
            described.append(("tensor", kind, shape, strides))
            device = getattr(value, "device", "cpu")
            devices.append(str(getattr(device, "type", device)))
        else:
            # With its type: 1, 1.0 and True are equal and give different kernels.
            try:
                hash(value)
                described.append((type(value), repr(value) if isinstance(value, (tuple, frozenset)) else value))
            except TypeError:
                described.append((type(value), repr(value)))
    return tuple(described), devices


def _canonical(described: tuple[Any, ...]) -> tuple[Any, ...]:
    """The description of a call with element types of ours in place of numpy's and torch's."""
    return tuple(("tensor", dtype_of(d[1]), d[2], d[3]) if _is_tensor_note(d) else d for d in described)


def _trace_arguments(notes: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    from tilelang.frontend.eager import TensorArgument

    given: dict[str, Any] = {}
    for name, value in values.items():
        note = notes.get(name)
        if note is not None and _is_tensor_note(note):
            given[name] = TensorArgument(note[2], note[1], note[3])
        else:
            given[name] = value
    return given
