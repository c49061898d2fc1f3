"""A compiled kernel, and the way to one from a traced function: `tilelang.compile`, `tilelang.lower`, `tilelang.load`.

Traced function -> verify -> level-2 key -> cache, or the target's compiler -> artifact -> the device's runtime.
Compiler and runtime are found by entry points.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tile_runtime import registry
from tile_runtime.artifact import Artifact
from tile_runtime.cache import Cache
from tile_runtime.entry_points import entry_points
from tilelang import cache_control, fingerprint
from tilelang import target as targets
from tilelang.device_code import DeviceCode
from tilelang.errors import InvalidArgument, OutputError, TargetUnavailable, TileLangError, UnknownOption
from tilelang.location import of_span
from tilelang.options import Options, PassConfigKey, make_options
from tilelang.report import KernelReport
from tilelang.target import Target


def kernel_cache() -> Cache:
    return Cache(enabled=cache_control.is_cache_enabled())


class JITKernel(DeviceCode):
    """A compiled kernel: call it with all parameters, or with all but its outputs, which are then allocated.

    Returns the outputs (one: itself, several: a list), also when they were passed; None if there are none.
    """

    #: Set by the autotuner: what it chose, and the milliseconds of a call that were measured, if they were.
    config: dict[str, Any] | None = None
    latency: float | None = None
    ref_latency: float | None = None

    def __init__(self, loaded: Any, target: Target, options: Options, func: Any = None) -> None:
        self._func = func
        self._completing = threading.Lock()
        self.target = target
        self.options = options
        self._take(loaded)
        self._names = [p.name for p in self.manifest.params]

    def _take(self, loaded: Any) -> None:
        self._loaded = loaded
        self.manifest = loaded.manifest
        self.launch: Callable[..., Any] = loaded._launch
        if self._func is not None and options_allow_variants(self.options):
            loaded.complete = functools.partial(self._complete, loaded)

    def _complete(self, loaded: Any) -> Any:
        """For a call that no variant of `loaded` serves: the kernel with the next variant too."""
        with self._completing:
            if self._loaded is loaded:
                artifact = self._joined(loaded.artifact)
                self._take(load_on_device(artifact, self.target, self.options))
        return self._loaded

    def _joined(self, artifact: Artifact) -> Artifact:
        return joined(artifact, self.prim_func, self.target, self.options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            args = self._positional(args, kwargs)
        return self.launch(*args)

    def _positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        rest = self._names[len(args) :]
        unknown = [n for n in kwargs if n not in rest]
        outputs = self.manifest.outputs
        given = any(o in kwargs for o in outputs)
        missing = [n for n in rest if n not in kwargs and (n not in outputs or given)]
        if unknown or missing:
            from tile_runtime.errors import ArgumentCountError

            what = f"no parameter {unknown[0]!r} left to fill" if unknown else f"no value for {', '.join(missing)}"
            raise ArgumentCountError(f"{self.manifest.name}({', '.join(self._names)}): the call has {what}")
        return (*args, *(kwargs[n] for n in rest if n in kwargs))

    def prepare(self, *args: Any) -> Callable[..., Any]:
        """A function for arguments of the same shapes and dtypes that skips every other check."""
        return self._loaded.prepare(*args)

    @property
    def artifact(self) -> Artifact:
        """The `tile_runtime.artifact.Artifact` that this kernel was loaded from."""
        artifact: Artifact = self._loaded.artifact
        return artifact

    @property
    def prim_func(self) -> Any:
        """The traced `tirx.PrimFunc`; None when the kernel came from the cache without being traced."""
        return self._func() if isinstance(self._func, functools.partial) else self._func

    @property
    def params(self) -> Sequence[Any]:
        """The parameters as the manifest describes them."""
        return self.manifest.params

    @property
    def out_idx(self) -> list[int]:
        return [self._names.index(n) for n in self.manifest.outputs]

    def get_kernel_source(self, kernel_only: bool = True) -> str:
        """The generated source: CUDA or HIP C++, or the loops of a CPU kernel."""
        return self.artifact.source or ""

    def get_host_source(self) -> str:
        """The Python text that checks arguments and launches."""
        return str(self._loaded.source)

    def show_source(self) -> None:
        """Print the generated source."""
        print(self.get_kernel_source())

    print_source_code = show_source

    def export_sources(self, kernel_path: Any = None, host_path: Any = None) -> None:
        """Write the generated source, the Python text of the host, or both to files."""
        for path, text in ((kernel_path, self.get_kernel_source()), (host_path, self.get_host_source())):
            if path is not None:
                Path(path).write_text(text, encoding="utf-8")

    def report(self, every_variant: bool = False) -> KernelReport:
        """What the compiler decided and why: instructions, layouts, traffic, resources, time; what it could not prove.

        It speaks of the variants that calls have needed so far; `every_variant` compiles the others now. After a call in
        the emulator `emulated` holds what that counted, beside the prediction.
        """
        found = KernelReport.of(self._completed() if every_variant else self.artifact)
        counted = getattr(getattr(self._loaded, "backend", None), "counted", None)
        return KernelReport({**found, "emulated": dict(counted)}) if counted else found

    def export(self, path: Any) -> None:
        """Write the artifact (one `.tile` file) for another process or machine; `tilelang.load(path)` reads it.

        It holds all variants of the kernel: those that no call has needed yet are compiled now.
        """
        self._completed().save(path)

    export_library = export

    def _completed(self) -> Artifact:
        """The artifact with all variants."""
        artifact: Artifact = self.artifact
        if self._func is None:
            return artifact
        return completed(artifact, lambda: self.prim_func, self.target, self.options)

    def get_profiler(self, tensor_supply_type: Any = None) -> Any:
        """A `Profiler` for this kernel."""
        from tilelang.profiler import Profiler, TensorSupplyType

        return Profiler(self, tensor_supply_type or TensorSupplyType.Auto)

    def __repr__(self) -> str:
        how = self.options.execution if self.options.execution != "device" else str(self.target)
        return f"<JITKernel {self.manifest.name} ({', '.join(self._names)}) on {how}>"


# -- compiling ------------------------------------------------------------------------------------------------


def with_outputs(func: Any, out_idx: int | Sequence[int] | None) -> Any:
    """The PrimFunc with its outputs marked; negative indices count from the end."""
    from tilelang.ir import signature

    if out_idx is None:
        return func
    if func.attrs is not None and "tl.outputs" in func.attrs:
        raise OutputError(
            "out_idx is given for a function that returns its outputs",
            found=f"out_idx={out_idx!r}",
            expected="one of the two",
            repair="drop out_idx: T.empty and return say the same",
        )
    names = [d["name"] for d in signature.described(func)]
    wanted = [out_idx] if isinstance(out_idx, int) else list(out_idx)
    indices = []
    for i in wanted:
        if not isinstance(i, int) or not -len(names) <= i < len(names):
            raise OutputError(
                "out_idx names no parameter",
                found=f"out_idx={out_idx!r} for ({', '.join(names)})",
                expected=f"indices from {-len(names)} to {len(names) - 1}",
                repair=f"out_idx=[{len(names) - 1}] makes {names[-1]} the output" if names else "add a parameter",
            )
        indices.append(i % len(names))
    return func.with_attr("tl.outputs", indices)


def canonical_text(func: Any) -> str:
    """The IR without spans or source positions: equal kernels give equal text."""
    return str(func.without_attr("tl.source").script(show_meta=True))


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def level2_key(func: Any, target: Target, options: Options) -> str:
    parts = [canonical_text(func), str(full_target(target)), options.key(), fingerprint.toolchain()]
    return digest("kernel", *parts, *([places(func)] if options.execution == "emulate" else []))


def places(func: Any) -> str:
    """Where every statement stands in the user's files: what the emulator's findings say."""
    from tilelang.ir import tile_ir

    found = (of_span(getattr(node, "span", None)) for node in tile_ir.walk(func.body))
    return ",".join(dict.fromkeys(str(place) for place in found if place is not None))


def full_target(target: Target) -> Target:
    """The target with the host's processor named: code for one must not be loaded on another."""
    if target.kind != "cpu" or target.arch:
        return target
    return Target("cpu", str(registry.device("cpu").arch()), target.options)


