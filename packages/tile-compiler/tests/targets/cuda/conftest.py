"""Fixtures: what is in a cubin."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def disassembler() -> str:
    """nvdisasm of the wheel nvidia-cuda-nvdisasm, else of a toolkit."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        found = Path(root) / "cu13" / "bin" / "nvdisasm"
        if found.exists():
            return str(found)
    installed = shutil.which("nvdisasm")
    if installed is None:
        pytest.skip("no nvdisasm (wheel nvidia-cuda-nvdisasm): that the right instructions come out was NOT tested")
    return installed


@pytest.fixture
def listing(disassembler: str, tmp_path: Path) -> Callable[..., str]:
    """`listing(cubin, *flags)`: the machine's instructions as text."""

    def run(cubin: bytes, *flags: str) -> str:
        file = tmp_path / "kernel.cubin"
        file.write_bytes(cubin)
        return subprocess.run([disassembler, *flags, str(file)], capture_output=True, text=True, check=True).stdout

    return run
