"""Gradients of packed sequences are those of each sequence alone."""

from __future__ import annotations

import re

import pytest
import torch

import tile_ops
from tile_ops.again import Again
from tile_ops.attention_backward import reference
from tile_ops.errors import WrongDtype, WrongShape, WrongValue


def operands(lengths, keys, heads, heads_kv, dim, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    q, dout = torch.randn(2, sum(lengths), heads, dim, generator=generator)
    k, v = torch.randn(2, sum(keys), heads_kv, dim, generator=generator)
    starts = tuple(torch.tensor([0, *counts]).cumsum(0).int() for counts in (lengths, keys))
    return tuple(x.to(dtype) for x in (dout, q, k, v)), starts, (max(lengths), max(keys))


@pytest.fixture
def agrees(ran, close):
    def check(tensors, starts, longest, dlse=None, sinks=None, **options):
        dout, q, k, v = tensors
        out, lse = tile_ops.flash_attention_varlen(
            q, k, v, *starts, longest[0], sinks=sinks, return_lse=True, **options
        )
        arguments = (dout, q, k, v, out, lse, *starts, *longest)
        found = ran(tile_ops.flash_attention_varlen_backward, *arguments, dlse=dlse, sinks=sinks, **options)
        expected = reference.flash_attention_varlen_backward(dout, q, k, v, *starts, dlse=dlse, sinks=sinks, **options)
        assert (found[3] is None) is (sinks is None)
        for one, other in zip(found, expected):
            if one is not None:
                close(one, other, reference.TOLERANCES[str(q.dtype).removeprefix("torch.")])

    return check


@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda -arch=sm_90a", marks=pytest.mark.full)])
def test_sequences_stay_apart(agrees, run_as, target):
    """Short, long, empty, without keys, as long as ROWS, and more queries than keys; heads that share keys."""
    run_as(target)
    dtype = torch.float32 if target == "cpu" else torch.float16
    agrees(*operands([3, 128, 0, 5, 30], [20, 70, 4, 0, 9], 2, 1, 32, dtype), causal=True)


def test_gradients_come_again(monkeypatch, close):
    """Of other sequences, too: where they begin is an operand, whose values a backward does not ask."""
    calls = []
    for lengths in ([3, 40, 0], [20, 20, 3], [43, 0, 0], [1, 2, 40], [0, 43, 0], [5, 30, 8]):
        starts = operands(lengths, lengths, 2, 1, 32)[1]
        dout, q, k, v = torch.randn(43, 2, 32), torch.randn(43, 2, 32), *torch.randn(2, 43, 1, 32)
        out, lse = tile_ops.flash_attention_varlen(q, k, v, *starts, 43, causal=True, return_lse=True)
        calls.append((dout, q, k, v, out, lse, *starts))
    for turn, (dout, q, k, v, out, lse, *starts) in enumerate(calls):
        if turn == 4:  # the first one prepares, the third one is kept
            monkeypatch.setattr(Again, "run", lambda *_: pytest.fail("the implementation was asked"))
        expected = reference.flash_attention_varlen_backward(dout, q, k, v, *starts, causal=True)
        found = tile_ops.flash_attention_varlen_backward(dout, q, k, v, out, lse, *starts, 43, 43, causal=True)
        for one, other in zip(found[:3], expected):
            close(one, other, reference.TOLERANCES["float32"])


def test_wide_heads_have_a_kernel_for_dk_and_one_for_dv(agrees, hopper):
    tensors, starts, longest = operands([70, 0, 30], [40, 5, 90], 2, 1, 192, torch.float16)
    explained = tile_ops.explain(
        tile_ops.flash_attention_varlen_backward,
        *tensors,
        tensors[1],
        torch.zeros(2, 100),
        *starts,
        *longest,
        causal=True,
    )
    assert [kernel.role for kernel in explained.kernels if kernel.role not in ("prepare", "queries")] == [
        "keys",
        "values",
    ]
    agrees(tensors, starts, longest, causal=True)


@pytest.mark.full
def test_window_softcap_sinks_and_the_gradient_of_lse(agrees):
    tensors, starts, longest = operands([40, 128, 7], [60, 30, 0], 2, 1, 32)
    dlse = torch.randn(2, 175, generator=torch.Generator().manual_seed(1))
    agrees(tensors, starts, longest, dlse=dlse, sinks=torch.tensor([1.0, -1.0]), window=(9, 5), softcap=3.0)


def test_values_narrower_than_keys(agrees):
    (dout, q, k, v), starts, longest = operands([40, 20], [60, 30], 2, 1, 32)
    agrees((dout[..., :16], q, k, v[..., :16]), starts, longest, causal=True)


@pytest.mark.parametrize("longest_keys", [None, 30])
def test_autograd_through_the_operator(close, longest_keys):
    (dout, *inputs), starts, (longest, _) = operands([20, 3], [30, 9], 2, 1, 32)
    leaves = [x.requires_grad_() for x in inputs]
    out = tile_ops.flash_attention_varlen(*leaves, *starts, longest, max_seqlen_k=longest_keys, causal=True)
    found = torch.autograd.grad(out, leaves, dout)
    expected = reference.flash_attention_varlen_backward(dout, *inputs, *starts, causal=True)
    for one, other in zip(found, expected):
        close(one, other, reference.TOLERANCES["float32"])


def test_sequences_of_q_and_k_may_be_the_same(close):
    (dout, *inputs), (starts, _), (longest, _) = operands([20, 3], [20, 3], 1, 1, 32)
    leaves = [x.requires_grad_() for x in inputs]
    out = tile_ops.flash_attention_varlen(*leaves, starts, starts, longest, causal=True)
    found = torch.autograd.grad(out, leaves, dout)
    expected = reference.flash_attention_varlen_backward(dout, *inputs, starts, starts, causal=True)
    for one, other in zip(found, expected):
        close(one, other, reference.TOLERANCES["float32"])


def test_is_a_torch_operator():
    (_, *inputs), starts, longest = operands([20, 3], [30, 9], 2, 1, 32)
    leaves = [x.requires_grad_() for x in inputs]
    options = (True, -1, -1, None, None)
    torch.library.opcheck(
        torch.ops.tile_ops.flash_attention_varlen.default, (*leaves, *starts, None, *longest, *options)
    )


def test_nothing_to_see():
    (dout, q, k, v), (starts, _), (longest, _) = operands([4], [1], 1, 1, 32)
    none, ends = k[:0], torch.tensor([0, 0]).int()
    out, lse = tile_ops.flash_attention_varlen(q, none, none, starts, ends, longest, return_lse=True)
    rest = (starts, ends, longest, 0)
    dq, dk, _, dsinks = tile_ops.flash_attention_varlen_backward(dout, q, none, none, out, lse, *rest)
    assert not dq.any()
    assert dk.shape == none.shape
    assert dsinks is None


@pytest.mark.parametrize("keys", [0, 1])
def test_nothing_to_see_but_sinks(keys):
    """No rows of keys, or none that a sequence has."""
    (dout, q, k, v), (starts, _), (longest, _) = operands([3, 2], [keys, 0], 2, 1, 32)
    sinks, dlse = torch.tensor([1.0, -2.0]), torch.randn(2, 5)
    rest = (dout, sinks[:, None].expand(2, 5), starts, torch.zeros(3).int(), longest, 0)
    dq, _, _, found = tile_ops.flash_attention_varlen_backward(dout, q, k, v, *rest, sinks=sinks, dlse=dlse)
    assert not dq.any()
    torch.testing.assert_close(found, dlse.sum(1))


X, LSE, STARTS = torch.ones(4, 2, 32), torch.ones(2, 4), torch.tensor([0, 4])


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((X[:3], X, X, X, X, LSE, STARTS, STARTS, 4, 4), WrongShape, "dout (3, 2, 32)"),
        ((X, X, X, X, X.half(), LSE, STARTS, STARTS, 4, 4), WrongDtype, "out torch.float16"),
        ((X, X, X, X, X, LSE[:1], STARTS, STARTS, 4, 4), WrongShape, "(heads, tokens) is expected, (2, 4)"),
        ((X, X, X, X, X, LSE, STARTS, STARTS, 4, -1), WrongValue, "max_seqlen_k is -1"),
    ],
)
def test_refuses(arguments, error, text):
    with pytest.raises(error, match=re.escape(text)):
        tile_ops.flash_attention_varlen_backward(*arguments)
