"""Prompts of latent attention agree with their definition, alone and packed."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
import torch

import tile_ops
from tile_ops.attention.reference import TOLERANCES
from tile_ops.errors import WrongDtype, WrongShape, WrongValue
from tile_ops.mla import reference


def operands(batch, tokens, keys, heads=2, nope=24, rope=8, dim_v=16, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = [(batch, tokens, heads, nope), (batch, tokens, heads, rope), (batch, keys, heads, nope)]
    shapes += [(batch, keys, rope), (batch, keys, heads, dim_v)]
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def test_agrees_with_the_definition(ran, close):
    for tokens, keys, options in [(40, 70, {}), (70, 70, {"causal": False}), (5, 70, {"scale": 0.3})]:
        tensors = operands(2, tokens, keys)
        out, lse = ran(tile_ops.mla_prefill, *tensors, **options, return_lse=True)
        expected, expected_lse = reference.mla_prefill(*tensors, **options)
        close(out, expected, TOLERANCES["float32"])
        close(lse, expected_lse, 1e-5)


def test_packed_sequences_stay_apart(ran, close):
    tensors, starts = operands(1, 60, 60), torch.tensor([0, 3, 3, 40, 60], dtype=torch.int32)
    options = {"cu_seqlens": starts, "max_seqlen": 37}
    out, lse = ran(tile_ops.mla_prefill, *tensors, **options, return_lse=True)
    alone = [reference.mla_prefill(*(x[:, a:b] for x in tensors)) for a, b in pairwise(starts)]
    close(out, torch.cat([part for part, _ in alone], 1), TOLERANCES["float32"])
    close(lse, torch.cat([part[0] for _, part in alone], 1), 1e-5)
    assert torch.equal(tile_ops.mla_prefill(*tensors, **options), out)


@pytest.mark.cpu("its threads")
@pytest.mark.parametrize("threads", [1, 32])
def test_explain_names_the_kernel_that_runs_with_so_many_threads(monkeypatch, threads):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    q_nope, q_rope, k_nope, k_rope, v = operands(1, 130, 130)
    query = torch.cat([q_nope, q_rope], -1)
    key = torch.cat([k_nope, k_rope[:, :, None].expand(-1, -1, k_nope.shape[2], -1)], -1)
    found = tile_ops.explain(tile_ops.mla_prefill, q_nope, q_rope, k_nope, k_rope, v)
    ran = tile_ops.explain(tile_ops.flash_attention, query, key, v, causal=True)
    assert [kernel.spec for kernel in found.kernels] == [kernel.spec for kernel in ran.kernels]


def test_gradients_reach_every_part(close):
    tensors = [x.requires_grad_() for x in operands(1, 20, 30)]
    found = torch.autograd.grad(tile_ops.mla_prefill(*tensors).square().sum(), tensors)
    expected = torch.autograd.grad(reference.mla_prefill(*tensors)[0].square().sum(), tensors)
    for one, other in zip(found, expected):
        close(one, other, 1e-4)


@pytest.mark.parametrize("compiled", [False, True])
def test_autocast_joins_parts_of_different_types(close, device, compiled):
    """As what makes them leaves them: products in the type of autocast, the rotation in float32."""
    tensors = [x.bfloat16() if place in (0, 4) else x for place, x in enumerate(operands(1, 20, 30))]
    function = tile_ops.mla_prefill
    if compiled:
        function = torch.compile(function, fullgraph=True, backend="aot_eager")
    with torch.autocast(device, torch.bfloat16):
        found = function(*tensors)
    assert found.dtype == torch.bfloat16
    close(found, reference.mla_prefill(*(x.bfloat16() for x in tensors))[0], TOLERANCES["bfloat16"])


def test_compiles_as_one_graph(close):
    tensors = operands(1, 20, 30)
    compiled = torch.compile(lambda *x: 2 * tile_ops.mla_prefill(*x), fullgraph=True, backend="aot_eager")
    close(compiled(*tensors), 2 * reference.mla_prefill(*tensors)[0], TOLERANCES["float32"])


GOOD = operands(1, 4, 5)


def replaced(place, tensor):
    return [tensor if i == place else x for i, x in enumerate(GOOD)]


@pytest.mark.parametrize(
    ("tensors", "options", "error", "text"),
    [
        (replaced(3, GOOD[2]), {}, WrongShape, "expected q_nope and q_rope (batch, tokens, heads, ...)"),
        (replaced(1, GOOD[1][..., :4]), {}, WrongShape, "q_rope (1, 4, 2, 4), k_nope"),
        (replaced(3, GOOD[3][:, :3]), {}, WrongShape, "batch, heads, keys and the two dimensions must agree"),
        (replaced(4, torch.ones(1, 5, 2, 40)), {}, WrongShape, "mla_prefill: the heads of v have 40 elements"),
        (replaced(1, GOOD[1].half()), {}, WrongDtype, "q_rope is torch.float16"),
        (
            replaced(4, GOOD[4].half()),
            {},
            WrongDtype,
            "mla_prefill: q is torch.float32, k torch.float32, v torch.float16",
        ),
        (GOOD, {"scale": -1.0}, WrongValue, "mla_prefill: scale is -1.0"),
        (GOOD, {"cu_seqlens": torch.tensor([0, 4])}, WrongShape, "as many keys as tokens"),
        (operands(1, 4, 4), {"cu_seqlens": torch.tensor([0, 4])}, WrongValue, "max_seqlen is None"),
        (operands(1, 4, 4), {"cu_seqlens": torch.tensor([0, 4]), "max_seqlen": 4.0}, WrongValue, "max_seqlen is 4.0"),
    ],
)
def test_refuses(tensors, options, error, text):
    with pytest.raises(error, match=re.escape(text)):
        tile_ops.mla_prefill(*tensors, **options)
