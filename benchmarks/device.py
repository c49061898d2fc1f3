"""CUDA kernels compiled on one machine and run on another: `pack` needs no GPU, `run` neither TVM nor the compiler.

    python benchmarks/device.py pack FOLDER [--arch sm_90]     # here: artifacts, inputs, and what the emulator computed
    python benchmarks/device.py run FOLDER [--json FILE]       # there: does the device agree with the emulator?

Figures of speed come from `benchmarks/run.py --device`. `run` needs torch and the packages tile-runtime and
tile-runtime-cuda (or their `src` folders on PYTHONPATH).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"


def pack(folder: Path, arch: str) -> None:
    """Artifacts of every example that CUDA can compile, and of texts that stay, with the arguments and results of an
    emulated call."""
    import importlib

    import tilelang

    sys.path[:0] = [str(EXAMPLES), str(HERE / "gpu")]
    folder.mkdir(parents=True, exist_ok=True)
    original = tilelang.compile
    entries: list[dict[str, Any]] = []
    said: list[str] = []

    def recording(func: Any, out_idx: Any = None, pass_configs: Any = None, **_: Any) -> Any:
        options = {"target": f"cuda -arch={arch}", "pass_configs": pass_configs}
        emulated = original(func, out_idx, **options, execution="emulate")
        said[:] = [note["text"] for note in emulated.report()["notes"]]
        number = len({e["artifact"] for e in entries})
        name = f"{current}-{number}.tile"
        original(func, out_idx, **options).export(folder / name)

        def call(*arguments: Any) -> Any:
            before = [np.array(a) if isinstance(a, np.ndarray) else a for a in arguments]
            result = emulated(*arguments)
            after = [*arguments, *(result if isinstance(result, list) else [] if result is None else [result])]
            place = f"{current}-{number}-{len(entries)}.npz"
            arrays = {f"in{i}": _plain(a) for i, a in enumerate(before)}
            arrays |= {f"out{i}": _plain(a) for i, a in enumerate(after)}
            np.savez(folder / place, **arrays)
            kinds = [str(a.dtype) if isinstance(a, np.ndarray) else type(a).__name__ for a in after]
            entries.append({"artifact": name, "data": place, "inputs": len(before), "kinds": kinds})
            return result

        return call

    tilelang.compile = recording
    for path in sorted(EXAMPLES.glob("*.py")):
        current = path.stem
        if current in ("checking", "models", "quickstart", "debugging"):  # the last one's result is what it prints
            continue
        example = importlib.import_module(current)
        for case in example.CASES:
            try:
                example.check(f"cuda -arch={arch}", "emulate", **case)
            except NotImplementedError as error:
                print(f"{current}: left out: {str(error).splitlines()[0]}")
    if arch == "sm_90a":
        for current, func, operands in staying():
            recording(func, [-1], {"tl.enable_fast_math": True})(*operands)  # as they are measured
            if not any(text.startswith("blocks stay") for text in said):
                raise SystemExit(f"{current}: a block for each tile; {said}")
    tilelang.compile = original
    (folder / "index.json").write_text(json.dumps(entries))
    print(f"{len(entries)} calls of {len({e['artifact'] for e in entries})} kernels packed")


def staying() -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Measured texts at few tiles more than multiprocessors, so that their blocks stay: name, kernel, operands.

    Every second tile of the products has 8 rows of 128, which keeps what has to be carried small.
    """
    import ml_dtypes
    from cases import Attention, Gemm
    from configs import BEST
    from kernels import kernel

    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray[Any, Any]:
        return rng.standard_normal(shape).astype(np.float16)

    product = Gemm("", 136, 17136, 136)  # 2 x 67 tiles
    yield "stays-gemm", kernel(product, BEST["gemm"][0]), (normal(136, 136), normal(136, 17136))
    narrow = Gemm("", 136, 17136, 144, "float8_e4m3fn", transpose_b=True)
    a, b = (normal(n, 144).astype(ml_dtypes.float8_e4m3fn) for n in (136, 17136))
    yield "stays-fp8", kernel(narrow, BEST["fp8"][0]), (a, b)
    heads = Attention("", 1, 68, 2, 256, False)  # 68 x 2 tiles
    q, k, v = (normal(1, n, 256, 128) for n in (68, 2, 2))
    yield "stays-attention", kernel(heads, BEST["attention"][0]), (q, k, v)


def numbers(x: Any, kind: Any) -> np.ndarray[Any, Any]:
    """A tensor of the type `kind`, or of its bits, in float64."""
    return (x if x.dtype == kind else x.view(kind)).double().numpy()  # type: ignore[no-any-return]


def difference(have: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> float:
    """The largest one, relative to the largest finite number; a NaN or an infinity of one side alone is infinitely wrong."""
    same = (have == want) | (np.isnan(have) & np.isnan(want))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(have - want))
    scale = np.abs(want, where=np.isfinite(want), out=np.zeros(want.shape)).max()
    return float(np.nan_to_num(apart, nan=np.inf, posinf=np.inf).max() / max(scale, 1e-30))


def _plain(value: Any) -> np.ndarray[Any, Any]:
    """An array whose dtype any numpy knows: bfloat16 and float8 as their bits."""
    array = np.asarray(value)
    return array if array.dtype.kind in "biufc" else array.view(f"u{array.dtype.itemsize}")


def run(folder: Path, report: Path | None) -> None:
    """Compare with what the emulator computed; then time GEMM against torch in one run."""
    import torch

    from tile_runtime import registry
    from tile_runtime.artifact import Artifact

    try:
        device = registry.device("cuda")
    except Exception:  # the packages are on the path, not installed
        from tile_runtime_cuda.plugin import DEVICE as device

    lines: list[dict[str, Any]] = []
    failures = 0
    for entry in json.loads((folder / "index.json").read_text()):
        kernel = device.load(Artifact.load(folder / entry["artifact"]))
        data = np.load(folder / entry["data"])
        arguments = []
        for i in range(entry["inputs"]):
            value = data[f"in{i}"]
            arguments.append(value.item() if value.ndim == 0 else torch.from_numpy(value).cuda())
        result = kernel(*arguments)
        got = [*arguments, *(result if isinstance(result, list) else [] if result is None else [result])]
        worst = 0.0
        for i, value in enumerate(got):
            if isinstance(value, torch.Tensor) and value.numel():
                kind = getattr(torch, entry["kinds"][i])
                want, have = (numbers(x, kind) for x in (torch.from_numpy(data[f"out{i}"]), value.cpu()))
                worst = max(worst, difference(have.reshape(want.shape), want))
        good = worst < 5e-3
        failures += not good
        lines.append({"what": entry["artifact"], "relative difference": worst, "agrees": good})
        if not good:
            print(f"WRONG {entry['artifact']} {entry['data']}: {worst:.1e}")
    print(f"{len(lines) - failures} of {len(lines)} calls agree with the emulator")
    if report is not None:
        facts = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "lines": lines}
        report.write_text(json.dumps(facts, indent=1))
    sys.exit(failures > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("pack", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    pack(chosen.folder, chosen.arch) if chosen.action == "pack" else run(chosen.folder, chosen.json)
