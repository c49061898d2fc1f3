"""Objects to load: LLVM IR through TVM (always there in CI), and C through gcc where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tile_runtime.artifact import Artifact
from tile_runtime.manifest import Manifest
from tile_runtime.shipped_code import compile_llvm

IR = (Path(__file__).parent / "kernels.ll").read_text()


@pytest.fixture(scope="session")
def kernels() -> bytes:
    """The object of kernels.ll."""
    return compile_llvm(IR)


@pytest.fixture
def artifact(kernels: bytes) -> Callable[..., Artifact]:
    """artifact(symbol, params, ...) -> an artifact that launches a function of kernels.ll over `grid` blocks."""

    def build(symbol: str, params: list[dict[str, Any]], grid: Any = 1, args: Any = None, **more: Any) -> Artifact:
        launch_fields = {k: more.pop(k) for k in ("shared", "prints", "errors") if k in more}
        launch = {"binary": "kernels.o", "symbol": symbol, "grid": [grid, 1, 1]}
        launch |= {"args": [["param", p["name"]] for p in params] if args is None else args, **launch_fields}
        data = {"format": 1, "name": symbol, "target": {"kind": "cpu", "arch": "x86-64"}, "params": params}
        data |= {"variants": [{"launches": [launch]}], "binaries": [{"file": "kernels.o", "kind": "elf"}], **more}
        return Artifact(Manifest.from_json(data), {"kernels.o": kernels})

    return build


@pytest.fixture
def gcc(tmp_path: Path) -> Callable[..., bytes]:
    """gcc(C text, *flags) -> object; skips the test where no gcc is installed."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc: relocations that LLVM does not write were NOT tried")

    def compile_c(text: str, *flags: str) -> bytes:
        source, target = tmp_path / "code.c", tmp_path / "code.o"
        source.write_text(text)
        subprocess.run([compiler, "-O1", "-c", *flags, str(source), "-o", str(target)], check=True)
        return target.read_bytes()

    return compile_c
