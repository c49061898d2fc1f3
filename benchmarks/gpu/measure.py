"""Time packed kernels beside their peers where the GPU is: `python benchmarks/gpu/measure.py FOLDER [--json FILE]`.

Needs torch, Triton, tile-runtime and tile-runtime-cuda (or their `src` folders on PYTHONPATH), neither TVM nor the
compiler. Every provider of a case runs in turn, the L2 cache is overwritten before every call, figures are medians.
Every provider's output is compared with float64; the output is poisoned before. Power and clock are read all the while.
A name with a star is a figure of `recorded.py`, from another lease.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from cases import GROUPS, PEAK_GBS, Case, bound_ms, chosen, rate
from peers import Call, inputs, peers, poison, relative_error
from recorded import recorded

ROUNDS = 20
TOLERANCE = {"float16": 2e-3, "bfloat16": 1e-2, "tf32": 2e-3, "int8": 0.0, "float8_e4m3fn": 1e-2}
L2_BYTES = 256 << 20  # five times the cache
BUSY_CYCLES = 400_000  # 0.2 ms at 1980 MHz
READ_BYTES = 4 << 30
READERS = ((8, 1024, 4), (8, 2048, 4), (16, 1024, 4), (4, 4096, 8), (16, 2048, 8))  # loads, elements at once, warps


class Sampler:
    """The chip's power and clock over time, read by nvidia-smi every tenth of a second; empty where there is none."""

    def __init__(self) -> None:
        query = "--query-gpu=power.draw,clocks.sm,temperature.gpu"
        command = ["nvidia-smi", query, "--format=csv,noheader,nounits", "-lms", "100"]
        self.samples: list[tuple[float, float, float, float]] = []
        try:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except FileNotFoundError:
            return
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                watts, clock, heat = (float(part) for part in line.split(",")[:3])
            except ValueError:
                continue  # "[N/A]"
            self.samples.append((time.perf_counter(), watts, clock, heat))

    def since(self, begin: float) -> dict[str, float]:
        """Medians from `begin` on; of the last sample if there is none since."""
        found = [s for s in self.samples if s[0] >= begin] or self.samples[-1:]
        if not found:
            return {}
        watts, clock, heat = (statistics.median(column) for column in list(zip(*found))[1:])
        return {"watts": watts, "mhz": clock, "celsius": heat}


def kernel_of(path: Path) -> Any:
    from tile_runtime import registry
    from tile_runtime.artifact import Artifact

    try:
        device = registry.device("cuda")
    except Exception:  # the packages are on the path, not installed
        from tile_runtime_cuda.plugin import DEVICE as device
    return device.load(Artifact.load(path))


