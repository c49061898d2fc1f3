"""Attention over a paged cache agrees with attention over the same keys in a row."""

from __future__ import annotations

import re

import pytest
import torch

import tile_ops
from tile_ops.attention_decode import reference
from tile_ops.errors import WrongDtype, WrongShape, WrongValue


def operands(lengths, heads, heads_kv, dim, page_size, dtype):
    """Pages in random order; what lies past a sequence's end is NaN."""
    generator = torch.Generator().manual_seed(0)
    columns = -(-max(lengths) // page_size) + 1
    pages = len(lengths) * columns
    k, v = torch.randn(2, pages, page_size, heads_kv, dim, generator=generator)
    q = 2 * torch.randn(len(lengths), heads, dim, generator=generator)
    table = torch.randperm(pages, generator=generator).view(len(lengths), columns)
    for row, length in zip(table, lengths):
        behind = torch.arange(columns * page_size).view(columns, page_size) >= length
        for cache in (k, v):
            cache[row] = cache[row].masked_fill(behind[..., None, None], torch.nan)
    return q.to(dtype), k.to(dtype), v.to(dtype), table.int(), torch.tensor(lengths).int()


@pytest.fixture
def agrees(ran, close):
    def check(*tensors, **options):
        splits = options.pop("splits", None)
        out, lse = ran(tile_ops.flash_decode, *tensors, splits=splits, return_lse=True, **options)
        expected, expected_lse = reference.flash_decode(*tensors, **options)
        close(out, expected, reference.TOLERANCES[str(out.dtype).removeprefix("torch.")])
        finite = ~expected_lse.isinf()
        assert torch.equal(lse.isinf(), ~finite)
        close(lse[finite], expected_lse[finite], 1e-4)

    return check


def test_sequences_of_different_lengths(cpu_or_hopper, agrees):
    agrees(*operands([150, 0, 67, 1], 4, 2, 64, 64, torch.float16), splits=3)


@pytest.mark.parametrize("splits", [1, 3])
def test_what_is_no_number_reaches_its_head(ran, splits):
    """NaN of a query, and of a key that one sequence has; the others have NaN behind their keys, which nobody reads."""
    q, k, v, table, lengths = operands([150, 40, 67], 4, 2, 64, 64, torch.float32)
    q[0, 1, 3] = k[table[1, 0], 5, 1, 7] = float("nan")
    out, lse = ran(tile_ops.flash_decode, q, k, v, table, lengths, splits=splits, return_lse=True)
    expected = torch.zeros(3, 4, dtype=torch.bool)
    expected[0, 1] = expected[1, 2:] = True
    assert torch.equal(out.isnan().any(-1), expected)
    assert torch.equal(lse.isnan(), expected)


def test_small_pages_with_window_softcap_and_sinks(agrees):
    tensors = operands([150, 0, 67], 4, 2, 32, 16, torch.float32)
    agrees(*tensors, splits=2, window=(40, 0), softcap=3.0, sinks=torch.tensor([0.5, -1.0, 3.0, 0.0]))


def test_many_heads_of_one_key_head(agrees):
    agrees(*operands([70, 20], 20, 1, 32, 64, torch.float32))


@pytest.mark.parametrize(
    ("target", "dim", "dtype", "tokens"),
    [
        pytest.param("hip -mcpu=gfx942", 256, torch.float16, 32, marks=pytest.mark.full),
        pytest.param("cuda -arch=sm_86", 256, torch.float32, 32, marks=pytest.mark.full),
    ],
)
def test_tiles_fit_the_shared_memory(run_as, agrees, target, dim, dtype, tokens):
    run_as(target)
    tensors = operands([70, 20], 4, 2, dim, 64, dtype)
    (kernel, _) = tile_ops.explain(tile_ops.flash_decode, *tensors).kernels
    assert dict(kernel.spec.arguments)["block_N"] == tokens
    agrees(*tensors)


def test_lengths_past_the_table_are_cut(ran):
    q, k, v, table, _ = operands([48], 4, 2, 32, 16, torch.float32)
    k, v, held = k.nan_to_num(), v.nan_to_num(), 16 * table.shape[1]
    found = [ran(tile_ops.flash_decode, q, k, v, table, torch.tensor([length])) for length in (held, held + 1, 10**6)]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_with_splits_given_a_row_does_not_depend_on_the_batch():
    q, k, v, table, lengths = operands([150, 30], 4, 2, 32, 64, torch.float32)
    both = tile_ops.flash_decode(q, k, v, table, lengths, splits=2)
    assert torch.equal(tile_ops.flash_decode(q[1:], k, v, table[1:], lengths[1:], splits=2), both[1:])


def test_is_a_torch_operator():
    arguments = (*operands([70, 20], 4, 2, 32, 64, torch.float32), None, -1, None, None, 2)
    torch.library.opcheck(torch.ops.tile_ops.flash_decode.default, arguments)


def test_an_empty_cache():
    q, k, v, table, lengths = operands([5], 2, 1, 32, 16, torch.float32)
    out, lse = tile_ops.flash_decode(q, k, v, table[:, :0], lengths * 0, return_lse=True)
    assert not out.any()
    assert torch.equal(lse, torch.full((1, 2), -torch.inf))


Q, CACHE = torch.ones(2, 4, 32), torch.ones(6, 16, 2, 32)
TABLE, LENGTHS = torch.zeros(2, 3).int(), torch.ones(2).int()


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        ((Q[0], CACHE, CACHE, TABLE, LENGTHS), {}, WrongShape, "q has 2 dimensions"),
        ((Q, CACHE, CACHE[:, :, :1], TABLE, LENGTHS), {}, WrongShape, "both caches must be"),
        ((Q, CACHE[:, :12], CACHE[:, :12], TABLE, LENGTHS), {}, WrongShape, "a page holds 12 tokens"),
        ((Q, CACHE, CACHE, TABLE[:1], LENGTHS), {}, WrongShape, "block_table has shape (1, 3)"),
        ((Q, CACHE, CACHE, TABLE.float(), LENGTHS), {}, WrongDtype, "block_table is torch.float32"),
        ((Q, CACHE.half(), CACHE, TABLE, LENGTHS), {}, WrongDtype, "q is torch.float32, k torch.float16"),
        ((Q[:, :3], CACHE, CACHE, TABLE, LENGTHS), {}, WrongShape, "q has 3 heads"),
        ((Q, CACHE, CACHE, TABLE, LENGTHS), {"splits": 0}, WrongValue, "splits is 0"),
        ((Q, CACHE, CACHE, TABLE, LENGTHS), {"window": 4}, WrongValue, "window is 4; (left, right)"),
    ],
)
def test_refuses(arguments, options, error, text):
    with pytest.raises(error, match=re.escape(text)):
        tile_ops.flash_decode(*arguments, **options)
