"""An exported CUDA kernel is loaded and launched by a Python that has numpy and the runtime's packages, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
PROGRAM = HERE / "launch_alone.py"
PACKAGES = HERE.parent.parent / "packages"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("exported") / "gemm.tile"
    subprocess.run([sys.executable, str(PROGRAM), "export", str(path)], check=True)
    return path


@pytest.mark.parametrize("with_language", [False, True], ids=["tile_runtime", "tilelang.load"])
def test_no_compiler_is_needed_to_launch(exported: Path, tmp_path: Path, with_language: bool) -> None:
    """`-I -S`: no environment variables, no site-packages. Besides the standard library, this folder is all there is."""
    site = Path(np.__file__).resolve().parent.parent
    wanted = [site / "numpy", site / "numpy.libs", PACKAGES / "tile-runtime" / "src" / "tile_runtime"]
    wanted.append(PACKAGES / "tile-runtime-cuda" / "src" / "tile_runtime_cuda")
    wanted += [PACKAGES / "tile-lang" / "src" / "tilelang"] if with_language else []
    for folder in wanted:
        if folder.exists():
            os.symlink(folder, tmp_path / folder.name)
    announced = tmp_path / "tile_runtime_cuda-0.1.0.dist-info" / "entry_points.txt"  # as an installer writes it
    announced.parent.mkdir()
    announced.write_text("[tile_runtime.devices]\ncuda = tile_runtime_cuda.plugin:DEVICE\n")
    program = (
        f"import sys, runpy; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['alone', 'launch', {str(exported)!r}]; "
    )
    program += f"runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"launched {2 if with_language else 1} times without tvm, tvm_ffi, tile_compiler, torch\n"
