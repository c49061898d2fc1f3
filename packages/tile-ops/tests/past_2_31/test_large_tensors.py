"""Tensors of more than 2^31 elements: the last ones are right. They need a GPU's memory and are for `--device` alone."""

from __future__ import annotations

import pytest
import torch

import tile_ops
from tile_ops.attention import reference as attention
from tile_ops.attention_backward import reference as attention_backward
from tile_ops.attention_decode import reference as attention_decode
from tile_ops.dequantize import reference as dequantize
from tile_ops.gemm import reference as gemm
from tile_ops.grouped_gemm import reference as grouped_gemm
from tile_ops.mla import reference as mla
from tile_ops.normalization import reference as normalization
from tile_ops.state_space import reference as state_space

PAST = 1 << 31
HALF = torch.float16


@pytest.fixture
def normal(device):
    generator = torch.Generator(device).manual_seed(0)
    yield lambda *shape: torch.randn(shape, generator=generator, device=device, dtype=HALF)
    if device == "cuda":
        torch.cuda.empty_cache()  # for the processes beside this one


def last(n, *tensors):
    """The last `n` of the first dimension, on the CPU."""
    return tuple(x[-n:].cpu() for x in tensors)


@pytest.mark.parametrize(("name", "columns"), [("rms_norm", 4096), ("rms_norm", 160), ("layer_norm", 4096)])
def test_rows(normal, ran, close, name, columns):
    x, weight = normal(PAST // columns + 5, columns), normal(columns)
    (found,) = last(70, ran(getattr(tile_ops, name), x, weight))
    expected = getattr(normalization, name)(*last(70, x), weight.cpu())
    close(found, expected, normalization.TOLERANCES["float16"])


def test_results_of_products(normal, ran, close):
    columns = 40000
    a, weight = normal(PAST // columns + 300, 64), normal(columns, 64)
    (found,) = last(130, ran(tile_ops.matmul, a, weight.mT))
    close(found, gemm.matmul(*last(130, a), weight.cpu().mT), gemm.TOLERANCES["float16"])


def test_operands_of_products(normal, ran, close):
    a, b = normal(PAST // 65536 + 300, 65536), normal(65536, 16)
    (found,) = last(130, ran(tile_ops.matmul, a, b))
    close(found, gemm.matmul(*last(130, a), b.cpu()), gemm.TOLERANCES["float16"])


def test_products_of_groups(normal, ran, close, device):
    columns = 40000
    x, weights = normal(PAST // columns + 300, 64), normal(3, columns, 64)
    sizes = torch.tensor([100, 0, len(x) - 103])
    (found,) = last(130, ran(tile_ops.grouped_matmul, x, weights.mT, sizes.to(device)))
    assert not found[-3:].any()
    expected = grouped_gemm.grouped_matmul(*last(130, x), weights[2:].cpu().mT, torch.tensor([127]))
    close(found, expected, grouped_gemm.TOLERANCES["float16"])


@pytest.mark.parametrize("tokens", [1, 40])
def test_packed_weights(normal, ran, close, device, tokens):
    k, options = 65536, {"format": "uint4", "group_size": 128}
    n = 2 * PAST // k + 72  # so many bytes
    weight = torch.randint(256, (n, k // 2), dtype=torch.uint8, device=device)
    scales, zeros = normal(k // 128, n), torch.full((k // 128, n), 8, dtype=torch.uint8, device=device)
    x = normal(tokens, k) / 64
    found = ran(tile_ops.dequant_matmul, x, weight, scales=scales, zeros=zeros, **options)[:, -8:].cpu()
    parts = {"scales": scales[:, -8:].cpu(), "zeros": zeros[:, -8:].cpu()}
    expected = dequantize.dequant_matmul(x.cpu(), *last(8, weight), **parts, **options)
    close(found, expected, dequantize.TOLERANCES["float16"])


@pytest.mark.parametrize("causal", [False, True])
def test_attention_and_its_gradients(normal, ran, close, causal):
    tokens, heads, heads_kv, dim = 128, 64, 8, 128
    batch = PAST // (tokens * heads * dim) + 2
    q, dout = (normal(batch, tokens, heads, dim) for _ in range(2))
    k, v = (normal(batch, tokens, heads_kv, dim) for _ in "kv")
    out, lse = ran(tile_ops.flash_attention, q, k, v, causal=causal, return_lse=True)
    expected, _ = attention.flash_attention(*last(1, q, k, v), causal=causal)
    close(*last(1, out), expected, attention.TOLERANCES["float16"])
    found = ran(tile_ops.flash_attention_backward, dout, q, k, v, out, lse, causal=causal)[:3]
    gradients = attention_backward.flash_attention_backward(*last(1, dout, q, k, v), causal=causal)
    for one, other in zip(last(1, *found), gradients):
        close(one, other, attention_backward.TOLERANCES["float16"])


def test_pages_of_keys(normal, ran, close, device):
    k, v = (normal(PAST // (64 * 2 * 128) + 9, 64, 2, 128) for _ in "kv")
    q, lengths = normal(2, 8, 128), torch.tensor([300, 70]).int()
    table = torch.arange(10).int().view(2, 5)
    found = ran(tile_ops.flash_decode, q, k, v, (table + len(k) - 10).to(device), lengths.to(device))
    expected, _ = attention_decode.flash_decode(q.cpu(), *last(10, k, v), table, lengths)
    close(found.cpu(), expected, attention_decode.TOLERANCES["float16"])


def test_pages_of_latents(normal, ran, close, device):
    cache = normal(PAST // (64 * 576) + 9, 64, 576)
    q_nope, q_rope, lengths = normal(2, 16, 512), normal(2, 16, 64), torch.tensor([300, 70]).int()
    table = torch.arange(10).int().view(2, 5)
    pages = (table + len(cache) - 10).to(device)
    found = ran(tile_ops.mla_decode, q_nope, q_rope, cache, pages, lengths.to(device), scale=0.05)
    expected, _ = mla.mla_decode(q_nope.cpu(), q_rope.cpu(), *last(10, cache), table, lengths, scale=0.05)
    close(found.cpu(), expected, mla.TOLERANCES["float16"])


def test_scan(normal, ran, close, device):
    tokens, heads, dim, states = 512, 64, 64, 128
    batch = PAST // (tokens * heads * dim) + 2
    x, dt = normal(batch, tokens, heads, dim), normal(batch, tokens, heads).abs() / 8
    A = -torch.rand(heads, device=device) - 0.1
    B, C = (normal(batch, tokens, 1, states) for _ in "BC")
    found = ran(tile_ops.ssd_scan, x, dt, A, B, C, return_final_states=True)
    expected = state_space.ssd_scan(*last(1, x, dt), A.cpu(), *last(1, B, C))
    for one, other in zip(last(1, *found), expected):
        close(one, other, state_space.TOLERANCES["float16"])
