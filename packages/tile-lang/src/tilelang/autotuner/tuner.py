"""Choosing a configuration for a call: from a file of results, from memory, or by a sweep now."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import logging
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilelang import fingerprint
from tilelang import target as targets
from tilelang.autotuner import inputs, results
from tilelang.autotuner.classes import arch_of, device_key, shape_class
from tilelang.autotuner.configurations import Config, called, configurations, plain_config
from tilelang.autotuner.results import Record
from tilelang.autotuner.space import Space
from tilelang.autotuner.sweep import Settings, Sweep
from tilelang.errors import BadTuningFile, InvalidArgument, TileLangError, TuningFailed
from tilelang.just_in_time import EagerKernel, LazyKernel
from tilelang.kernel import JITKernel
from tilelang.target import Target

_LOG = logging.getLogger("tilelang.autotuner")
_given_inputs: contextvars.ContextVar[tuple[Any, ...] | None] = contextvars.ContextVar("inputs", default=None)


@contextlib.contextmanager
def set_autotune_inputs(*values: Any) -> Iterator[None]:
    """Within `with set_autotune_inputs(a, b):` candidates are measured on these arguments (also: one list of them)."""
    whole = tuple(values[0]) if len(values) == 1 and isinstance(values[0], (list, tuple)) else values
    token = _given_inputs.set(whole)
    try:
        yield
    finally:
        _given_inputs.reset(token)


@dataclass(frozen=True)
class Request:
    """What a call asks for: `given` by the caller by name, `sizes` that decide the class, tensors among the values."""

    given: dict[str, Any]
    sizes: dict[str, Any]
    tensors: tuple[Any, ...] = ()
    device: str | None = None


@dataclass(frozen=True)
class Choice:
    """The chosen configuration, and the record that it stands in (None: nothing was measured)."""

    config: Config
    record: Record | None


class Tuner:
    """One function under `@tilelang.jit`, and how its parameters are to be chosen."""

    def __init__(
        self,
        kernel: LazyKernel | EagerKernel,
        configs: Any,
        settings: Settings,
        *,
        path: Path | None = None,
        name: str | None = None,
        exact: bool = False,
        ignore: Sequence[str] = (),
    ) -> None:
        self.kernel, self.configs, self.settings = kernel, configs, settings
        self.path, self.exact, self.ignore = path, exact, tuple(ignore)
        self.name = name or str(getattr(kernel.func, "__qualname__", "kernel")).replace("<locals>.", "")
        self.parameters = list(kernel.signature.parameters)
        unknown = [n for n in self.ignore if n not in self.parameters]
        if unknown:
            raise InvalidArgument(
                f"do_not_specialize names no parameter of {self.name}",
                found=f"{unknown[0]!r}",
                expected=f"names among {', '.join(self.parameters)}",
                repair=f"drop {unknown[0]!r}",
            )
        self._known: dict[tuple[str, str], Choice] = {}
        self._tuning = threading.RLock()

    # -- the question ------------------------------------------------------------------------------------------------

    def choose(self, request: Request, *, fresh: bool = False) -> Choice:
        """The configuration for a call; `fresh` measures even where a result is known."""
        target = targets.resolve(self.kernel.target, request.device)
        configs, keep = self.candidates(request)
        if len(configs) == 1 and not fresh:
            return Choice(configs[0], None)
        key = (str(target), shape_class(self.class_of(request, configs), exact=self.exact))
        with self._tuning:
            if not fresh and key in self._known:
                return self._known[key]
            record = None if fresh else self._stored(target, key[1], configs)
            if record is not None:
                choice = Choice(self._as_config(record["config"], configs), record)
            else:
                choice = self._swept(request, target, key[1], configs, keep)
            self._known[key] = choice
            return choice

    def candidates(self, request: Request) -> tuple[list[Config], int | None]:
        """The configurations of the parameters that the caller left open, and how many of them the model may keep."""
        found = self.configs
        if callable(found):
            found = called(found, {**_defaults(self.kernel.signature), **request.given})
        keep = None
        if isinstance(found, Space):
            keep = found.keep
            free = [n for n in self.parameters if n not in request.given and not self._is_tensor(n)]
            listed = found.configs(free)
        else:
            listed = configurations(found, self.parameters)
        fixed = [n for n in listed[0] if n in request.given]
        if fixed:
            fitting = [c for c in listed if all(c[n] == request.given[n] for n in fixed)] or listed
            listed = _unique([{n: v for n, v in c.items() if n not in fixed} for c in fitting])
        return listed, keep

    def _is_tensor(self, name: str) -> bool:
        if not isinstance(self.kernel, EagerKernel):
            return False
        return name in self.kernel.tensor_names()

    def class_of(self, request: Request, configs: Sequence[Config]) -> dict[str, Any]:
        """The arguments that decide the class: those that are neither tuned, nor ignored, nor left at their defaults."""
        left = {*configs[0], *self.ignore}
        parameters = self.kernel.signature.parameters
        usual = {n: p.default for n, p in parameters.items() if p.default is not p.empty}
        plainly = {n: v for n, v in request.sizes.items() if n not in left}
        return {n: v for n, v in plainly.items() if n not in usual or type(v) is not type(usual[n]) or v != usual[n]}

    # -- what is known already ---------------------------------------------------------------------------------------

    @functools.cached_property
    def source(self) -> str | None:
        """The identity of the function's text and of what it closes over; None where some value has none."""
        return fingerprint.of_function(self.kernel.func)

    def _stored(self, target: Target, name: str, configs: Sequence[Config]) -> Record | None:
        """A result of the user's file, or one of the cache that is of this text and these configurations."""
        device, arch = device_key(target), arch_of(target)
        if self.path is not None:
            record = results.find(results.read(self.path), self.name, device, arch, name)
            if record is not None:
                return record
        if not results.cache_is_enabled() or self.source is None:
            return None
        path = results.default_path()
        try:
            record = results.find(results.read(path), self.name, device, arch, name)
        except BadTuningFile as error:  # of the cache: it will be written anew
            _LOG.warning("%s", error)
            path.unlink(missing_ok=True)
            return None
        if record is None or record.get("source") != self.source:
            return None
        tried = [c.get("config") for c in record.get("candidates", [])]
        return record if all(plain_config(c) in tried for c in configs) else None

    def _as_config(self, stored: Mapping[str, Any], configs: Sequence[Config]) -> Config:
        """The configuration that a file means. BadTuningFile where the function has no such parameters."""
        for config in configs:
            if plain_config(config) == stored:
                return config
        unknown = [n for n in stored if n not in self.parameters]
        if unknown:
            raise BadTuningFile(
                f"a result of {self.name} sets a parameter that the function does not have",
                found=f"{unknown[0]!r} in {self.path or results.default_path()}",
                expected=f"names among {', '.join(self.parameters)}",
                repair="tune again, or take the entry out of the file",
            )
        return dict(stored)

    # -- measuring now -----------------------------------------------------------------------------------------------

    def sweep(self, request: Request, target: Target, configs: list[Config], keep: int | None) -> Sweep:
        """The sweep of a call, planned: candidates are traced and pruned."""
        sizes = {n: v for n, v in request.sizes.items() if n not in configs[0]}
        trace = functools.partial(self._trace, request)
        sweep = Sweep(
            self.name,
            configs,
            trace,
            target,
            self.kernel.options(),
            self.settings,
            sizes,
            self.source,
            keep,
        )
        sweep.plan()
        return sweep

    def _trace(self, request: Request, config: Config) -> Any:
        from tilelang.kernel import with_outputs

        values = {**request.given, **config}
        if isinstance(self.kernel, LazyKernel):
            return with_outputs(self.kernel.get_tir(**values), self.kernel.out_idx)
        if request.tensors:
            bound = self.kernel.signature.bind(**values)
            return self.kernel.get_tir(*bound.args, **bound.kwargs)
        return self.kernel.get_tir(**values)

    def _swept(self, request: Request, target: Target, name: str, configs: list[Config], keep: int | None) -> Choice:
        reason = self._no_measuring(target)
        if reason is None:
            self._refuse_capture()
        sweep = self.sweep(request, target, configs, keep)
        if reason is not None:
            best = sweep.best()
            _LOG.warning("%s: %s is chosen unmeasured: %s", self.name, best.config, reason)
            return Choice(best.config, None)
        with tempfile.TemporaryDirectory(prefix="tilelang-tune-") as temporary:
            folder = Path(temporary)
            sweep.compile(folder)
            how, reference = self.prepare(sweep, request, folder)
            sweep.measure(folder, how, reference)
        record = sweep.record()
        found: results.Results = {self.name: {str(device_key(target)): {name: record}}}
        for path in self._destinations():
            results.add(path, found)
        return Choice(sweep.best().config, record)

    def _destinations(self) -> list[Path]:
        if self.path is not None:
            return [self.path]
        return [results.default_path()] if results.cache_is_enabled() and self.source is not None else []

    def _no_measuring(self, target: Target) -> str | None:
        """Why nothing can be measured here, or None."""
        from tile_runtime import registry
        from tile_runtime.errors import TileRuntimeError

        execution = self.kernel.options().execution
        if execution != "device":
            return f'execution="{execution}" has no time worth measuring'
        try:
            available = registry.device(target.device).is_available()
        except TileRuntimeError as error:
            return str(error)
        return None if available.ok else f"{available.reason}; pack() a sweep here and measure it where the device is"

    def _refuse_capture(self) -> None:
        """A CUDA graph that is being captured would record the measurements."""
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise TuningFailed(
                f"{self.name} is to be tuned while a CUDA graph is captured",
                found="no stored result for this call's sizes, so candidates would be measured now",
                expected="tuning before the capture begins",
                repair="call the kernel once with these arguments before the capture",
            )

    def prepare(self, sweep: Sweep, request: Request, folder: Path, *, here: bool = True) -> tuple[dict[str, Any], Any]:
        """Which inputs the candidates are measured on, and the reference's results for them, both written to `folder`.

        Where nobody gave any, and no reference needs them, the measuring process makes them itself. `here`: this machine
        has the device, so the reference runs on it and is timed.
        """
        settings = self.settings
        kernel = _Described(sweep)
        made: dict[str, Any] = {
            "supply": settings.supply,
            "seed": 0,
            "sizes": dict(settings.dynamic_symbolic_constraints),
        }
        values = self._values(request, kernel)
        if settings.ref_prog is None or settings.skip_check:
            return ({"saved": inputs.save(values, folder, "input")} if values is not None else made), None
        if values is None:
            from tilelang.profiler import Profiler, TensorSupplyType

            values = Profiler(kernel, TensorSupplyType[settings.supply], host=not here).inputs(made["sizes"])
        saved = inputs.save(values, folder, "input")
        expected = settings.ref_prog(*[inputs.copied(v) for v in values])
        expected = list(expected) if isinstance(expected, (list, tuple)) else [expected]
        if here:
            sweep.reference_ms = self._reference_ms(sweep, values)
        return {"saved": saved}, inputs.save(expected, folder, "reference")

    def _values(self, request: Request, kernel: Any) -> list[Any] | None:
        """The arguments that the user gives for measuring, of the parameters that a call passes."""
        given = _given_inputs.get()
        if given is not None:
            return list(given)
        if self.settings.supply_prog is not None:
            passed = [p for p in kernel.manifest.params if p.name not in kernel.manifest.outputs]
            return list(self.settings.supply_prog(passed))
        if request.tensors:
            names = [p.name for p in kernel.manifest.params if p.name not in kernel.manifest.outputs]
            return [request.given[n] for n in names]
        return None

    def _reference_ms(self, sweep: Sweep, values: list[Any]) -> float:
        from tilelang.profiler import do_bench

        reference = self.settings.ref_prog
        assert reference is not None
        device = sweep.target.device
        return float(do_bench(lambda: reference(*values), 5, 20, return_mode="median", device=device))  # type: ignore[arg-type]

    # -- the kernel --------------------------------------------------------------------------------------------------

    def tuned(self, kernel: JITKernel, choice: Choice) -> JITKernel:
        """The kernel, saying how it was chosen."""
        record = choice.record or {}
        kernel.config = choice.config
        kernel.latency = record.get("ms")
        kernel.ref_latency = record.get("reference_ms")
        return kernel

    def first_that_compiles(self, choice: Choice, build: Any) -> tuple[Any, Choice]:
        """`build(config)` for the choice, or, where a result of other sizes of the class does not compile, for the next."""
        order = [choice.config]
        if choice.record is not None:
            order += [dict(c) for c in results.sorted_candidates(choice.record)[1:]]
        first: Exception | None = None
        for config in order:
            try:
                return build(config), Choice(config, choice.record)
            except (TileLangError, ValueError) as error:
                if choice.record is None:
                    raise
                first = first or error
                _LOG.warning("%s: %s of the results does not compile here: %s", self.name, config, error)
        assert first is not None
        raise first


class _Described:
    """The parameters of a sweep's kernels, as `Profiler` reads them off a kernel, without loading one."""

    def __init__(self, sweep: Sweep) -> None:
        from tile_runtime.artifact import Artifact

        first = next(c for c in sweep.candidates if c.open and c.artifact is not None)
        assert first.artifact is not None
        self.manifest = Artifact.load(first.artifact).manifest
        self.target, self.options = sweep.target, sweep.options


def _defaults(signature: inspect.Signature) -> dict[str, Any]:
    return {n: p.default for n, p in signature.parameters.items() if p.default is not p.empty}


def _unique(configs: Sequence[Config]) -> list[Config]:
    found: list[Config] = []
    for config in configs:
        if config not in found:
            found.append(config)
    return found
