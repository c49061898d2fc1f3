"""Counting compilations, and running a program in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tilelang.just_in_time


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that were compiled since the test began."""
    seen: list[str] = []
    compile_func = tilelang.just_in_time.compile_func

    def counted(func, *args, **kwargs):
        seen.append(str(func.attrs["global_symbol"]))
        return compile_func(func, *args, **kwargs)

    monkeypatch.setattr(tilelang.just_in_time, "compile_func", counted)
    return seen


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., str]:
    """`program(text, **environment)`: run a file in a fresh process with its own cache, and give what it printed."""

    def run(text: str, name: str = "program.py", **environment: str) -> str:
        file = tmp_path / name
        file.write_text(text)
        env = {**os.environ, "TILELANG_CACHE_DIR": str(tmp_path / "cache"), **environment}
        done = subprocess.run([sys.executable, str(file)], env=env, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run
