"""`@tilelang.autotune(configs=...)` above `@tilelang.jit`: calls that leave tuned parameters out get the best ones."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from tilelang.autotuner.space import Space
from tilelang.autotuner.sweep import Settings
from tilelang.autotuner.tuner import Choice, Request, Tuner
from tilelang.errors import InvalidArgument
from tilelang.ir.dtypes import dtype_of
from tilelang.just_in_time import EagerKernel, LazyKernel
from tilelang.kernel import JITKernel


def autotune(
    func: Any = None,
    *,
    configs: Any = None,
    warmup: float = 25,
    rep: float = 100,
    timeout: float = 60,
    supply_type: Any = None,
    supply_prog: Callable[..., Any] | None = None,
    ref_prog: Callable[..., Any] | None = None,
    rtol: float = 1e-2,
    atol: float = 1e-2,
    max_mismatched_ratio: float = 0.01,
    skip_check: bool = False,
    cache_input_tensors: bool = True,
    do_not_specialize: tuple[str, ...] | list[str] = (),
    shape_class: str = "rounded",
    slack: float | None = 3.0,
    results: Any = None,
    name: str | None = None,
    dynamic_symbolic_constraints: Mapping[str, int] | None = None,
    verbose: bool = True,
) -> Any:
    """Choose parameters of a kernel by measuring, once for each device and class of sizes.

    `configs` is a list of dicts, a dict of lists (their product), a `tilelang.autotuner.Space`, which the model thins out,
    or a function of the call's arguments that returns one of these; left out, it is `Space()`. What a call gives itself
    is not tuned.

    Candidates that cannot run, or that the model gives `slack` times the best one's time (None: all), are not compiled.
    The others are compiled by several processes and measured by one of their own, for about `rep` ms each, with the
    device's cache emptied between calls; a measurement may take `timeout` seconds. Inputs are
    the call's tensors, what `set_autotune_inputs` or `supply_prog(params)` gives, or made as `supply_type` says.
    Results must agree with `ref_prog(*inputs)`, without one with each other (`skip_check`: not at all).

    `results` is a file of results that is read first and written to; without it that in the cache folder. Sizes belong to
    classes (`shape_class="exact"`: each is its own); `do_not_specialize` names arguments that make none.
    `cache_input_tensors` is accepted: candidates always share their inputs.
    """
    given = dict(locals())
    if func is None:
        given.pop("func")
        return functools.partial(autotune, **given)
    if not isinstance(func, (LazyKernel, EagerKernel)):
        raise InvalidArgument(
            f"@tilelang.autotune stands on {getattr(func, '__name__', repr(func))}, which is no kernel of @tilelang.jit",
            found=f"{type(func).__name__}",
            expected="@tilelang.autotune(configs=...) above @tilelang.jit",
            repair="put @tilelang.jit below @tilelang.autotune, directly above the function",
        )
    if shape_class not in ("rounded", "exact"):
        raise InvalidArgument(
            "unknown shape_class",
            found=repr(shape_class),
            expected='"rounded" or "exact"',
            repair='shape_class="exact" tunes every size on its own',
        )
    settings = Settings(
        warmup=warmup,
        rep=rep,
        timeout=timeout,
        supply_type=supply_type,
        supply_prog=supply_prog,
        ref_prog=ref_prog,
        rtol=rtol,
        atol=atol,
        max_mismatched_ratio=max_mismatched_ratio,
        skip_check=skip_check,
        slack=slack,
        dynamic_symbolic_constraints=dict(dynamic_symbolic_constraints or {}),
        verbose=verbose,
    )
    tuner = Tuner(
        func,
        Space() if configs is None else configs,
        settings,
        path=None if results is None else Path(results),
        name=name,
        exact=shape_class == "exact",
        ignore=tuple(do_not_specialize),
    )
    return AutotunedEager(tuner) if isinstance(func, EagerKernel) else AutotunedLazy(tuner)


class _Autotuned:
    """What both styles share."""

    def __init__(self, tuner: Tuner) -> None:
        functools.update_wrapper(cast(Any, self), tuner.kernel.func)
        self.tuner = tuner
        self.signature = tuner.kernel.signature
        around = inspect.getclosurevars(inspect.unwrap(tuner.kernel.func)).nonlocals
        # Of what the function closes over, plain values are sizes too, as its arguments are.
        self.around = {n: v for n, v in sorted(around.items()) if isinstance(v, (bool, int, str))}

    def request(self, *args: Any, **kwargs: Any) -> Request:
        raise NotImplementedError

    def tune(self, *args: Any, **kwargs: Any) -> Choice:
        """Measure for these arguments now, also where a result is known; it replaces that result."""
        return self.tuner.choose(self.request(*args, **kwargs), fresh=True)

    def pack(self, folder: Any, *args: Any, **kwargs: Any) -> None:
        """Compile the sweep of a call into `folder`, which `tilelang.autotuner.measure` takes on another machine."""
        from tilelang.autotuner.plan import pack

        pack(self.tuner, self.request(*args, **kwargs), Path(folder))


class AutotunedLazy(_Autotuned):
    """A factory: `matmul(1024, 1024, 1024)` gives the fastest kernel for these sizes."""

    def request(self, *args: Any, **kwargs: Any) -> Request:
        given = self.signature.bind_partial(*args, **kwargs).arguments
        defaults = {n: p.default for n, p in self.signature.parameters.items() if p.default is not p.empty}
        values = {**defaults, **given}
        sizes = {n: values[n] for n in self.signature.parameters if n in values}
        return Request(dict(given), {**self.around, **sizes})

    def __call__(self, *args: Any, **kwargs: Any) -> JITKernel:
        request = self.request(*args, **kwargs)
        choice = self.tuner.choose(request)
        kernel, choice = self.tuner.first_that_compiles(
            choice, lambda config: self.tuner.kernel(**{**request.given, **config})
        )
        return self.tuner.tuned(kernel, choice)

    compile = __call__


class AutotunedEager(_Autotuned):
    """A kernel function: `matmul(a, b)` runs the fastest kernel for these tensors."""

    def __init__(self, tuner: Tuner) -> None:
        super().__init__(tuner)
        self.jitted = cast(EagerKernel, tuner.kernel)
        self._names = list(self.signature.parameters)
        self._by_call: dict[Any, tuple[JITKernel, tuple[int, ...], tuple[Any, ...]]] = {}

    def request(self, *args: Any, **kwargs: Any) -> Request:
        if any(hasattr(v, "__dlpack__") for v in (*args, *kwargs.values())):
            return self._of_tensors(args, kwargs)
        return self._of_sizes(dict(kwargs))

    def _of_tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Request:
        bound = self.signature.bind_partial(*args, **kwargs)
        given = dict(bound.arguments)
        bound.apply_defaults()
        values = {n: _described(v) for n, v in bound.arguments.items() if n not in self.jitted.scalars}
        sizes = {**self.around, **values}
        tensors = tuple(v for v in given.values() if hasattr(v, "__dlpack__"))
        device = getattr(tensors[0], "device", "cpu")
        return Request(given, sizes, tensors, str(getattr(device, "type", device)))

    def _of_sizes(self, sizes: dict[str, Any]) -> Request:
        """By `T.const` sizes: the tensors' shapes, which the class of a call is made of, are those of a candidate."""
        from tile_runtime.expression import evaluate
        from tilelang.ir.signature import signature

        request = Request(sizes, {})
        configs, _ = self.tuner.candidates(request)
        call = signature(self.jitted.get_tir(**{**sizes, **configs[0]}))
        known = dict(self.tuner.settings.dynamic_symbolic_constraints)
        shapes = {
            p["name"]: {"dtype": p["dtype"], "shape": [evaluate(e, known, {}) for e in p["shape"]]}
            for p in call["params"]
            if p["kind"] == "tensor"
        }
        defaults = {n: p.default for n, p in self.signature.parameters.items() if p.default is not p.empty}
        values = {**defaults, **sizes, **shapes}
        named = {n: values[n] for n in self.signature.parameters if n in values and n not in self.jitted.scalars}
        return Request(sizes, {**self.around, **named})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        names = (*self._names[: len(args)], *kwargs)
        values = (*args, *kwargs.values())
        key = (names, self.jitted.describe(names, values)[0])
        known = self._by_call.get(key)
        if known is None:
            if len(self._by_call) > 4096:
                self._by_call.clear()
            known = self._by_call[key] = self._chosen(args, kwargs, names)
        kernel, places, constants = known
        values = (*values, *constants)
        return kernel.launch(*[values[i] for i in places])

    def _chosen(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], names: tuple[str, ...]
    ) -> tuple[JITKernel, tuple[int, ...], tuple[Any, ...]]:
        """The kernel for a call, where among the call's values its arguments stand, and defaults to put behind them."""
        request = self.request(*args, **kwargs)

        def build(config: Mapping[str, Any]) -> tuple[JITKernel, tuple[int, ...], dict[str, Any]]:
            bound = self.signature.bind(*args, **{**kwargs, **config})
            bound.apply_defaults()
            return (*self.jitted.kernel_of(tuple(bound.arguments.values())), dict(bound.arguments))

        (kernel, positions, bound), choice = self.tuner.first_that_compiles(self.tuner.choose(request), build)
        order = [*names, *(n for n in self._names if n not in names)]
        places = tuple(order.index(self._names[i]) for i in positions)
        return self.tuner.tuned(kernel, choice), places, tuple(bound[n] for n in order[len(names) :])

    def compile(self, **sizes: Any) -> JITKernel:
        """The fastest kernel for given sizes: `f.compile(M=1024, N=1024, K=1024)`."""
        choice = self.tuner.choose(self.request(**sizes))
        kernel, choice = self.tuner.first_that_compiles(
            choice, lambda config: self.jitted.compile(**{**sizes, **config})
        )
        return self.tuner.tuned(kernel, choice)


def _described(value: Any) -> Any:
    """A tensor as its element type and extents; other values as they are."""
    if not hasattr(value, "__dlpack__"):
        return value
    return {"dtype": str(dtype_of(value.dtype)), "shape": [int(n) for n in value.shape]}
