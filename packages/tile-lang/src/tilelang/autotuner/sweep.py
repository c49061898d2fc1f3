"""One sweep: candidates of one kernel at one size, pruned, compiled, measured, and what came of each of them.

candidates --trace--> tile IR --model--> pruned with a reason, or kept
           --processes--> artifacts --a process that is replaced when it fails--> median times --> record
"""

from __future__ import annotations

import datetime
import logging
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilelang import fingerprint
from tilelang.autotuner.configurations import Config, plain, plain_config, words
from tilelang.autotuner.machine import machine_of
from tilelang.autotuner.processes import Answer, Task, run_all
from tilelang.autotuner.progress import Progress
from tilelang.autotuner.results import Record
from tilelang.errors import TuningFailed
from tilelang.options import Options
from tilelang.target import Target

_LOG = logging.getLogger("tilelang.autotuner")
COMPILING = 300.0  # seconds for one candidate, where TILELANG_COMPILE_TIMEOUT_SECONDS says nothing
FINALISTS, WITHIN, ROUNDS = 3, 1.05, 2  # the best few, if that close, are measured so many times more


@dataclass(frozen=True)
class Settings:
    """How candidates are measured and checked. Times in ms, `timeout` in seconds: of a measurement."""

    warmup: float = 25
    rep: float = 100
    timeout: float = 60
    supply_type: Any = None
    supply_prog: Callable[..., Any] | None = None
    ref_prog: Callable[..., Any] | None = None
    rtol: float = 1e-2
    atol: float = 1e-2
    max_mismatched_ratio: float = 0.01
    skip_check: bool = False
    slack: float | None = 3.0
    dynamic_symbolic_constraints: Mapping[str, int] = field(default_factory=dict)
    verbose: bool = True

    @property
    def check(self) -> dict[str, float] | None:
        """The tolerance, None to compare nothing."""
        if self.skip_check:
            return None
        return {"rtol": self.rtol, "atol": self.atol, "max_mismatched_ratio": self.max_mismatched_ratio}

    @property
    def supply(self) -> str:
        """The name of the TensorSupplyType that made inputs have."""
        return "Auto" if self.supply_type is None else str(self.supply_type.name)


@dataclass
class Candidate:
    """A configuration and what came of it: one of `pruned`, `failed` and `ms` in the end."""

    config: Config
    func: Any = None
    estimate_ms: float | None = None
    pruned: str = ""
    failed: str = ""
    ms: float | None = None
    artifact: Path | None = None
    group: int | None = None

    @property
    def open(self) -> bool:
        return not self.pruned and not self.failed

    def to_json(self) -> dict[str, Any]:
        fate: dict[str, Any] = {} if self.ms is None else {"ms": _rounded(self.ms)}
        if self.pruned or self.failed:
            fate = {"pruned": self.pruned} if self.pruned else {"failed": self.failed}
        guess = {} if self.estimate_ms is None else {"estimate_ms": _rounded(self.estimate_ms)}
        return {"config": plain_config(self.config), **fate, **guess}


