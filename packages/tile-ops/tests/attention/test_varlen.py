"""Packed sequences give what each sequence gives alone."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
import torch

import tile_ops
from tile_ops.again import Again
from tile_ops.attention import reference
from tile_ops.errors import WrongDtype, WrongShape, WrongValue


@pytest.mark.cpu("a GPU's values are not read, as that would wait for it")
@pytest.mark.parametrize(
    ("ends", "longest", "text"),
    [
        ([0, 5, 7], 5, "ascending row from 0 to all rows, 10"),
        ([0, 8, 3], 10, "ascending"),
        ([0, 5, 10], 4, "has 5 rows"),
    ],
)
def test_lengths_are_looked_at(ends, longest, text):
    q = torch.randn(10, 2, 16)
    ends, whole = torch.tensor(ends, dtype=torch.int32), torch.tensor([0, 5, 10], dtype=torch.int32)
    with pytest.raises(WrongValue, match=f"cu_seqlens_q.*{text}|max_seqlen_q.*{text}"):
        tile_ops.flash_attention_varlen(q, q, q, ends, whole, longest)
    if longest > 4:
        with pytest.raises(WrongValue, match=f"cu_seqlens_k.*{text}"):
            tile_ops.flash_attention_varlen(q, q, q, whole, ends, 5)


def operands(lengths, keys, heads, heads_kv, dim, dtype):
    generator = torch.Generator().manual_seed(0)
    q = 2 * torch.randn(sum(lengths), heads, dim, generator=generator)
    k, v = torch.randn(2, sum(keys), heads_kv, dim, generator=generator)
    starts = [torch.tensor([0, *counts]).cumsum(0) for counts in (lengths, keys)]
    return (q.to(dtype), k.to(dtype), v.to(dtype), starts[0].int(), starts[1].int(), max(lengths))


def expected(q, k, v, starts, key_starts, _, **options):
    parts = []
    for (a, b), (c, d) in zip(pairwise(starts), pairwise(key_starts)):
        parts.append(reference.flash_attention(q[None, a:b], k[None, c:d], v[None, c:d], **options))
    return torch.cat([out[0] for out, _ in parts]), torch.cat([lse[0] for _, lse in parts], dim=1)


def test_sequences_stay_apart(cpu_or_hopper, ran, close):
    """Short, long, empty, without keys, and more queries than keys."""
    arguments = operands([3, 70, 0, 5, 30], [20, 70, 4, 0, 9], 2, 1, 64, torch.float16)
    out, lse = ran(tile_ops.flash_attention_varlen, *arguments, causal=True, return_lse=True)
    true_out, true_lse = expected(*arguments, causal=True)
    close(out, true_out, reference.TOLERANCES["float16"])
    finite = ~true_lse.isinf()
    assert torch.equal(lse.isinf(), ~finite)
    close(lse[finite], true_lse[finite], 1e-4)


@pytest.mark.parametrize(
    "target",
    [
        "cpu",
        "cuda -arch=sm_80",
        pytest.param("cuda -arch=sm_90a", marks=pytest.mark.full),
        pytest.param("hip -mcpu=gfx942", marks=pytest.mark.full),
    ],
)
def test_a_window_of_each_sequence(run_as, ran, close, target):
    """Whose first tile of keys memory says; rows that see nothing, and sequences without queries or keys."""
    run_as(target, any_gpu=True)
    arguments = operands([3, 150, 0, 5, 30], [20, 160, 4, 0, 9], 2, 1, 64, torch.float16)
    for window in ((20, 3), (0, 0)):
        out, lse = ran(tile_ops.flash_attention_varlen, *arguments, window=window, return_lse=True)
        true_out, true_lse = expected(*arguments, window=window)
        close(out, true_out, reference.TOLERANCES["float16"])
        finite = ~true_lse.isinf()
        assert torch.equal(lse.isinf(), ~finite)
        close(lse[finite], true_lse[finite], 1e-4)


@pytest.mark.parametrize("sinks", [None, torch.tensor([0.5])], ids=["", "sinks"])
def test_come_again_on_a_gpu(hopper, sinks, monkeypatch, close):
    """Of other sequences, too, whose lengths a GPU does not ask."""
    for turn, ends in enumerate(([0, 3, 20], [0, 20, 20], [0, 0, 20], [0, 10, 20], [0, 19, 20])):
        if turn == 4:  # the first one prepares, the third one is kept
            monkeypatch.setattr(Again, "run", lambda *_: pytest.fail("the implementation was asked"))
        q, k, v = torch.randn(3, 20, 1, 32).half()
        starts = torch.tensor(ends, dtype=torch.int32)
        found = tile_ops.flash_attention_varlen(q, k, v, starts, starts, 20, causal=True, sinks=sinks)
        for begin, end in pairwise(ends):
            one = slice(begin, end)
            expected, _ = reference.flash_attention(q[None, one], k[None, one], v[None, one], causal=True, sinks=sinks)
            close(found[one], expected[0], reference.TOLERANCES["float16"])


def test_values_narrower_than_keys(close):
    q, k, v, *rest = operands([3, 20], [20, 9], 2, 1, 48, torch.float32)
    arguments = (q, k, v[..., :32], *rest)
    out = tile_ops.flash_attention_varlen(*arguments, causal=True)
    close(out, expected(*arguments, causal=True)[0], reference.TOLERANCES["float32"])


def test_one_sequence_is_a_plain_call():
    q, k, v, starts, key_starts, longest = operands([40], [50], 2, 1, 32, torch.float32)
    packed = tile_ops.flash_attention_varlen(q, k, v, starts, key_starts, longest)
    assert torch.equal(packed, tile_ops.flash_attention(q[None], k[None], v[None])[0])


@pytest.mark.cpu("a length that lies on a GPU is refused")
@pytest.mark.parametrize(
    "one", [lambda n: torch.tensor(n), lambda n: torch.tensor([n]), lambda n: torch.tensor(n).numpy()[()]]
)
def test_the_longest_length_is_read_where_that_costs_nothing(one):
    *tensors, longest = operands([3, 20], [20, 9], 2, 1, 32, torch.float32)
    expected = tile_ops.flash_attention_varlen(*tensors, longest)
    assert torch.equal(tile_ops.flash_attention_varlen(*tensors, one(longest), max_seqlen_k=one(20)), expected)
    explained = [
        tile_ops.explain(tile_ops.flash_attention_varlen, *tensors, x).problem for x in (longest, one(longest))
    ]
    assert explained[0] == explained[1]


def test_is_a_torch_operator():
    *tensors, longest = operands([10, 20], [30, 20], 2, 1, 32, torch.float32)
    options = (None, longest, 30, False, -1, -1, None, None)
    torch.library.opcheck(torch.ops.tile_ops.flash_attention_varlen.default, (*tensors, *options))


Q, KV, STARTS = torch.ones(4, 6, 32), torch.ones(5, 2, 32), torch.tensor([0, 4])


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((Q[None], KV, KV, STARTS, STARTS, 4), WrongShape, "q has shape (1, 4, 6, 32)"),
        ((Q, KV, KV, STARTS, STARTS[:1], 4), WrongShape, "both must be (sequences + 1,)"),
        ((Q, KV, KV, STARTS.float(), STARTS, 4), WrongDtype, "cu_seqlens_q is torch.float32"),
        ((Q, KV, KV, STARTS, STARTS, -1), WrongValue, "max_seqlen_q is -1"),
        (
            (Q, KV, KV, STARTS, STARTS, 4.0),
            WrongValue,
            "max_seqlen_q is 4.0; the length of the longest sequence, an int",
        ),
        ((Q, KV, KV, STARTS, STARTS, STARTS), WrongValue, "max_seqlen_q is "),
        ((Q, KV, KV, STARTS, STARTS, torch.ones((), device="meta")), WrongValue, "max_seqlen_q is a tensor on meta"),
        ((Q[:, :5], KV, KV, STARTS, STARTS, 4), WrongShape, "q has 5 heads, k and v have 2"),
    ],
)
def test_refuses(arguments, error, text):
    with pytest.raises(error, match=re.escape(text)):
        tile_ops.flash_attention_varlen(*arguments)