def times_ms(
    calls: dict[str, Call], flush: torch.Tensor, rounds: int = ROUNDS, busy: int = BUSY_CYCLES
) -> dict[str, float]:
    """The median time of each call, all of them in turn in every round. The GPU is `busy` (clocks) while the host launches: after
    the synchronization behind a long peer a call takes the host 0.1 ms, which is no property of its kernels."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(2):
            call()
    for _ in range(rounds):
        for name, call in calls.items():
            flush.zero_()
            torch.cuda._sleep(busy)
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            end.synchronize()
            taken[name].append(start.elapsed_time(end))
    return {name: statistics.median(t) for name, t in taken.items()}


def ceilings(flush: torch.Tensor) -> dict[str, float]:
    """What this chip delivers: GB/s of reading alone, and the ms that two events read around a kernel of nothing."""
    from triton_kernels import nothing, read

    a = torch.randn(READ_BYTES // 4, device="cuda")
    out = torch.empty(a.numel() // 1024, device="cuda")
    calls: dict[str, Call] = {str(shape): lambda s=shape: read(a, out, *s) for shape in READERS}  # type: ignore[misc]
    empty = times_ms({"empty": lambda: nothing(a)}, flush)["empty"]
    best = min(times_ms(calls, flush).values())
    return {"read_gbs": READ_BYTES / (best - empty) / 1e6, "empty_ms": empty}


def measured(case: Case, ours: dict[str, Path], flush: torch.Tensor, chip: dict[str, float]) -> dict[str, Any]:
    """One case: milliseconds and rates of our configurations and of the peers, the bound, who is wrong."""
    *operands, out = inputs(case)
    calls: dict[str, Call] = {}
    errors: dict[str, float] = {}
    wrong: list[str] = []

    def accept(name: str, call: Call, written: torch.Tensor) -> None:
        if written is out:
            poison(out)
        call()
        errors[name] = relative_error(case, operands, written)
        if errors[name] <= TOLERANCE[case.dtype]:
            calls[name] = call
        else:
            wrong.append(name)
            print(f"WRONG: {name} of {case.name} is off by {errors[name]:.1e}", flush=True)

    for name, path in ours.items():
        try:
            kernel = kernel_of(path)
            accept(name, lambda k=kernel: k(*operands, out), out)  # type: ignore[misc]
        except Exception as error:
            wrong.append(name)
            print(f"FAILED: {name} of {case.name}: {str(error).splitlines()[0][:160]}", flush=True)
    mine = list(calls)
    for name, (call, written) in peers(case, [*operands, out]).items():
        accept(name, call, written)
    times = times_ms(calls, flush)
    best = min(mine, key=lambda n: times[n]) if mine else None
    bound, by = bound_ms(case, chip["read_gbs"] if case.unit == "GB/s" else PEAK_GBS)
    elsewhere = recorded(case)
    line = {"case": case.name, "label": case.label, "unit": case.unit, "ms": times, "recorded_ms": elsewhere}
    line |= {"rates": {n: rate(case, t) for n, t in (times | elsewhere).items()}, "errors": errors, "wrong": wrong}
    line |= {"bound_ms": bound, "bound_by": by, "bound_rate": rate(case, bound), "ours": best}
    if best is None:
        return line | {"of_bound": 0.0, "of_peer": {}}
    others = {n: t for n, t in (times | elsewhere).items() if n not in ours}
    line |= {"of_bound": bound / times[best], "of_peer": {n: t / times[best] for n, t in others.items()}}
    if case.unit == "GB/s":
        line["of_bound_without_launch"] = bound / (times[best] - chip["empty_ms"])
    return line


def state() -> str:
    query = "name,driver_version,clocks.sm,clocks.mem,power.draw,temperature.gpu"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return "no nvidia-smi"


def render(line: dict[str, Any]) -> str:
    """One line for a person: the rates of each provider, ours against the bound and each peer."""
    few = [n for n in line["rates"] if not n.startswith("ours ") or n == line["ours"]]
    rates = ", ".join(f"{n} {line['rates'][n]:.0f}" for n in few)
    against = ", ".join(f"{ratio:.2f} of {name}" for name, ratio in line["of_peer"].items())
    bare = line.get("of_bound_without_launch")
    bound = f"{line['of_bound']:.2f} of the bound by {line['bound_by']}" + (f" ({bare:.2f} bare)" if bare else "")
    chip = f"  [{line['watts']:.0f} W, {line['mhz']:.0f} MHz]" if "watts" in line else ""
    return f"{line['label']:5} {line['case']:44} {rates} {line['unit']}; {bound}, {against}{chip}"


def summary(lines: list[dict[str, Any]]) -> list[str]:
    """For each kind of case and peer: the geometric mean of ours against it, and the lowest."""
    kinds: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for line in lines:
        for peer, ratio in line["of_peer"].items():
            parts = line["case"].split("-")
            kind = "-".join([*parts[:2], *(p for p in parts[2:] if re.fullmatch(r"d\d+", p))])  # by head dim
            kinds.setdefault((kind, peer), []).append((ratio, f"{line['label']} {line['case']}"))
    texts = []
    for (kind, peer), ratios in kinds.items():
        mean = math.exp(statistics.mean(math.log(r) for r, _ in ratios))
        least, where = min(ratios)
        texts.append(f"{kind}: {mean:.3f} of {peer} (geometric mean of {len(ratios)}), least {least:.3f} on {where}")
    return texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", action="append", choices=sorted(GROUPS))
    parser.add_argument("--case", action="append", help="only cases whose label and name contain this")
    given = parser.parse_args()
    index = json.loads((given.folder / "index.json").read_text())
    sampler = Sampler()
    flush = torch.empty(L2_BYTES, dtype=torch.uint8, device="cuda")
    print(f"torch {torch.__version__}, kernels for {index['arch']}; before: {state()}", flush=True)
    chip = ceilings(flush)
    print(f"reads {chip['read_gbs']:.0f} GB/s; an empty kernel takes {chip['empty_ms'] * 1e3:.2f} us", flush=True)
    facts: dict[str, Any] = {"torch": torch.__version__, "arch": index["arch"], **chip, "lines": []}
    for group, case in chosen(given.only, given.case):
        found = [e for e in index["kernels"] if e["case"] == case.name]
        if not found:
            continue
        torch.manual_seed(time.time_ns() % 2**31)  # fresh data in every run
        begin = time.perf_counter()
        ours = {f"ours {e['config']}": given.folder / e["file"] for e in found}
        line = {"group": group, **measured(case, ours, flush, chip), **sampler.since(begin)}
        facts["lines"].append(line)
        print(render(line), flush=True)
        if given.json is not None:  # after each case: a run that is cut off leaves what it has
            given.json.write_text(json.dumps(facts | {"state": state()}, indent=1))
    print(*summary(facts["lines"]), f"after: {state()}", sep="\n")
    sys.exit(int(any(line["wrong"] for line in facts["lines"])))


if __name__ == "__main__":
    main()
