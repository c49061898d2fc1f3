"""A cubin's instructions as text, by NVIDIA's `nvdisasm`."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path

from .build import BuildError


def disassembler() -> str | None:
    """Of the wheel nvidia-cuda-nvdisasm, else of a toolkit on PATH; None if there is none."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for found in sorted(Path(root).glob("cu*/bin/nvdisasm")):
            return str(found)
    return shutil.which("nvdisasm")


def listing(cubin: bytes) -> str:
    """The instructions. Raises BuildError without a disassembler, or for what is no cubin."""
    program = disassembler()
    if program is None:
        raise BuildError("there is no nvdisasm here: pip install nvidia-cuda-nvdisasm, or put a CUDA toolkit on PATH")
    with tempfile.TemporaryDirectory(prefix="tile-cuda-") as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        done = subprocess.run([program, str(file)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"nvdisasm refused the binary: {done.stderr.strip()[:300]}")
    return done.stdout
