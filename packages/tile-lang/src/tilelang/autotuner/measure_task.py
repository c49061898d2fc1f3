"""Measuring one configuration, in a process of its own: inputs, the check of its results, and the median time.

Needs neither TVM nor a compiler: an artifact, the runtime of its device, and torch where that is a GPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tile_runtime import profiler, registry
from tilelang.autotuner import inputs
from tilelang.autotuner.processes import Answer, Task
from tilelang.kernel import load
from tilelang.profiler import Profiler, TensorSupplyType
from tilelang.testing import assert_close


class Measuring:
    """Keeps the arguments of the last task: the configurations of a sweep are measured on the same ones."""

    def __init__(self) -> None:
        self._made: tuple[Any, list[Any]] | None = None

    def task(self, task: Task) -> Answer:
        """`ms`, the median of a call; `group`, which of the earlier results these agree with, or a new number.

        Results that differ from the reference are an error. Those of a new group are written for who comes later: `saved`.
        """
        kernel = load(task["artifact"], execution="device")
        folder = Path(task["folder"])
        base = self._arguments(kernel, task["inputs"], folder)
        passed = [p for p in kernel.params if p.name not in kernel.manifest.outputs]
        fresh = [inputs.copied(v) if p.access != "r" else v for p, v in zip(passed, base)]
        made = kernel(*fresh)
        named = dict(zip(kernel.manifest.outputs, made if isinstance(made, list) else [made]))
        named |= {p.name: inputs.copied(v) if p.access != "r" else v for p, v in zip(passed, base)}
        arguments = [named[p.name] for p in kernel.params]
        results = [(p, v) for p, v in zip(kernel.params, arguments) if p.kind == "tensor" and p.access in ("w", "rw")]
        for param, value in results:
            if param.name in kernel.manifest.outputs or param.access == "w":
                inputs.poison(value)
        kernel(*arguments)
        outputs = [v for p, v in results if p.name in kernel.manifest.outputs] or [v for _, v in results]
        answer: Answer = {}
        if task.get("check"):
            answer |= _compared(outputs, task, folder)
        answer["ms"] = _median_ms(kernel, arguments, task["warmup"], task["rep"])
        return answer

    def _arguments(self, kernel: Any, how: dict[str, Any], folder: Path) -> list[Any]:
        if self._made is None or self._made[0] != how:
            self._made = (how, _made_arguments(kernel, how, folder))
        return self._made[1]


def _compared(outputs: list[Any], task: Task, folder: Path) -> Answer:
    """The group of these outputs. AssertionError where they differ from the reference."""

    def agree(described: list[dict[str, Any]]) -> None:
        expected = inputs.load(described, folder)
        if len(expected) != len(outputs):
            raise AssertionError(f"the reference has {len(expected)} results, the kernel {len(outputs)}")
        for ours, theirs in zip(outputs, expected):
            assert_close(ours, theirs, **task["check"])

    if task.get("reference") is not None:
        agree(task["reference"])
        return {"group": 0}
    for number, group in enumerate(task["groups"]):
        try:
            agree(group)
        except AssertionError:
            continue
        return {"group": number}
    return {"group": len(task["groups"]), "saved": inputs.save(outputs, folder, task["results"])}


def _made_arguments(kernel: Any, how: dict[str, Any], folder: Path) -> list[Any]:
    device = "cpu" if kernel.target.device == "cpu" else "gpu"
    if "saved" in how:
        return inputs.load(how["saved"], folder, device)
    return Profiler(kernel, TensorSupplyType[how["supply"]]).inputs(how["sizes"], how["seed"])


def _median_ms(kernel: Any, arguments: list[Any], warmup: float, rep: float) -> float:
    """Milliseconds of a call that finds the last-level cache without its inputs."""
    hooks = registry.device(kernel.target.device).profile_hooks()
    if hooks.time_cold is not None:
        return profiler.do_bench(lambda: kernel(*arguments), hooks, warmup, rep, cold=True)
    return profiler.do_bench(kernel, hooks, warmup, rep, profiler.rotating(arguments, hooks.cache_bytes))
