"""Linear attention agrees with the recurrence token by token, and is a torch operator."""

from __future__ import annotations

import re

import pytest
import torch

import tile_ops
from tile_ops.errors import WrongShape, WrongValue
from tile_ops.linear_attention import reference


@pytest.mark.parametrize("shape", [(1, 64, 1), (1, 64, 1, 16)], ids=["token", "channel"])
def test_a_decay_of_nothing(ran, close, shape):
    """Its logarithm is -inf: what was before is forgotten, and only that."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 64, 1, 16, generator=generator)
    decay = -torch.rand(shape, generator=generator)
    decay[0, 30] = -torch.inf
    o = ran(tile_ops.linear_attention, q, k, v, decay=decay)
    close(o, reference.linear_attention(q, k, v, decay=decay)[0], reference.TOLERANCES["float32"])


def operands(seqlen, heads=2, heads_k=2, dim_k=32, dim_v=32, batch=1, dtype=torch.float16):
    """q, k, v and a decay of each kind."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=generator).to(dtype)

    q, k, v = (normal(batch, seqlen, *shape) for shape in ((heads_k, dim_k), (heads_k, dim_k), (heads, dim_v)))
    decays = {
        "none": None,
        "head": -torch.rand(heads, generator=generator) / 8,
        "token": -torch.rand(batch, seqlen, heads, generator=generator) / 4,
        "channel": -8 * torch.rand(batch, seqlen, heads, dim_k, generator=generator) ** 4,
    }
    return (q, k, v), decays


def agree(found, qkv, close, **options):
    for result, expected in zip(found, reference.linear_attention(*qkv, **options)):
        close(result, expected, reference.TOLERANCES[str(qkv[0].dtype).removeprefix("torch.")])


@pytest.mark.amd_in_full
@pytest.mark.parametrize("kind", ["head", "channel"])
def test_agrees_with_the_recurrence(way, ran, close, kind):
    qkv, decays = operands(70)
    found = ran(tile_ops.linear_attention, *qkv, decay=decays[kind], return_final_state=True)
    agree(found, qkv, close, decay=decays[kind])


@pytest.mark.parametrize("kind", ["none", "token"])
def test_decays_of_chunks(ran, close, kind):
    qkv, decays = operands(70, heads=4, batch=2)
    found = ran(tile_ops.linear_attention, *qkv, decay=decays[kind], scale=0.5, return_final_state=True)
    agree(found, qkv, close, decay=decays[kind], scale=0.5)


@pytest.mark.parametrize("kind", ["head", "token", "channel"])
def test_decays_of_half_precision(ran, close, kind):
    qkv, decays = operands(70, dtype=torch.bfloat16)
    decay = decays[kind].bfloat16()
    found = ran(tile_ops.linear_attention, *qkv, decay=decay, return_final_state=True)
    agree(found, qkv, close, decay=decay)


@pytest.mark.parametrize("kind", ["token", "channel"])
def test_packed_sequences_start_from_their_own_states(ran, close, kind):
    qkv, decays = operands(90, dim_k=24, dim_v=40, dtype=torch.float32)
    initial = torch.randn(3, 2, 40, 24, generator=torch.Generator().manual_seed(1))
    ends = torch.tensor([0, 20, 20, 90])  # int64 is converted
    options = {"initial_state": initial, "cu_seqlens": ends}
    found = ran(tile_ops.linear_attention, *qkv, decay=decays[kind], **options, return_final_state=True)
    agree(found, qkv, close, decay=decays[kind], **options)


def test_empty():
    (q, k, v), _ = operands(0)
    o, state = tile_ops.linear_attention(q, k, v, return_final_state=True)
    assert o.shape == v.shape
    assert state.shape == (1, 2, 32, 32)
    assert not state.any()


def test_is_a_torch_operator(close):
    qkv, decays = operands(70)
    torch.library.opcheck(torch.ops.tile_ops.linear_attention.default, (*qkv, decays["head"], None, None, 1.0))
    compiled = torch.compile(
        lambda v: 2 * tile_ops.linear_attention(*qkv[:2], v, decay=decays["head"]), fullgraph=True, backend="aot_eager"
    )
    close(compiled(qkv[2]), 2 * reference.linear_attention(*qkv, decay=decays["head"])[0], 6e-3)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"decay": torch.zeros(3)}, "decay has shape (3,); expected one of (2,), (1, 8, 2), (1, 8, 2, 32)"),
        ({"k": torch.zeros(1, 8, 1, 32).half()}, "k has shape (1, 8, 1, 32)"),
        ({"initial_state": torch.zeros(1, 2, 8, 32)}, "initial_state has shape (1, 2, 8, 32)"),
    ],
)
def test_refuses(change, text):
    arguments = dict(zip("qkv", operands(8)[0]))
    with pytest.raises(WrongShape, match=re.escape(text)):
        tile_ops.linear_attention(**{**arguments, **change})


@pytest.mark.cpu("a GPU's values are not read, as that would wait for it")
def test_lengths_are_looked_at_in_every_call():
    (q, k, v), _ = operands(90, dim_k=24, dim_v=40, dtype=torch.float32)
    lengths = torch.tensor([0, 20, 20, 90], dtype=torch.int32)
    tile_ops.linear_attention(q, k, v, cu_seqlens=lengths)
    with pytest.raises(WrongValue, match="from 0 to seqlen, 90"):
        tile_ops.linear_attention(q, k, v, cu_seqlens=lengths + 1)
