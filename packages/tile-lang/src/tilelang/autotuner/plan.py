"""A sweep in two places: `pack` compiles it where the compiler is, `measure` times it where the device is.

    folder/plan.json                     what to measure, on which inputs, within which tolerance
    folder/<kernel>-<class>/0.tile ...   artifacts of the candidates that were not pruned
    folder/<kernel>-<class>/input-0.bin  inputs and the reference's results, where the user gave any
    folder/results.json                  written by `measure`; `merge` puts it where the program looks

`measure` needs tile-lang, tile-runtime and the device's runtime, neither TVM nor a compiler.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tile_runtime.atomic_file import write_atomically
from tilelang.autotuner import results
from tilelang.autotuner.classes import device_key, shape_class
from tilelang.autotuner.configurations import plain_config
from tilelang.autotuner.results import Results
from tilelang.autotuner.sweep import Candidate, best_of, measure_all, no_candidate, record_of
from tilelang.errors import BadTuningFile, TuningFailed
from tilelang.target import parse

if TYPE_CHECKING:
    from tilelang.autotuner.tuner import Request, Tuner

PLAN, RESULTS = "plan.json", "results.json"
FORMAT = 1


def pack(tuner: Tuner, request: Request, folder: Path) -> None:
    """Add the sweep of one call to a folder; one of the same kernel, target and class is replaced."""
    from tilelang import target as targets

    target = targets.resolve(tuner.kernel.target, request.device)
    configs, keep = tuner.candidates(request)
    name = shape_class(tuner.class_of(request, configs), exact=tuner.exact)
    sweep = tuner.sweep(request, target, configs, keep)
    part = hashlib.sha256("\0".join((tuner.name, str(target), name)).encode()).hexdigest()[:12]
    place = folder / part
    place.mkdir(parents=True, exist_ok=True)
    for stale in place.iterdir():
        stale.unlink()
    sweep.compile(place)
    how, reference = tuner.prepare(sweep, request, place, here=False)
    entry = {
        "kernel": tuner.name,
        "class": name,
        "target": str(target),
        "folder": part,
        "facts": sweep.facts(),
        "inputs": how,
        "reference": reference,
        "check": tuner.settings.check,
        "warmup": tuner.settings.warmup,
        "rep": tuner.settings.rep,
        "timeout": tuner.settings.timeout,
        "candidates": [_packed(c) for c in sweep.candidates],
    }
    sweeps = [s for s in _read_plan(folder)["sweeps"] if s["folder"] != part] if (folder / PLAN).exists() else []
    write_atomically(folder / PLAN, json.dumps({"format": FORMAT, "sweeps": [*sweeps, entry]}, indent=1).encode())


def _packed(candidate: Candidate) -> dict[str, Any]:
    known = {"estimate_ms": candidate.estimate_ms} if candidate.estimate_ms is not None else {}
    if candidate.open and candidate.artifact is not None:
        return {"config": plain_config(candidate.config), "artifact": candidate.artifact.name, **known}
    return {
        "config": plain_config(candidate.config),
        "pruned": candidate.pruned,
        "failed": candidate.failed,
        **known,
    }


def measure(folder: Any, output: Any = None, *, plugins: Sequence[str] = (), verbose: bool = True) -> Results:
    """Measure every sweep of a folder that its results do not have yet for this device; each is written as it ends.

    `output` is the results file, `results.json` in the folder by default. `plugins` announce devices of packages that lie
    on the path without being installed: "cuda=tile_runtime_cuda.plugin:DEVICE".
    """
    from tilelang.autotuner.worker import announce

    for plugin in plugins:
        announce(plugin)
    folder = Path(folder)
    path = folder / RESULTS if output is None else Path(output)
    known = results.read(path)
    failures: list[TuningFailed] = []
    for sweep in _read_plan(folder)["sweeps"]:
        device = _device_of(sweep)
        if sweep["class"] in known.get(sweep["kernel"], {}).get(device, {}):
            continue
        try:
            record = _measured(folder, sweep, verbose, plugins)
        except TuningFailed as error:
            failures.append(error)
            continue
        found: Results = {sweep["kernel"]: {device: {sweep["class"]: record}}}
        results.add(path, found)
        known = results.merged(known, found)
    if failures:
        raise failures[0]
    return known


def _device_of(sweep: Mapping[str, Any]) -> str:
    """The device here that a sweep was compiled for. TuningFailed without one."""
    device = device_key(parse(sweep["target"]))
    if device is None:
        raise TuningFailed(
            f"the sweep of {sweep['kernel']} cannot be measured here",
            found=f"no device for {sweep['target']}",
            expected="a machine with the device and its runtime package",
            repair="measure on that machine; of packages on the path that are not installed, name the plugin: "
            "--device cuda=tile_runtime_cuda.plugin:DEVICE",
        )
    return device


def _measured(folder: Path, sweep: Mapping[str, Any], verbose: bool, plugins: Sequence[str]) -> dict[str, Any]:
    place = folder / sweep["folder"]
    candidates = [
        Candidate(
            entry["config"],
            estimate_ms=entry.get("estimate_ms"),
            pruned=entry.get("pruned", ""),
            failed=entry.get("failed", ""),
            artifact=place / entry["artifact"] if "artifact" in entry else None,
        )
        for entry in sweep["candidates"]
    ]
    if verbose:
        print(f"{sweep['kernel']}, {sweep['class']}", file=sys.stderr)
    common = {n: sweep[n] for n in ("inputs", "reference", "check", "warmup", "rep")}
    measure_all(candidates, {**common, "folder": str(place)}, sweep["timeout"], verbose, plugins)
    if not any(c.open for c in candidates):
        raise no_candidate(sweep["kernel"], candidates)
    if verbose:
        best = best_of(candidates)
        print(f"  best: {best.ms:.4g} ms, {best.config}", file=sys.stderr)
    return record_of(candidates, sweep["facts"])


def merge(files: Sequence[Any], into: Any = None) -> Path:
    """Put results into one file, by default that of the cache; of two results for the same, that of the later file."""
    path = results.default_path() if into is None else Path(into)
    together: Results = {}
    for file in files:
        if not Path(file).exists():
            raise results.bad(Path(file), "there is no such file")
        together = results.merged(together, results.read(Path(file)))
    results.add(path, together)
    return path


def _read_plan(folder: Path) -> dict[str, Any]:
    """The plan of a folder, checked as far as measuring relies on it. BadTuningFile."""
    path = folder / PLAN
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise _bad_plan(path, f"it is not readable JSON: {error}") from None
    needed = {
        "kernel",
        "class",
        "target",
        "folder",
        "facts",
        "inputs",
        "check",
        "warmup",
        "rep",
        "timeout",
        "candidates",
    }
    if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("sweeps"), list):
        raise _bad_plan(path, f'it does not begin with {{"format": {FORMAT}, "sweeps": ...}}')
    for sweep in data["sweeps"]:
        if not isinstance(sweep, dict) or not needed <= sweep.keys():
            raise _bad_plan(path, "a sweep lacks a field")
        names = [sweep["folder"], *(c["artifact"] for c in sweep["candidates"] if "artifact" in c)]
        if any(not isinstance(n, str) or Path(n).name != n or n.startswith(".") for n in names):
            raise _bad_plan(path, "it names a file outside of its folder")
    plan: dict[str, Any] = data
    return plan


def _bad_plan(path: Path, why: str) -> BadTuningFile:
    return BadTuningFile(
        f"{path.name} is no plan of a sweep",
        found=f"{path}: {why}",
        expected="what pack(folder, ...) of an autotuned function wrote",
        repair="pack the sweep again",
    )
