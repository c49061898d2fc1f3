"""Every example compiles to code objects for both AMD architectures, within the limits of a compute unit."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from tilelang import kernel as kernels

from .test_examples import NAMES

ARCHS = ["gfx90a", "gfx942"]


class Compiled(Exception):
    """Stops an example where its first kernel would be loaded."""


def cases() -> list[Any]:
    """The first shape of each example for both; the others for gfx942 in `nox -s full`."""
    return [
        pytest.param(arch, name, case, id=f"{arch}-{name}-{number}", marks=pytest.mark.full if number else ())
        for name in NAMES
        for number, case in enumerate(importlib.import_module(name).CASES)
        for arch in (ARCHS if number == 0 else ARCHS[1:])
        if case.get("method") != "ptx"  # runs in the interpreter where there is no PTX
    ]


@pytest.mark.parametrize(("arch", "name", "case"), cases())
def test_example_compiles(arch: str, name: str, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def stop(artifact: Any, *_: Any) -> Any:
        made.append(artifact)
        raise Compiled

    monkeypatch.setattr(kernels, "load_artifact", stop)
    example = importlib.import_module(name)
    with pytest.raises(Compiled):
        example.check(f"hip -mcpu={arch}", "device", **case)
    (artifact,) = made
    assert artifact.manifest.target.arch == arch
    assert artifact.manifest.resources
    for symbol, used in artifact.manifest.resources.items():
        assert used["spills"] == used["scratch"] == 0, (symbol, used)
        assert used["shared"] <= 64 << 10
        assert used["occupancy"] >= 1


@pytest.mark.parametrize("name", ["gemm", "flash_attention", "mla_decode"])
@pytest.mark.parametrize("arch", ARCHS)
def test_products_use_the_matrix_cores(name: str, arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def stop(artifact: Any, *_: Any) -> Any:
        made.append(artifact)
        raise Compiled

    monkeypatch.setattr(kernels, "load_artifact", stop)
    example = importlib.import_module(name)
    with pytest.raises(Compiled):
        example.check(f"hip -mcpu={arch}", "device", **example.CASES[0])
    assert "tl::mfma_" in made[0].source
