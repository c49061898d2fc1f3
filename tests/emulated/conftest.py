"""Generated kernels in the emulator, as compiled or with a fault planted in their text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilelang
from tile_runtime.artifact import Artifact
from tile_runtime_cpu.emulator.kernel import load
from tile_runtime_cpu.emulator.report import EmulationError, Finding, Report
from tilelang import interpreter


@pytest.fixture(scope="session")
def emulated() -> Callable[..., Any]:
    """emulated(func, out_idx): the kernel that the emulator runs, for sm_80."""

    def compile_for_emulation(func: Any, out_idx: Any = None) -> Any:
        return tilelang.compile(func, out_idx, target="cuda -arch=sm_80", execution="emulate")

    return compile_for_emulation


class Planted:
    """A kernel of which the text was changed; what the emulator says of it."""

    def __init__(self, kernel: Any, changes: tuple[tuple[str, str], ...]) -> None:
        artifact = kernel.artifact
        text = artifact.source
        for old, new in changes:
            assert old in text, f"{old!r} is not in:\n{text}"
            assert old.count("\n") == new.count("\n"), "the lines must stay where they are"
            text = text.replace(old, new, 1)
        files = {**artifact.files, artifact.manifest.source: text.encode()}
        binaries = [{"file": b.file, "kind": b.kind} for b in artifact.manifest.binaries]
        self.loaded = load(Artifact(artifact.manifest.replace(binaries=binaries), files))

    def report(self, *args: Any) -> Report:
        try:
            self.loaded(*args)
        except EmulationError:
            pass
        report: Report = self.loaded.backend.reports[-1]
        return report

    def finding(self, kind: str, *args: Any) -> Finding:
        """The first finding, which must be of this kind."""
        report = self.report(*args)
        assert report.errors, "nothing was found"
        assert report.errors[0].kind == kind, str(report)
        return report.errors[0]


@pytest.fixture(scope="session")
def planted(emulated: Callable[..., Any]) -> Callable[..., Planted]:
    """planted(func, (old, new), ...): the kernel's text with each `old` replaced once."""

    def plant(func: Any, *changes: tuple[str, str]) -> Planted:
        return Planted(emulated(func), changes)

    return plant


@pytest.fixture(scope="session")
def values() -> Callable[..., Any]:
    """values(shape, dtype, seed): small integers, which sums keep exact in every type."""

    def make(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
        drawn = np.random.default_rng(seed).integers(0, 8, shape)
        return drawn.astype(getattr(ml_dtypes, dtype, dtype))

    return make


@pytest.fixture
def agree(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Artifact]:
    """agree(func, inputs, want): the interpreter and the text for sm_90a, copies early and late, give `want` in the last
    argument; the artifact."""

    def check(func: Any, inputs: list[Any], want: Any) -> Artifact:
        meant = np.zeros_like(want)
        interpreter.run(func, [*inputs, meant])
        np.testing.assert_array_equal(meant, want)
        kernel = tilelang.compile(func, target="cuda -arch=sm_90a", execution="emulate")
        for mode in ("early", "late"):
            monkeypatch.setenv("TILELANG_EMULATE_MODE", mode)
            got = np.zeros_like(want)
            kernel(*inputs, got)
            np.testing.assert_array_equal(got, want)
        return kernel.artifact

    return check