def check_emulation(target: Target, options: Options) -> None:
    """Only text for GPUs can be emulated."""
    if options.execution == "emulate" and target.kind not in ("cuda", "hip"):
        raise TargetUnavailable(
            f'execution="emulate" runs generated CUDA and HIP text, and the target is {target}',
            found=f"target {target}",
            expected='a target of theirs, for example "cuda -arch=sm_80" or "hip -mcpu=gfx942"',
            repair='name one, or use execution="interpret", which runs any kernel tile by tile in numpy',
        )


def check_target(target: Target, options: Options) -> None:
    """Whether this installation compiles for the target, and runs it as the options say."""
    check_emulation(target, options)
    if options.execution != "interpret" and targets.compiler_for(target.kind) is None:
        raise TargetUnavailable(
            f"this installation cannot compile for {target}",
            found="installed compilers: " + (", ".join(_compilers()) or "none"),
            expected="a package that provides the target",
            repair="TILELANG_TARGET_OVERRIDE=cpu runs the program on the CPU, TILELANG_EXECUTION=interpret in numpy; "
            "`pip install tile-lang[cpu]` installs the CPU target",
        )


def _compilers() -> list[str]:
    return sorted({e.name for e in entry_points("tile_compiler.targets")})


class _Deferred:
    """An artifact for a device that this machine lacks: everything but the call works."""

    def __init__(self, artifact: Any, reason: Exception) -> None:
        self.artifact, self.manifest, self.source, self.reason = artifact, artifact.manifest, "", reason

    def _launch(self, *args: Any) -> Any:
        raise TargetUnavailable(
            f"{self.manifest.name} was compiled for {self.manifest.target.kind} and cannot run here",
            found=str(self.reason),
            expected="a working device of that kind",
            repair="TILELANG_TARGET_OVERRIDE=cpu runs the program on the CPU; TILELANG_EXECUTION=emulate runs the "
            "generated text on the CPU, thread by thread; TILELANG_EXECUTION=interpret runs the tiles in numpy",
        ) from self.reason

    prepare = _launch


