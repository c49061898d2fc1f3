"""The step of a token agrees with the recurrence, changes the state, and is a torch operator."""

from __future__ import annotations

import re

import pytest
import torch

import tile_ops
from tile_ops.errors import WrongDtype, WrongShape, WrongStride
from tile_ops.state_space import reference


def model(batch=2, nheads=4, ngroups=2, headdim=24, dstate=40, dtype=torch.float16):
    """state, x, dt, A, B, C; D, z and dt_bias by name."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=generator).to(dtype)

    state, A = normal(batch, nheads, headdim, dstate).float(), -torch.rand(nheads, generator=generator) - 0.1
    B, C = normal(batch, ngroups, dstate), normal(batch, ngroups, dstate)
    named = {"D": normal(nheads), "z": normal(batch, nheads, headdim), "dt_bias": normal(nheads)}
    return [state, normal(batch, nheads, headdim), normal(batch, nheads), A, B, C], named


def agree(ran, close, operands, **options):
    dtype = str(operands[1].dtype).removeprefix("torch.")
    y, after = reference.ssd_step(*operands, **options)
    state = operands[0].clone()
    found = ran(tile_ops.ssd_step, state, *operands[1:], **options)
    assert found.dtype == operands[1].dtype
    close(found, y, reference.TOLERANCES[dtype])
    close(state, after, 2e-6)


@pytest.mark.amd_in_full
def test_agrees_with_the_recurrence(way, ran, close):
    operands, named = model()
    agree(ran, close, operands, dt_softplus=True, **named)


def test_without_options(ran, close):
    operands, _ = model(dtype=torch.float32, headdim=72)
    agree(ran, close, operands)


def test_dt_of_float32_and_strided_operands(ran, close):
    operands, named = model(dtype=torch.bfloat16)
    operands[2] = operands[2].float()
    operands[4] = operands[4].transpose(0, 1).contiguous().transpose(0, 1)
    agree(ran, close, operands, dt_softplus=True, D=named["D"])


def test_many_steps_are_a_scan(close):
    operands, _ = model(batch=1, dtype=torch.float32)
    state, A = operands[0].clone(), operands[3]
    tokens = [model(batch=1, dtype=torch.float32)[0] for _ in range(5)]
    for n, token in enumerate(tokens):
        token[1] = token[1] * (n + 1)
    found = torch.stack([tile_ops.ssd_step(state, t[1], t[2], A, t[4], t[5]) for t in tokens], 1)
    x, dt, B, C = (torch.stack([t[i] for t in tokens], 1) for i in (1, 2, 4, 5))
    y, final = reference.ssd_scan(x, dt, A, B, C, initial_states=operands[0])
    close(found, y, reference.TOLERANCES["float32"])
    close(state, final, 1e-5)


def test_nothing_to_do():
    operands, _ = model(batch=0)
    assert tile_ops.ssd_step(*operands).shape == (0, 4, 24)


def test_is_a_torch_operator():
    operands, named = model(dtype=torch.float32)
    arguments = (*operands, named["D"], None, None, True)
    torch.library.opcheck(torch.ops.tile_ops.ssd_step.default, arguments)


def test_refuses_gradients():
    operands, _ = model(dtype=torch.float32)
    operands[1].requires_grad_()
    with pytest.raises(RuntimeError, match="has no backward"):
        tile_ops.ssd_step(*operands)


@pytest.mark.parametrize(
    ("place", "change", "error", "text"),
    [
        (1, lambda x: x[0], WrongShape, "ssd_step: x has shape (4, 24)"),
        (0, lambda x: x[:, :3], WrongShape, "ssd_step: state has shape (2, 3, 24, 40)"),
        (0, lambda x: x.half(), WrongDtype, "ssd_step: state is torch.float16"),
        (0, lambda x: x.transpose(2, 3).contiguous().transpose(2, 3), WrongStride, "ssd_step: state has strides"),
        (5, lambda x: x[..., :8], WrongShape, "ssd_step: C has shape (2, 2, 8)"),
        (2, lambda x: x.double(), WrongDtype, "ssd_step: dt is torch.float64"),
    ],
)
def test_refuses(place, change, error, text):
    operands, _ = model()
    operands[place] = change(operands[place])
    with pytest.raises(error, match=re.escape(text)):
        tile_ops.ssd_step(*operands)