@dataclass
class Sweep:
    """`trace(config)` gives the function of a candidate; `sizes` are the call's arguments, for the record."""

    name: str
    configs: list[Config]
    trace: Callable[[Config], Any]
    target: Target
    options: Options
    settings: Settings
    sizes: Mapping[str, Any]
    source: str | None = None
    keep: int | None = None
    candidates: list[Candidate] = field(default_factory=list)
    reference_ms: float | None = None

    # -- before compiling --------------------------------------------------------------------------------------------

    def plan(self) -> None:
        """Trace every candidate, and prune those that cannot run, or should take `slack` times as long as the best."""
        from tilelang.autotuner import model
        from tilelang.ir.tile_work import tile_work
        from tilelang.ir.verify import verify

        machine = machine_of(self.target)
        self.candidates = [Candidate(config) for config in self.configs]
        reasons: dict[int, str] = {}
        first: Exception | None = None
        bar = Progress("planning", len(self.candidates), self.settings.verbose and len(self.candidates) > 50)
        for number, candidate in enumerate(self.candidates):
            bar.step(words(candidate.config))
            try:
                candidate.func = self.trace(candidate.config)
                verify(candidate.func)
            except Exception as error:
                first = first or error
                candidate.failed = _text_of(error)
                continue
            if machine is None:
                continue
            work = tile_work(candidate.func, self.settings.dynamic_symbolic_constraints)
            candidate.pruned = model.impossible(work, machine) or ""
            guess = None if candidate.pruned else model.estimate(work, machine)
            if guess is not None:
                candidate.estimate_ms = 1e3 * guess.seconds
                reasons[number] = guess.words(machine)
        bar.end()
        self._prune_slow(reasons)
        if not any(c.open for c in self.candidates):
            raise self.failure() from first

    def _prune_slow(self, reasons: Mapping[int, str]) -> None:
        timed = [c.estimate_ms for c in self.candidates if c.open and c.estimate_ms is not None]
        if not timed:
            return
        best, kept = min(timed), 0
        for number, candidate in sorted(enumerate(self.candidates), key=lambda c: c[1].estimate_ms or 0.0):
            guess = candidate.estimate_ms
            if not candidate.open or guess is None:
                continue
            times, kept = guess / best, kept + 1
            if self.settings.slack is not None and times > self.settings.slack:
                candidate.pruned = f"model: {times:.1f} times the best estimate: {reasons[number]}"
            elif self.keep is not None and kept > self.keep:
                candidate.pruned = f"model: not among the best {self.keep}: {reasons[number]}"

    # -- compiling ---------------------------------------------------------------------------------------------------

    def compile(self, folder: Path) -> None:
        """Artifacts of all open candidates in `folder`, from the kernel cache or by processes."""
        from tile_runtime.artifact import Artifact
        from tilelang.autotuner.compile_task import compile_to, task_of
        from tilelang.kernel import check_target, kernel_cache, level2_key

        check_target(self.target, self.options)
        cache, here = kernel_cache(), fingerprint.is_extended()
        tasks: list[Task] = []
        waiting: list[Candidate] = []
        todo = [c for c in self.candidates if c.open]
        with Progress("compiling", len(todo), self.settings.verbose) as bar:
            for number, candidate in enumerate(todo):
                candidate.artifact = folder / f"{number}.tile"
                key = level2_key(candidate.func, self.target, self.options)
                known = cache.get(key)
                if known is not None and not (known.manifest.dims and len(known.manifest.variants) == 1):
                    known.save(candidate.artifact)
                    bar.step(words(candidate.config))
                elif here:  # other processes do not know what this one added to the compiler
                    try:
                        compile_to(candidate.func, self.target, self.options, key, candidate.artifact)
                    except Exception as error:
                        candidate.failed = _text_of(error)
                    bar.step(words(candidate.config))
                else:
                    tasks.append(task_of(candidate.func, self.target, self.options, key, candidate.artifact))
                    waiting.append(candidate)

            def done(index: int, answer: Answer) -> None:
                candidate = waiting[index]
                candidate.failed = str(answer.get("error", ""))
                if candidate.open and candidate.artifact is not None:
                    artifact = Artifact.load(candidate.artifact)
                    if not artifact.manifest.dims:
                        cache.put(artifact.manifest.key, artifact)
                bar.step(words(candidate.config))

            limit = float(os.environ.get("TILELANG_COMPILE_TIMEOUT_SECONDS", COMPILING))
            run_all("compile", tasks, workers=min(workers(), max(1, len(tasks))), timeout=limit, done=done)
        if not any(c.open for c in self.candidates):
            raise self.failure()

    # -- measuring ---------------------------------------------------------------------------------------------------

    def measure(self, folder: Path, how: dict[str, Any], reference: Any = None, plugins: Sequence[str] = ()) -> None:
        """The time of every open candidate, one after the other in a process of their own; `how` says which inputs."""
        measure_all(
            self.candidates,
            {
                "folder": str(folder),
                "inputs": how,
                "reference": reference,
                "check": self.settings.check,
                "warmup": self.settings.warmup,
                "rep": self.settings.rep,
            },
            self.settings.timeout,
            self.settings.verbose,
            plugins,
        )
        if not any(c.open for c in self.candidates):
            raise self.failure()

    # -- afterwards --------------------------------------------------------------------------------------------------

    def best(self) -> Candidate:
        """The fastest measured candidate; before measuring, the one that the model or else the user put first."""
        return best_of(self.candidates)

    def record(self) -> Record:
        """What a results file says."""
        return record_of(self.candidates, self.facts())

    def facts(self) -> dict[str, Any]:
        from tilelang import __version__

        return {
            "measured": {name: plain_argument(v) for name, v in self.sizes.items()},
            "target": str(self.target),
            "source": self.source,
            "version": __version__,
            "reference_ms": self.reference_ms,
        }

    def failure(self) -> TuningFailed:
        """Why there is nothing to choose."""
        return no_candidate(self.name, self.candidates)


def no_candidate(name: str, candidates: Sequence[Candidate]) -> TuningFailed:
    pruned = sum(bool(c.pruned) for c in candidates)
    reasons = list(dict.fromkeys(c.failed or c.pruned for c in candidates))
    shown = [r.replace("\n", "\n            ") for r in reasons[:3]]
    more = [f"and {len(reasons) - 3} more reasons"] if len(reasons) > 3 else []
    counted = f"{len(candidates)} configurations: {pruned} pruned, {len(candidates) - pruned} failed"
    return TuningFailed(
        f"no configuration of {name} can be used",
        found="\n            ".join([counted, *shown, *more]),
        expected="at least one that compiles, runs and computes what the others or the reference compute",
        repair="look at the first reason: it is the compiler's or the model's own; then widen the configurations",
    )