def load_artifact(artifact: Any, target: Target, options: Options, func: Any = None) -> JITKernel:
    """A kernel of a compiled artifact, on its device or in the emulator; calling it is an error where neither is.

    `func` is the traced function, or a partial that traces it: with it the kernel can compile further variants.
    """
    return JITKernel(load_on_device(artifact, target, options), target, options, func)


def load_on_device(artifact: Any, target: Target, options: Options) -> Any:
    """The runtime's own object for an artifact."""
    from tile_runtime.errors import DeviceUnavailable

    if options.execution == "emulate":
        from tilelang import interpret
        from tilelang.interpreter.extern import externs

        emulate = registry.device("cpu").emulate  # type: ignore[attr-defined]
        return emulate(artifact, externs, lambda: interpret.hook)
    try:
        return registry.device(target.device).load(artifact)
    except DeviceUnavailable as reason:
        if target.kind == "cpu":
            raise
        return _Deferred(artifact, reason)


def is_partial(manifest: Any) -> bool:
    """Whether there are calls that none of the compiled variants serves."""
    return bool(manifest.variants) and manifest.variants[-1].guard is not None


def options_allow_variants(options: Options) -> bool:
    """Whether variants are compiled as calls need them; a user who names one (`tl.variant`) gets that one alone."""
    return options.execution != "interpret" and options.get(PassConfigKey.TL_VARIANT) is None


def compile_func(func: Any, target: Target, options: Options) -> JITKernel:
    """A traced function as a kernel, through the cache."""
    check_target(target, options)
    from tilelang.ir.verify import verify

    verify(func)
    if options.execution == "interpret":
        from tilelang import interpret

        return JITKernel(interpret.load(func), target, options, func)
    return load_artifact(compiled(func, target, options), target, options, func)


#: Called with (traced function, target, artifact) for each compilation of this process: tools that watch programs.
observers: list[Callable[[Any, Target, Artifact], None]] = []


def compiled(func: Any, target: Target, options: Options) -> Artifact:
    """The artifact of a traced function, from the cache or the target's compiler."""
    cache = kernel_cache()
    key = level2_key(func, target, options)
    artifact = cache.get(key)
    if artifact is None:
        entry = targets.compiler_for(target.kind)
        artifact = entry.load().compile(func, target=target, options=options, key=key)
        cache.put(key, artifact)
        for tell in observers:
            tell(func, target, artifact)
    return artifact


def joined(artifact: Artifact, func: Any, target: Target, options: Options) -> Artifact:
    """With the kernel compiled for more calls, from the cache or by the compiler."""
    level = len(artifact.manifest.variants)
    more = compiled(func, target, options.with_config(PassConfigKey.TL_VARIANT, level))
    join = getattr(targets.compiler_for(target.kind).load(), "join", Artifact.joined)
    together: Artifact = join(artifact, more)
    return together


