"""The results file: one JSON object to read, review, ship and compare, by kernel, device and class of sizes.

    {"format": 1, "results": {"matmul": {"NVIDIA H200, sm_90a": {"M=3073..4096 by 8, ...": {
        "config": {"block_M": 128, "threads": 256},
        "ms": 0.121,
        "measured": {"M": 4096, "N": 4096, "K": 4096},
        ...
        "candidates": [
         {"config": {"block_M": 128, "threads": 256}, "ms": 0.121, "estimate_ms": 0.105},
         {"config": {"block_M": 256, "threads": 128}, "pruned": "registers: C_local alone takes 256 in each of ..."},
         {"config": {"block_M": 64, "threads": 512}, "failed": "[TL207] T.gemm into C_local cannot be split ..."}]}}}}}

Written under a lock and renamed into place, so that processes which tune at once keep each other's results.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tile_runtime.atomic_file import write_atomically
from tilelang.errors import BadTuningFile

FORMAT = 1
Record = dict[str, Any]
Results = dict[str, dict[str, dict[str, Record]]]


def default_path() -> Path:
    """`autotuner/results.json` in the cache folder."""
    from tile_runtime.cache import default_folder

    return default_folder() / "autotuner" / "results.json"


def cache_is_enabled() -> bool:
    """Whether results are kept in the cache folder; TILELANG_AUTO_TUNING_DISABLE_CACHE=1 says no, as for kernels."""
    from tilelang.cache_control import is_cache_enabled

    own = os.environ.get("TILELANG_AUTO_TUNING_DISABLE_CACHE", "").lower()
    return is_cache_enabled() and own in ("", "0", "false", "no", "off")


def read(path: Path) -> Results:
    """The results in a file; none if there is no file. BadTuningFile for one that says something else."""
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise bad(path, f"it is not readable JSON: {error}") from None
    check(path, data)
    results: Results = data["results"]
    return results


def check(path: Path, data: Any) -> None:
    """Raise BadTuningFile for what is no results file of this format."""
    if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("results"), dict):
        raise bad(path, f'it does not begin with {{"format": {FORMAT}, "results": ...}}')
    for kernel, devices in data["results"].items():
        for device, classes in devices.items() if isinstance(devices, dict) else [("", None)]:
            for name, record in classes.items() if isinstance(classes, dict) else [("", None)]:
                if (
                    not isinstance(record, dict)
                    or not isinstance(record.get("config"), dict)
                    or not isinstance(record.get("ms"), (int, float))
                    or not isinstance(record.get("candidates", []), list)
                ):
                    raise bad(path, f"the entry {kernel} / {device} / {name} has no config or no ms")


def bad(path: Path, why: str) -> BadTuningFile:
    return BadTuningFile(
        f"{path.name} cannot be used",
        found=f"{path}: {why}",
        expected="a file that the autotuner wrote, perhaps merged or shortened by hand",
        repair="restore it, or remove it and tune again",
    )


def write(path: Path, results: Results) -> None:
    """All of a file, keys in order and a candidate on each line, so that two versions of it compare line by line."""
    text = "\n".join(_lines({"format": FORMAT, "results": results}, 5))
    write_atomically(path, (text + "\n").encode())


def _lines(value: Any, depth: int) -> list[str]:
    """JSON, objects down to `depth` and lists with an entry on each line, what is deeper on one."""
    if isinstance(value, dict) and depth and value:
        parts = [
            [f"{json.dumps(str(k))}: {first}", *rest]
            for k, v in value.items()
            for first, *rest in [_lines(v, depth - 1)]
        ]
        opening, closing = "{", "}"
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        parts, (opening, closing) = [_lines(v, 0) for v in value], ("[", "]")
    else:
        return [json.dumps(value, allow_nan=False)]
    for part in parts[:-1]:
        part[-1] += ","
    return [opening, *(f" {line}" for part in parts for line in part), closing]


def add(path: Path, results: Results) -> None:
    """Put results into a file beside those that it has; an entry of the same key is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path):
        known = read(path)
        write(path, merged(known, results))


def merged(first: Results, second: Results) -> Results:
    """Both; of two entries with one key that of `second`."""
    together: Results = {k: {d: dict(c) for d, c in devices.items()} for k, devices in first.items()}
    for kernel, devices in second.items():
        for device, classes in devices.items():
            together.setdefault(kernel, {}).setdefault(device, {}).update(classes)
    return {k: {d: dict(sorted(c.items())) for d, c in sorted(v.items())} for k, v in sorted(together.items())}


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Alone among the processes that write this file. The system frees the lock of a process that dies."""
    try:
        import fcntl
    except ImportError:  # no such locks here: the last writer wins
        yield
        return
    with open(path.with_name(path.name + ".lock"), "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def find(results: Results, kernel: str, device: str | None, arch: str, name: str) -> Record | None:
    """The record of a kernel for a class of sizes on a device; without a device that of any of the architecture."""
    of_kernel = results.get(kernel, {})
    devices = [device] if device is not None else [d for d in of_kernel if d.endswith(f", {arch}")]
    return next((of_kernel[d][name] for d in devices if name in of_kernel.get(d, {})), None)


def sorted_candidates(record: Record) -> list[dict[str, Any]]:
    """The configurations of a record that were measured, fastest first; the chosen one leads in any case."""
    measured = [c for c in record.get("candidates", []) if isinstance(c.get("ms"), (int, float))]
    rest = sorted((c["config"] for c in measured if c["config"] != record["config"]), key=lambda c: _ms(measured, c))
    return [record["config"], *rest]


def _ms(candidates: list[dict[str, Any]], config: dict[str, Any]) -> float:
    return next(float(c["ms"]) for c in candidates if c["config"] == config)
