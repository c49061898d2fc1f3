"""`AutoTuner.from_kernel(factory, configs).set_compile_args(...).set_profile_args(...).run()`: tuning as an object."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilelang.autotuner.configurations import Config
from tilelang.autotuner.decorator import AutotunedLazy
from tilelang.autotuner.sweep import Settings
from tilelang.autotuner.tuner import Tuner
from tilelang.errors import InvalidArgument
from tilelang.just_in_time import LazyKernel, jit
from tilelang.kernel import JITKernel


@dataclass(frozen=True)
class AutotuneResult:
    """`latency` and `ref_latency` in ms (None: not measured); `config`, and the `kernel` that it gives."""

    latency: float | None
    config: Config
    ref_latency: float | None
    kernel: JITKernel

    @property
    def libcode(self) -> str:
        """The generated source."""
        return self.kernel.get_kernel_source()

    @property
    def func(self) -> Any:
        """The traced function."""
        return self.kernel.prim_func


class AutoTuner:
    """Tunes a factory whose parameters are all to be chosen; its sizes are what it closes over.

    A factory under `@tilelang.jit` keeps the options that it was given there.
    """

    def __init__(self, kernel: Any, configs: Any) -> None:
        self._kernel, self._configs = kernel, configs
        self._compile: dict[str, Any] = {}
        self._settings = Settings()
        self._path: Path | None = None

    @classmethod
    def from_kernel(cls, kernel: Callable[..., Any], configs: Any) -> AutoTuner:
        """A tuner of a factory, with its configurations in any form that `tilelang.autotune` takes."""
        return cls(kernel, configs)

    def set_compile_args(
        self,
        out_idx: Any = None,
        target: Any = None,
        execution_backend: str | None = None,
        target_host: Any = None,
        verbose: bool | None = None,
        pass_configs: Mapping[Any, Any] | None = None,
    ) -> AutoTuner:
        """Options of `tilelang.jit`. InvalidArgument for a factory that is under it already."""
        if isinstance(self._kernel, LazyKernel):
            raise InvalidArgument(
                "set_compile_args is for a plain factory",
                found=f"{self._kernel.func.__name__} under @tilelang.jit",
                expected="the options in @tilelang.jit(...), or a function without it",
                repair="move the options to @tilelang.jit",
            )
        self._compile = {
            "out_idx": out_idx,
            "target": target,
            "execution_backend": execution_backend,
            "verbose": verbose,
            "pass_configs": pass_configs,
        }
        return self

    def set_profile_args(self, *, results: Any = None, **settings: Any) -> AutoTuner:
        """How candidates are measured: the keywords of `tilelang.autotune` from `warmup` to `verbose`, and `results`."""
        settings.pop("cache_input_tensors", None)
        known = [f.name for f in dataclasses.fields(Settings)]
        unknown = [n for n in settings if n not in known]
        if unknown:
            raise InvalidArgument(
                f"set_profile_args has no keyword {unknown[0]!r}",
                found=f"{unknown[0]}={settings[unknown[0]]!r}",
                expected=", ".join([*known, "results"]),
                repair=f"drop {unknown[0]}",
            )
        self._settings = dataclasses.replace(self._settings, **settings)
        self._path = self._path if results is None else Path(results)
        return self

    def run(
        self, warmup: float | None = None, rep: float | None = None, timeout: float | None = None
    ) -> AutotuneResult:
        """The fastest kernel: from results, or by a sweep."""
        given: dict[str, Any] = {"warmup": warmup, "rep": rep, "timeout": timeout}
        self._settings = dataclasses.replace(self._settings, **{n: v for n, v in given.items() if v is not None})
        kernel = self._tuned()()
        return AutotuneResult(kernel.latency, dict(kernel.config or {}), kernel.ref_latency, kernel)

    def pack(self, folder: Any) -> None:
        """Compile the sweep into `folder`, to be measured elsewhere."""
        self._tuned().pack(folder)

    def _tuned(self) -> AutotunedLazy:
        kernel = self._kernel if isinstance(self._kernel, LazyKernel) else jit(self._kernel, **self._compile)
        if not isinstance(kernel, LazyKernel):
            raise InvalidArgument(
                "AutoTuner is for factories of kernels",
                found=f"{getattr(self._kernel, '__name__', self._kernel)}, whose body is the kernel (the eager style)",
                expected="a function that returns a T.prim_func, with parameters to choose",
                repair="put @tilelang.autotune(configs=...) above @tilelang.jit and call it with tensors",
            )
        return AutotunedLazy(Tuner(kernel, self._configs, self._settings, path=self._path))