def workers() -> int:
    """How many processes compile: TILELANG_AUTO_TUNING_CPU_COUNTS, or a share of the cores (.._CPU_UTILITIES, 0.9)."""
    asked = int(os.environ.get("TILELANG_AUTO_TUNING_CPU_COUNTS", "-1"))
    if asked > 0:
        return asked
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = int(cores * float(os.environ.get("TILELANG_AUTO_TUNING_CPU_UTILITIES", "0.9")))
    most = int(os.environ.get("TILELANG_AUTO_TUNING_MAX_CPU_COUNT", "-1"))
    return max(1, min(share, most) if most > 0 else share)


def best_of(candidates: Sequence[Candidate]) -> Candidate:
    usable = [c for c in candidates if c.open]
    measured = [c for c in usable if c.ms is not None]
    if measured:
        return min(measured, key=lambda c: c.ms or 0.0)
    return min(usable, key=lambda c: float("inf") if c.estimate_ms is None else c.estimate_ms)


def record_of(candidates: Sequence[Candidate], facts: Mapping[str, Any]) -> Record:
    best = best_of(candidates)
    order = sorted(candidates, key=lambda c: (c.ms is None, c.ms or 0.0))
    return {
        "config": plain_config(best.config),
        "ms": None if best.ms is None else _rounded(best.ms),
        **facts,
        "on": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "candidates": [c.to_json() for c in order],
    }


def plain_argument(value: Any) -> Any:
    """An argument for the record: numbers as they are, a tensor as its type and extents."""
    if isinstance(value, Mapping):
        return f"{value['dtype']}[{' x '.join(map(str, value['shape']))}]"
    return plain(value)


def measure_all(
    candidates: Sequence[Candidate],
    common: Mapping[str, Any],
    timeout: float,
    verbose: bool = True,
    plugins: Sequence[str] = (),
) -> None:
    """Fill in `ms` or `failed` of every open candidate.

    Without a reference the candidates check each other: those that agree form a group, and whoever is not of the largest
    group has failed. The fastest few, if close, are measured again in turn: clocks drift during a sweep.
    """
    todo = [c for c in candidates if c.open]
    groups: list[Any] = []
    best: list[float] = []

    def task_for(index: int, _: Task) -> Task:
        return {**common, "artifact": str(todo[index].artifact), "groups": groups, "results": f"results{index}"}

    with Progress("measuring", len(todo), verbose) as bar:

        def done(index: int, answer: Answer) -> None:
            candidate = todo[index]
            candidate.failed = str(answer.get("error", ""))
            if candidate.open:
                candidate.ms, candidate.group = float(answer["ms"]), answer.get("group")
                best.append(candidate.ms)
                if "saved" in answer:
                    groups.append(answer["saved"])
            bar.step(words(candidate.config), f"best {min(best):.4g} ms" if best else "")

        run_all("measure", [{}] * len(todo), workers=1, timeout=timeout, done=done, arguments=plugins, before=task_for)
    _drop_dissenters(todo)
    _measure_again([c for c in todo if c.open], common, timeout, plugins)


def _drop_dissenters(candidates: Sequence[Candidate]) -> None:
    """Results that most do not share are wrong; of two groups of one size that of the earlier candidate counts."""
    sizes: dict[int, int] = {}
    for candidate in candidates:
        if candidate.open and candidate.group is not None:
            sizes[candidate.group] = sizes.get(candidate.group, 0) + 1
    if len(sizes) < 2:
        return
    right = min(sizes, key=lambda g: (-sizes[g], g))
    for candidate in candidates:
        if candidate.open and candidate.group != right:
            candidate.ms = None
            candidate.failed = f"its results differ from those of {sizes[right]} other configurations"


def _measure_again(
    candidates: Sequence[Candidate], common: Mapping[str, Any], timeout: float, plugins: Sequence[str]
) -> None:
    order = sorted(candidates, key=lambda c: c.ms or 0.0)[:FINALISTS]
    close = [c for c in order if (c.ms or 0.0) <= WITHIN * (order[0].ms or 0.0)]
    if len(close) < 2:
        return
    times: list[list[float]] = [[c.ms or 0.0] for c in close]

    def done(index: int, answer: Answer) -> None:
        if "ms" in answer:
            times[index % len(close)].append(float(answer["ms"]))

    tasks = [{**common, "check": None, "artifact": str(c.artifact)} for _ in range(ROUNDS) for c in close]
    run_all("measure", tasks, workers=1, timeout=timeout, done=done, arguments=plugins)
    for candidate, found in zip(close, times):
        candidate.ms = statistics.median(found)


def _rounded(ms: float) -> float:
    """Four digits: what is beyond them is noise, and changes in every comparison of two files."""
    return float(f"{ms:.4g}")


def _text_of(error: Exception) -> str:
    return str(error) if str(error).startswith("[") else f"{type(error).__name__}: {error}"
