"""All CPU benchmarks: `python benchmarks/run.py [--json FILE] [--quick] [--only GROUP]`, or `python -m nox -s bench`.

Ours and the peers run in turn in one process for each number of threads; figures are medians. Nothing here is a test.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the lines here")
    parser.add_argument("--quick", action="store_true", help="the smallest size of each group only")
    parser.add_argument("--only", action="append", help="a group: gemm, attention, call, start")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    lines = []
    for group in arguments.only or ["gemm", "attention", "call", "start"]:
        for threads in arguments.threads if group in ("gemm", "attention") else [1]:
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


def render(line: dict[str, object]) -> str:
    """One line for a person."""
    rates = line["rates"]
    assert isinstance(rates, dict)
    shown = ", ".join(f"{name} {value:.4g}" for name, value in rates.items())
    ratio = f"   {line['ratio']:.2f} of {line['best peer']}" if "ratio" in line else ""
    return f"{line['threads']} thread{'s' if line['threads'] != 1 else ' '}  {line['what']:44} {shown} {line['unit']}{ratio}"


if __name__ == "__main__":
    main()