UNSUPPORTED = "TL203"  # the compiler's UnsupportedOnTarget (docs/errors.md)


def completed(artifact: Artifact, func: Callable[[], Any], target: Target, options: Options) -> Artifact:
    """With all variants of the kernel: it serves every call where there is no compiler. `func` gives the traced function.

    Calls that the target has no instructions for (T.tma_copy of rows at any address) are served by none.
    """
    while is_partial(artifact.manifest) and options_allow_variants(options):
        try:
            artifact = joined(artifact, func(), target, options)
        except TileLangError as error:
            if error.code != UNSUPPORTED:
                raise
            break
    return artifact


def build(func: Any, target: Target, options: Options) -> Artifact:
    """A traced function as an artifact with all variants, for a device that need not be here; nothing is loaded."""
    check_target(target, options)
    from tilelang.ir.verify import verify

    verify(func)
    return completed(compiled(func, target, options), lambda: func, target, options)


def compile(
    func: Any = None,
    out_idx: int | Sequence[int] | None = None,
    target: Any = None,
    execution_backend: str | None = None,
    *,
    execution: str | None = None,
    target_host: Any = None,
    verbose: bool | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    compile_flags: Any = None,
) -> JITKernel:
    """A `T.prim_func` as a callable kernel.

    `out_idx` names parameters that a call may leave out and gets back. `target` is text, a dict or a TVM target
    (docs: targets); `execution` is "device" or "interpret".
    """
    if not hasattr(func, "with_attr"):
        raise InvalidArgument(
            "tilelang.compile needs a T.prim_func",
            found=f"{type(func).__name__} {getattr(func, '__name__', repr(func))}"[:160],
            expected="what @T.prim_func returns (call the factory first)",
            repair="tilelang.compile(matmul(1024, 1024, 1024, 128, 128, 32))",
        )
    options = make_options(
        execution=execution,
        execution_backend=execution_backend,
        pass_configs=pass_configs,
        verbose=verbose,
        compile_flags=compile_flags,
    )
    return compile_func(with_outputs(func, out_idx), targets.resolve(target), options)


def load(path: Any, *, execution: str | None = None) -> JITKernel:
    """A kernel that `kernel.export(path)` wrote; needs neither TVM nor a compiler.

    `execution`: "device" or "emulate" (a GPU kernel's text, on the host); left out, TILELANG_EXECUTION says, else device.
    One that was compiled for the emulator holds no binary and runs there again.
    """
    artifact = Artifact.load(path)
    kinds = {b.file: b.kind for b in artifact.manifest.binaries}
    if {kinds[launch.binary] for v in artifact.manifest.variants for launch in v.launches} == {"source"}:
        execution = execution or "emulate"
    target = Target(artifact.manifest.target.kind, artifact.manifest.target.arch)
    options = make_options(execution=execution)
    if options.execution == "interpret":
        raise UnknownOption(
            f"{artifact.manifest.name} cannot be interpreted",
            found="an artifact, which holds no tile IR",
            expected='execution="device" or "emulate"',
            repair="interpret the function itself: tilelang.compile(func, execution='interpret')",
        )
    check_emulation(target, options)  # no compiler is needed
    return load_artifact(artifact, target, options)


@dataclass(frozen=True)
class CompiledArtifact:
    """What `tilelang.lower` gives: the source and everything behind it, without loading it."""

    artifact: Any
    kernel_source: str
    host_mod: Any = None
    device_mod: Any = None
    params: Any = None


def lower(
    func: Any,
    target: Any = None,
    *,
    pass_configs: Mapping[Any, Any] | None = None,
    out_idx: int | Sequence[int] | None = None,
    **_: Any,
) -> CompiledArtifact:
    """Compile without loading: `.kernel_source` is the generated text, `.artifact` the rest. Needs no device."""
    options = make_options(execution="device", pass_configs=pass_configs)
    chosen = targets.resolve(target)
    check_target(chosen, options)
    marked = with_outputs(func, out_idx)
    from tilelang.ir.verify import verify

    verify(marked)
    key = level2_key(marked, chosen, options)
    artifact = targets.compiler_for(chosen.kind).load().compile(marked, target=chosen, options=options, key=key)
    return CompiledArtifact(artifact, artifact.source or "", params=artifact.manifest.params)
