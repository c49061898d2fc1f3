"""Every operator from the wheels on an NVIDIA GPU: `on_device.py pack` where they were built, `on_device.py run FILE` there.

`pack` copies the wheels of dist/ that a CUDA machine needs into .device/, which git ignores. `run` installs them beside the
torch that is there, without an index and without a compiler, runs installed.py, and writes its results into FILE.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
WHEELS = ROOT / ".device" / "wheels"
NEEDED = ("tile_ops", "tile_ops_prebuilt_cuda", "tile_runtime", "tile_runtime_cuda")


def pack() -> int:
    shutil.rmtree(WHEELS, ignore_errors=True)
    WHEELS.mkdir(parents=True)
    for name in NEEDED:
        found = list((ROOT / "dist").glob(f"{name}-*.whl"))
        if len(found) != 1:
            print(f"dist/ holds {len(found)} wheels {name}: run `python -m nox -s prebuild wheels`")
            return 1
        shutil.copy(found[0], WHEELS)
    print(f"{WHEELS}: {sum(path.stat().st_size for path in WHEELS.iterdir()) / 2**20:.1f} MiB")
    return 0


def run(results: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="tile-ops-") as site:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", site]
        subprocess.run([*pip, *map(str, WHEELS.glob("*.whl"))], check=True)
        program = [sys.executable, str(HERE / "installed.py"), "--device", "cuda", "--json", str(results)]
        return subprocess.run(program, env=os.environ | {"PYTHONPATH": site}, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    steps.add_parser("pack")
    steps.add_parser("run").add_argument("results", type=Path)
    given = parser.parse_args()
    return pack() if given.step == "pack" else run(given.results)


if __name__ == "__main__":
    sys.exit(main())
