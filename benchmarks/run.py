"""All benchmarks: `python benchmarks/run.py [--json FILE] [--quick] [--only GROUP]`, or `python -m nox -s bench`.

On the CPU, ours and the peers run in turn in one process for each number of threads. With `--device` the kernels of
`gpu/` run on this machine's GPU beside cuBLAS, cuDNN and Triton; `--artifacts FOLDER` takes those that `gpu/pack.py`
compiled elsewhere, so that the machine needs neither TVM nor the compiler. `--only GROUP` and `--case PART` (of a label
or name, `"M3 "` or `causal`) may stand several times. Figures are medians. Nothing here is a test.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the lines here")
    parser.add_argument("--quick", action="store_true", help="the smallest size of each group only")
    parser.add_argument(
        "--only", action="append", help="a group: gemm, attention, operators, call, start; or one of gpu/cases.py"
    )
    parser.add_argument("--case", action="append", help="with --device: cases whose label and name contain this")
    parser.add_argument("--sweep", action="store_true", help="with --device: every configuration of gpu/configs.py")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--device", action="store_true", help="on this machine's GPU")
    parser.add_argument("--artifacts", type=Path, help="with --device: kernels that gpu/pack.py compiled")
    parser.add_argument("--plot", type=Path, help="with --device: draw the figures into this file")
    arguments = parser.parse_args()
    if arguments.device:
        sys.exit(device(arguments))
    lines = []
    for group in arguments.only or ["gemm", "attention", "operators", "call", "start"]:
        for threads in arguments.threads if group in ("gemm", "attention", "operators") else [1]:
            command = [sys.executable, str(HERE / "measure.py"), group, "--threads", str(threads)]
            command += ["--quick"] if arguments.quick else []
            # Before the interpreter starts, so that every library sees it.
            env = dict(os.environ) | {f"{n}_NUM_THREADS": str(threads) for n in ("OMP", "OPENBLAS", "MKL", "TILELANG")}
            with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                for text in process.stdout:
                    line = json.loads(text)
                    lines.append(line)
                    print(render(line), flush=True)
            if process.returncode:
                sys.exit(process.returncode)
    if arguments.json:
        facts = {"machine": platform.processor() or platform.machine(), "cores": os.cpu_count(), "lines": lines}
        arguments.json.write_text(json.dumps(facts, indent=1))


def device(arguments: argparse.Namespace) -> int:
    """Compile, unless that has been done, measure, draw. The exit code of the measurement: 0 if all results are right."""
    only = [word for group in arguments.only or [] for word in ("--only", group)]
    only += [word for part in arguments.case or [] for word in ("--case", part)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.artifacts or Path(temporary) / "artifacts"
        if arguments.artifacts is None:
            sweep = ["--sweep"] if arguments.sweep else []
            # Some kernels may be refused: those that were compiled are measured.
            subprocess.run([sys.executable, str(HERE / "gpu" / "pack.py"), str(folder), *only, *sweep], check=False)
        results = arguments.json or Path(temporary) / "results.json"
        command = [sys.executable, str(HERE / "gpu" / "measure.py"), str(folder), "--json", str(results), *only]
        code = subprocess.run(command, check=False).returncode
        if arguments.plot and results.exists():
            subprocess.run(
                [sys.executable, str(HERE / "gpu" / "plot.py"), str(results), str(arguments.plot)], check=True
            )
    return code


def render(line: dict[str, object]) -> str:
    """One line for a person."""
    rates = line["rates"]
    assert isinstance(rates, dict)
    shown = ", ".join(f"{name} {value:.4g}" for name, value in rates.items())
    ratio = f"   {line['ratio']:.2f} of {line['best peer']}" if "ratio" in line else ""
    ratio += f", {line['of bound']:.2f} of the bound by {line['bound by']}" if "of bound" in line else ""
    return f"{line['threads']} thread{'s' if line['threads'] != 1 else ' '}  {line['what']:44} {shown} {line['unit']}{ratio}"


if __name__ == "__main__":
    main()
