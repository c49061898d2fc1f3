"""Gradients of the Mamba-2 scan agree with autograd through the recurrence in float64."""

from __future__ import annotations

import pytest
import torch

import tile_ops
from tile_ops.state_space import reference
from tile_ops.state_space_backward.api import ssd_scan_backward
from tile_ops.state_space_backward.reference import TOLERANCES


def operands(seqlen, dtype, sequences, headdim, dstate, gated):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=generator).to(dtype)

    found = {
        "x": normal(1, seqlen, 2, headdim),
        "dt": normal(1, seqlen, 2) - 1,
        "A": -torch.rand(2, generator=generator) - 0.1,
        "B": normal(1, seqlen, 1, dstate),
        "C": normal(1, seqlen, 1, dstate),
        "D": normal(2),
        "dt_bias": normal(2),
        "initial_states": normal(sequences, 2, headdim, dstate),
    }
    return {**found, "z": normal(1, seqlen, 2, headdim)} if gated else found


def gradients(scan, values, dtype=None, **options):
    """By name, of a sum of the outputs and the last states with random weights."""
    values = {name: value.detach().to(dtype or value.dtype).requires_grad_() for name, value in values.items()}
    y, final = scan(**values, dt_softplus=True, **options)
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(t.shape, generator=generator).to(torch.float16).to(t.dtype) for t in (y, final)]
    ((y * weights[0]).sum() + (final * weights[1]).sum()).backward()
    return {name: value.grad for name, value in values.items()}


def agree(values, tolerance, close, cu_seqlens=None):
    found = gradients(tile_ops.ssd_scan, values, chunk_size=64, return_final_states=True, cu_seqlens=cu_seqlens)
    expected = gradients(reference.ssd_scan, values, torch.float64, cu_seqlens=cu_seqlens)
    for name, gradient in found.items():
        assert gradient.dtype == values[name].dtype, name
        close(gradient, expected[name], tolerance)


def test_packed_sequences_with_a_gate(close):
    ends = torch.tensor([0, 70, 70, 150])  # int64 is converted
    agree(operands(150, torch.float32, 3, 40, 24, gated=True), TOLERANCES["float32"], close, ends)


@pytest.mark.parametrize("target", ["cuda -arch=sm_80", pytest.param("cuda -arch=sm_90a", marks=pytest.mark.full)])
def test_on_tensor_cores(close, run_as, target):
    run_as(target)
    agree(operands(100, torch.float16, 1, 32, 16, gated=False), TOLERANCES["float16"], close)


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float16, marks=pytest.mark.full)])
def test_tokens_that_leave_nothing(close, dtype):
    """exp(-100) and less: sums of decays are large, those of a token with itself are none, and must stay so."""
    values = operands(150, dtype, 1, 40, 24, gated=False)
    values["dt"] = values["dt"] / 8 + 1
    values["A"] = torch.tensor([-100.0, -200.0])
    del values["dt_bias"], values["initial_states"]
    found = gradients(tile_ops.ssd_scan, values, chunk_size=64, return_final_states=True)
    expected = gradients(reference.ssd_scan, values, torch.float64)
    for name in ("x", "B", "C", "D"):
        close(found[name], expected[name], TOLERANCES[str(dtype).removeprefix("torch.")])
    # The gradient of a step has A times what rounding leaves of the difference of two equal sums.
    close(found["dt"], expected["dt"], {torch.float32: 2e-3, torch.float16: 0.1}[dtype])


def test_gradients_are_the_same_in_every_run():
    ends = torch.tensor([0, 70, 70, 150], dtype=torch.int32)
    values = operands(150, torch.float32, 3, 40, 24, gated=True)
    options = {"chunk_size": 64, "return_final_states": True, "cu_seqlens": ends}
    first, *others = (gradients(tile_ops.ssd_scan, values, **options) for _ in range(4))  # prepared from the third on
    assert all(torch.equal(first[name], other[name]) for other in others for name in first)


@pytest.mark.parametrize(
    "kind", ["plain", "packed", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("of a model", "gated"))]
)
def test_gradients_come_again(kind, monkeypatch, close):
    """Other operands of a shape: native code knows the call."""
    cu_seqlens = torch.tensor([0, 9, 20], dtype=torch.int32) if kind == "packed" else None
    for turn in range(6):
        values = operands(20, torch.float32, 2 if kind == "packed" else 1, 16, 8, gated=kind in ("gated", "packed"))
        if kind in ("plain", "of a model"):
            del values["initial_states"]
        if kind == "plain":
            del values["D"], values["dt_bias"]
        values = {name: x * (1 + turn / 8) for name, x in values.items()}
        if turn == 4:  # the first one prepares, the third one is kept
            monkeypatch.setattr(ssd_scan_backward.again, "run", lambda *_: pytest.fail("the implementation was asked"))
        options = {"return_final_states": True, "cu_seqlens": cu_seqlens}
        found = gradients(tile_ops.ssd_scan, values, chunk_size=64, **options)
        expected = gradients(reference.ssd_scan, values, torch.float64, cu_seqlens=cu_seqlens)
        for name, gradient in found.items():
            close(gradient, expected[name], TOLERANCES["float32"])


def test_sums_of_other_types(close):
    """Gradients of A, D, dt_bias and the first states, which kernels write in float32."""
    values = operands(40, torch.float32, 1, 16, 8, gated=False)
    others = {name: values[name].bfloat16() for name in ("A", "D", "dt_bias", "initial_states")}
    for _ in range(4):
        agree({**values, **others}, TOLERANCES["bfloat16"], close)


def test_without_the_gradient_of_the_last_states(monkeypatch):
    """Zeros stand for it: kept ones, or more than are kept."""
    values = operands(40, torch.float32, 1, 16, 8, gated=False)

    def found():
        leaves = {name: value.detach().requires_grad_() for name, value in values.items()}
        y = tile_ops.ssd_scan(**leaves, chunk_size=64, dt_softplus=True)
        return torch.autograd.grad(y.sum(), list(leaves.values()))

    def expected():
        leaves = {name: value.detach().double().requires_grad_() for name, value in values.items()}
        return torch.autograd.grad(reference.ssd_scan(**leaves, dt_softplus=True)[0].sum(), list(leaves.values()))

    first, exact = found(), expected()
    for gradient, other in zip(first, exact):
        torch.testing.assert_close(gradient.double(), other, rtol=1e-3, atol=1e-4)
    ssd_scan_backward.again.forget()
    monkeypatch.setattr("tile_ops.constants.MOST_ZEROS", 39)
    for _ in range(4):
        assert all(torch.equal(one, other) for one, other in zip(found(), first))
