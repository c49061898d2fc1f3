"""Timing a kernel: `kernel.get_profiler().do_bench()` and `tilelang.profiler.do_bench(fn)`, in milliseconds."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilelang.errors import UnboundDimension


class TensorSupplyType(enum.Enum):
    """How `Profiler` makes inputs. Auto: floats uniform in -1..1, integers -2..2, unsigned 0..2."""

    Integer = 1
    Uniform = 2
    Normal = 3
    Randn = 4
    Zero = 5
    One = 6
    Auto = 7


def do_bench(
    fn: Callable[..., Any],
    warmup: float = 25,
    rep: float = 100,
    *,
    inputs: Sequence[tuple[Any, ...]] = ((),),
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    device: str = "cpu",
    backend: str = "event",
    fast_flush: bool = True,
) -> float | list[float]:
    """Milliseconds of one call of `fn`: about `warmup` ms of calls first, then about `rep` ms of timed ones.

    `inputs` are tuples of arguments that the calls take in turn. `return_mode` is mean, median, min or max;
    `quantiles` gives a list instead. `backend` is accepted and chosen by the device.
    """
    from tile_runtime import profiler as runtime_profiler
    from tile_runtime import registry

    hooks = registry.device(device).profile_hooks()
    if quantiles is None:
        return runtime_profiler.do_bench(fn, hooks, warmup, rep, inputs, return_mode)
    times: list[float] = []
    runtime_profiler.do_bench(fn, hooks._replace(time=_recording(hooks.time, times)), warmup, rep, inputs)
    return [float(q) * 1e3 for q in np.quantile(times[3:], list(quantiles))]


def _recording(time: Callable[..., list[float]], times: list[float]) -> Callable[..., list[float]]:
    def record(call: Callable[[], object], repeats: int) -> list[float]:
        new = time(call, repeats)
        times.extend(new)
        return new

    return record


class Profiler:
    """Runs a kernel on inputs of its own making: correctness against a reference, and time."""

    def __init__(
        self, kernel: Any, tensor_supply_type: TensorSupplyType = TensorSupplyType.Auto, host: bool = False
    ) -> None:
        """`host`: inputs for a GPU's kernel stay in the host's memory, where there may be no GPU."""
        self.kernel = kernel
        self.supply = tensor_supply_type
        self.host = host

    def inputs(self, dynamic_symbolic_constraints: dict[str, int] | None = None, seed: int = 0) -> list[Any]:
        """One argument for each parameter that a call must pass."""
        from tile_runtime.expression import evaluate

        manifest = self.kernel.manifest
        sizes = dict(dynamic_symbolic_constraints or {})
        missing = [d.name for d in manifest.dims if d.name not in sizes]
        if missing:
            raise UnboundDimension(
                f"the profiler needs a value for the dynamic dimension {', '.join(missing)}",
                expected="one size for each",
                repair=f'do_bench(dynamic_symbolic_constraints={{"{missing[0]}": 2048}}), or input_tensors=[...]',
            )
        rng = np.random.default_rng(seed)
        made = []
        for param in manifest.params:
            if param.name in manifest.outputs:
                continue
            if param.kind == "scalar":
                made.append(1)
                continue
            shape = tuple(evaluate(e, sizes, {}) for e in param.shape)
            array = _supply(self.supply, str(param.dtype), str(param.storage), shape, rng)
            made.append(array if self._device() == "cpu" else self._as_torch(array, str(param.storage)))
        return made

    def _as_torch(self, array: np.ndarray[Any, Any], storage: str) -> Any:
        tensor = _as_torch(array, storage)
        return tensor if self.host else tensor.cuda()

    def _device(self) -> str:
        """Where the kernel runs: the emulator and the interpreter run on the host, whatever the target."""
        return str(self.kernel.target.device) if self.kernel.options.execution == "device" else "cpu"

    def do_bench(
        self,
        func: Callable[..., Any] | None = None,
        warmup: float = 25,
        rep: float = 100,
        *,
        input_tensors: Sequence[Any] | None = None,
        dynamic_symbolic_constraints: dict[str, int] | None = None,
        **options: Any,
    ) -> Any:
        """Milliseconds of one call, of the kernel or of `func`; inputs are rotated so that caches do not hold them."""
        arguments = list(input_tensors) if input_tensors is not None else self.inputs(dynamic_symbolic_constraints)
        from tile_runtime import profiler as runtime_profiler
        from tile_runtime import registry

        device = self._device()
        sets = runtime_profiler.rotating(arguments, registry.device(device).profile_hooks().cache_bytes)
        return do_bench(func or self.kernel, warmup, rep, inputs=sets, device=device, **options)

    def run_once(self, func: Callable[..., Any] | None = None) -> Any:
        """One call on made inputs."""
        return (func or self.kernel)(*self.inputs())

    def assert_allclose(
        self,
        reference_program: Callable[..., Any],
        input_tensors: Sequence[Any] | None = None,
        atol: float = 1e-2,
        rtol: float = 1e-2,
        max_mismatched_ratio: float = 0.01,
    ) -> None:
        """Raise AssertionError when more than `max_mismatched_ratio` of the elements differ from the reference."""
        arguments = list(input_tensors) if input_tensors is not None else self.inputs()
        ours, theirs = self.kernel(*arguments), reference_program(*arguments)
        ours = ours if isinstance(ours, (list, tuple)) else [ours]
        theirs = theirs if isinstance(theirs, (list, tuple)) else [theirs]
        from tilelang.testing import assert_close

        for a, b in zip(ours, theirs):
            assert_close(a, b, atol=atol, rtol=rtol, max_mismatched_ratio=max_mismatched_ratio)


def _as_torch(array: np.ndarray[Any, Any], storage: str) -> Any:
    """A host array as a torch tensor of the element type that memory holds."""
    import torch

    from tilelang.ir.dtypes import dtype_of

    codes = torch.from_numpy(array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "V" else array)
    return codes.view(dtype_of(storage).as_torch())


def _supply(kind: TensorSupplyType, dtype: str, storage: str, shape: tuple[int, ...], rng: Any) -> Any:
    from tilelang.ir.dtypes import dtype_of

    logical, stored = dtype_of(dtype), dtype_of(storage)
    if logical.bits < 8:
        packed = (*shape[:-1], -(-shape[-1] // logical.per_byte))
        return rng.integers(0, 256, packed).astype(np.uint8).view(stored.as_numpy())
    element = stored.as_numpy()
    if kind is TensorSupplyType.Zero:
        return np.zeros(shape, element)
    if kind is TensorSupplyType.One:
        return np.ones(shape, element)
    if logical.kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if logical.is_integer or kind is TensorSupplyType.Integer:
        low, high = (0, 3) if logical.kind == "uint" else (-2, 3)
        return rng.integers(low, high, shape).astype(element)
    if kind in (TensorSupplyType.Normal, TensorSupplyType.Randn):
        return rng.standard_normal(shape, dtype=np.float32).astype(element)
    return rng.uniform(-1, 1, shape).astype(element)
