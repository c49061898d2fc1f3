"""The example with models says that they agree, and that one does not which does not."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

FILE = Path(__file__).resolve().parents[4] / "examples" / "models.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("models_example", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name", ["llama", "quantized", *(pytest.param(n, marks=pytest.mark.full) for n in ("deepseek", "mamba"))]
)
def test_a_model_agrees(example, capsys, name):
    assert example.main([name]) == 0
    assert capsys.readouterr().out.startswith(f"ok    {name}: ")


def test_disagreement_is_the_exit_status(example, monkeypatch, capsys):
    monkeypatch.setitem(example.MODELS, "llama", lambda _: (torch.tensor([1.0, torch.nan]), torch.ones(2), 1e-2))
    assert example.main(["llama"]) == 1
    assert capsys.readouterr().out.startswith("WRONG llama")
