"""Run every operator where only the wheels are installed: `python installed.py [--device cpu|cuda] [--json FILE]`.

Needs tile-ops, a runtime, its prebuilt kernels and torch. Fails if a compiler is there, if a prebuilt file is not the one
that was shipped, if a call or a gradient is wrong, or a call captured in a graph (with `--device cuda`), or if a kernel that
ran was not a prebuilt one. With `--device none` it only looks at the installation: for a machine without the device.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from calls import Call, Training, calls

import tile_ops
from tile_ops.kernel import prebuilt, target_of

COMPILERS = ("tilelang", "tile_compiler", "tvm")
#: Kernels that bulk copies alone can feed, so that they serve aligned operands only: plans take others for the rest.
ALIGNED = ("mla.decode_pairs",)


def inventory() -> list[dict[str, Any]]:
    """The wheels' kernels, each read and compared with its hash."""
    found = []
    for folder in prebuilt._folders(""):
        for entry in folder.kernels.values():
            artifact = prebuilt.Prebuilt(folder.path / entry["file"], entry["sha256"], entry["arch"]).load()
            serves_all = artifact.manifest.variants[-1].guard is None
            assert serves_all or entry["spec"].startswith(ALIGNED), f"{entry['file']} does not serve every call"
            found.append({"arch": entry["arch"], "family": entry["family"], "spec": entry["spec"]})
    return found


def error(found: Any, expected: Any) -> float:
    """The largest error relative to |expected| plus the root mean square of `expected`."""
    if isinstance(expected, tuple):
        return max(error(f, e) for f, e in zip(found, expected, strict=True))
    if expected is None:
        return 0.0 if found is None else float("inf")
    assert found.shape == expected.shape, (found.shape, expected.shape)
    if not expected.numel():
        return 0.0
    found, expected = found.cpu().double(), expected.double()
    same = found == expected  # infinities too
    difference = torch.where(same, 0.0, (found - expected).abs())
    finite = expected[expected.isfinite()]
    typical = finite.square().mean().sqrt().clamp_min(1e-30) if finite.numel() else torch.ones((), dtype=torch.float64)
    return float((difference / (expected.abs() + typical)).nan_to_num(nan=float("inf")).max())


def renewed(call: Call) -> Call:
    """The call with operands of its own: what an operator writes into them is not seen in the others."""
    kept = [value.clone() if isinstance(value, torch.Tensor) else value for value in call.args]
    return replace(call, args=tuple(kept))


def replayed(call: Call) -> Any:
    """What a call gives in a CUDA graph: captured once, replayed once. Its kernels are loaded already."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = call.operator(*call.args, **call.kwargs)
    graph.replay()
    torch.cuda.synchronize()
    return found


def run(call: Call) -> dict[str, Any]:
    """What became of a call; `failure` is empty if it is right, in a CUDA graph too, and ran from the wheel."""
    line: dict[str, Any] = {"call": call.name, "failure": ""}
    try:
        again = renewed(call)
        before = tile_ops.explain(call.operator, *call.args, **call.kwargs)
        expected = call.expected()  # first: an operator may write an operand
        found = call.operator(*call.args, **call.kwargs)
        after = tile_ops.explain(call.operator, *call.args, **call.kwargs)
        line["error"] = error(found, expected)
        line["target"] = str(after.target)
        line["kernels"] = [str(kernel.spec) for kernel in after.kernels]
        origins = {kernel.origin for kernel in after.kernels}
        if not line["error"] <= call.tolerance:
            line["failure"] = f"off by {line['error']:.1e}, tolerance {call.tolerance:.0e}"
        elif origins != {"prebuilt"}:
            line["failure"] = f"kernels are from {', '.join(sorted(origins))}"
        elif any(new.launches <= old.launches for old, new in zip(before.kernels, after.kernels, strict=True)):
            line["failure"] = "a kernel that explain names did not run"
        elif after.target.kind == "cuda":
            line["error in a graph"] = error(replayed(again), expected)
            if not line["error in a graph"] <= call.tolerance:
                line["failure"] = f"off by {line['error in a graph']:.1e} in a CUDA graph"
    except Exception as failure:
        line["failure"] = f"{type(failure).__name__}: {failure}".splitlines()[0][:300]
    return line


def train(training: Training) -> dict[str, Any]:
    """What became of the gradients of a call."""
    line: dict[str, Any] = {"call": training.name, "failure": ""}
    try:
        line["error"] = error(training.found(), training.expected())
        if not line["error"] <= training.tolerance:
            line["failure"] = f"off by {line['error']:.1e}, tolerance {training.tolerance:.0e}"
    except Exception as failure:
        line["failure"] = f"{type(failure).__name__}: {failure}".splitlines()[0][:300]
    return line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda", "none"), default="cpu")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    there = [name for name in COMPILERS if importlib.util.find_spec(name) is not None]
    assert not there, f"{', '.join(there)} is installed here"
    shipped = inventory()
    assert shipped, "no prebuilt kernels are installed"
    lines = []
    work: list[Callable[[], dict[str, Any]]] = []
    if given.device != "none":
        arch = target_of(torch.empty(0, device=given.device)).arch
        for call in calls(given.device, given.device, arch):
            work.append(partial(run, call))
            if (training := Training.of(call)) is not None:
                work.append(partial(train, training))
    for each in work:
        lines.append(each())
        print(f"{lines[-1]['call']}: {lines[-1]['failure'] or 'ok'}", flush=True)
    failed = [line for line in lines if line["failure"]]
    if given.json:
        device = torch.cuda.get_device_name() if given.device == "cuda" else given.device
        version = importlib.metadata.version("tile-ops")
        facts = {
            "device": device,
            "torch": torch.__version__,
            "tile-ops": version,
            "kernels": len(shipped),
            "calls": lines,
        }
        given.json.write_text(json.dumps(facts, indent=1))
    archs = ", ".join(sorted({kernel["arch"] for kernel in shipped}))
    print(f"{len(shipped)} prebuilt kernels ({archs}); {len(lines)} calls, {len(failed)} failed; no compiler installed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
