"""Time packed kernels beside their peers where the GPU is: `python benchmarks/gpu/measure.py FOLDER [--json FILE]`.

Needs torch, Triton, tile-runtime and tile-runtime-cuda (or their `src` folders on PYTHONPATH), neither TVM nor the
compiler. Every provider of a case runs in turn, the L2 cache is overwritten before every call, figures are medians.
Every provider's output is compared with float64; the output is poisoned before.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from cases import GROUPS, PEAK_GBS, Case, bound_ms
from peers import Call, inputs, peers, poison, relative_error

ROUNDS = 20
TOLERANCE = {"float16": 2e-3, "bfloat16": 1e-2, "tf32": 2e-3, "int8": 0.0, "float8_e4m3fn": 1e-2}
L2_BYTES = 256 << 20  # five times the cache


def kernel_of(path: Path) -> Any:
    from tile_runtime import registry
    from tile_runtime.artifact import Artifact

    try:
        device = registry.device("cuda")
    except Exception:  # the packages are on the path, not installed
        from tile_runtime_cuda.plugin import DEVICE as device
    return device.load(Artifact.load(path))


def times_ms(calls: dict[str, Call], flush: torch.Tensor) -> dict[str, float]:
    """The median time of each call, all of them in turn in every round."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(2):
            call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            end.synchronize()
            taken[name].append(start.elapsed_time(end))
    return {name: statistics.median(t) for name, t in taken.items()}


def measured(case: Case, ours: dict[str, Path], flush: torch.Tensor) -> dict[str, Any]:
    """One case: milliseconds and TFLOP/s of our configurations and of the peers, and the bound."""
    *operands, out = inputs(case)
    calls: dict[str, Call] = {}
    errors: dict[str, float] = {}
    for name, path in ours.items():
        kernel = kernel_of(path)
        poison(out)
        kernel(*operands, out)
        errors[name] = relative_error(case, operands, out)
        if not errors[name] <= TOLERANCE[case.dtype]:
            print(f"WRONG: {name} of {case.name} is off by {errors[name]:.1e}", flush=True)
        calls[name] = lambda k=kernel: k(*operands, out)  # type: ignore[misc]
    calls |= peers(case, [*operands, out])
    times = times_ms(calls, flush)
    best_ours = min(ours, key=lambda n: times[n])
    bound = bound_ms(case)
    return {
        "case": case.name,
        "label": case.label,
        "ms": times,
        "tflops": {n: case.flops / t / 1e9 for n, t in times.items()},
        "bound_ms": bound,
        "bound_by": "memory" if case.bytes / PEAK_GBS / 1e6 == bound else "arithmetic",
        "ours": best_ours,
        "of_bound": bound / times[best_ours],
        "of_peer": {n: times[n] / times[best_ours] for n in calls if n not in ours},
        "error": errors[best_ours],
        "correct": all(e <= TOLERANCE[case.dtype] for e in errors.values()),
    }


def state() -> str:
    query = "name,driver_version,clocks.sm,clocks.mem,power.draw,temperature.gpu"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", action="append", choices=sorted(GROUPS))
    chosen = parser.parse_args()
    wanted = chosen.only or list(GROUPS)
    index = json.loads((chosen.folder / "index.json").read_text())
    flush = torch.empty(L2_BYTES, dtype=torch.uint8, device="cuda")
    print(f"torch {torch.__version__}, kernels for {index['arch']}; before: {state()}", flush=True)
    lines = []
    for group in wanted:
        for number, case in enumerate(GROUPS[group]):
            ours = {
                f"ours {e['config']}": chosen.folder / e["file"]
                for e in index["kernels"]
                if e["group"] == group and e["case"] == number
            }
            if ours:
                torch.manual_seed(time.time_ns() % 2**31)  # fresh data in every run
                line = {"group": group, **measured(case, ours, flush)}
                lines.append(line)
                print(render(line), flush=True)
    facts = {"state": state(), "torch": torch.__version__, "arch": index["arch"], "lines": lines}
    print("after:", facts["state"])
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(facts, indent=1))
    sys.exit(not all(line["correct"] for line in lines))


def render(line: dict[str, Any]) -> str:
    """One line for a person: TFLOP/s of each provider, ours against the bound and each peer."""
    rates = ", ".join(f"{name} {rate:.0f}" for name, rate in line["tflops"].items())
    against = ", ".join(f"{ratio:.2f} of {name}" for name, ratio in line["of_peer"].items())
    return f"{line['label']:7} {line['case']:52} {rates} TFLOP/s; {line['of_bound']:.2f} of the bound, {against}"


if __name__ == "__main__":
    main()
