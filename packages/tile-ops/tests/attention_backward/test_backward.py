"""The gradients of attention agree with autograd through its definition."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

import tile_ops
from tile_ops.again import Again
from tile_ops.attention import reference as forward
from tile_ops.attention.problem import AttentionProblem, PackedProblem
from tile_ops.attention_backward import configs, reference
from tile_ops.attention_backward.api import _backward
from tile_ops.attention_backward.problem import AttentionBackwardProblem, PackedBackwardProblem
from tile_ops.errors import WrongDtype, WrongShape
from tile_ops.kernel import Target
from tile_ops.prebuild import Job, make


def operands(batch, tokens, keys, heads, heads_kv, dim, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    q, dout = torch.randn(2, batch, tokens, heads, dim, generator=generator)
    k, v = torch.randn(2, batch, keys, heads_kv, dim, generator=generator)
    return dout.to(dtype), q.to(dtype), k.to(dtype), v.to(dtype)


@pytest.fixture
def agrees(ran, close):
    def check(dout, q, k, v, dlse=None, sinks=None, **options):
        out, lse = forward.flash_attention(q, k, v, sinks=sinks, **options)
        out, lse = out.to(q.dtype), lse.float()
        found = ran(tile_ops.flash_attention_backward, dout, q, k, v, out, lse, dlse=dlse, sinks=sinks, **options)
        expected = reference.flash_attention_backward(dout, q, k, v, dlse=dlse, sinks=sinks, **options)
        assert (found[3] is None) is (sinks is None)
        for one, other in zip(found, expected):
            if one is not None:
                close(one, other, reference.TOLERANCES[str(q.dtype).removeprefix("torch.")])

    return check


def test_causal(agrees):
    """Heads that share keys; more keys than queries, and queries that see nothing."""
    for tokens, keys in [(70, 100), (70, 30)]:
        agrees(*operands(1, tokens, keys, 2, 1, 32), causal=True)


@pytest.mark.amd_in_full
def test_half_precision(way, agrees):
    agrees(*operands(1, 40, 70, 2, 2, 32, torch.float16))


def test_walks_on_a_gpu_go_in_runs_where_blocks_are_few():
    for batch, tokens, keys, heads, heads_kv, options, runs in [
        (1, 10, 8128, 1, 1, {}, (63, 1)),
        (1, 10, 8128, 6, 6, {}, (44, 1)),
        (7, 10, 8128, 6, 6, {}, (6, 1)),
        (40, 143, 2016, 1, 1, {}, (2, 1)),
        (40, 143, 2016, 2, 2, {}, (1, 1)),
        (2, 4096, 77, 8, 8, {}, (1, 8)),
        (2, 4096, 77, 8, 1, {}, (1, 66)),
        (1, 6888, 6888, 1, 1, {"causal": True}, (2, 2)),
        (2, 512, 512, 4, 4, {}, (1, 1)),
        (1, 700, 700, 1, 1, {}, (5, 5)),
        (1, 4000, 4000, 1, 1, {"window": (100, 0)}, (1, 1)),
    ]:
        q, k = (torch.empty(batch, *n, 64, dtype=torch.float16) for n in ((tokens, heads), (keys, heads_kv)))
        problem = AttentionBackwardProblem(AttentionProblem.of(q, k, k, **options))
        found = configs.plan(problem, Target("cuda", "sm_90a"))
        assert tuple(dict(found.numbers).values()) == runs
        added = {"add_queries": runs[0] > 1, "add_keys": runs[1] > 1}
        assert {role: role in dict(found.kernels) for role in added} == added
        assert not configs.plan(problem, Target("cpu", "x86-64-v4")).numbers
    q = torch.empty(1, 700, 1, 80, dtype=torch.float16)
    for causal, runs in ((False, (5, 5)), (True, (1, 5))):  # of which the kernel for dQ would spill
        problem = AttentionBackwardProblem(AttentionProblem.of(q, q, q, causal=causal))
        found = configs.plan(problem, Target("cuda", "sm_90a"))
        assert tuple(dict(found.numbers).values()) == runs
        assert dict(configs.plan(problem, Target("cuda", "sm_80")).numbers)["query_runs"] > 1


@pytest.mark.parametrize(
    ("tokens", "keys", "heads", "heads_kv", "dim", "options"),
    [
        (9, 700, 2, 1, 64, {"causal": True}),
        (600, 20, 2, 1, 32, {}),
        pytest.param(600, 600, 2, 2, 64, {"causal": True}, marks=pytest.mark.full),
        pytest.param(40, 1200, 4, 2, 128, {"window": (700, 30), "softcap": 3.0}, marks=pytest.mark.full),
        pytest.param(1200, 40, 4, 2, 192, {"window": (-1, 30)}, marks=pytest.mark.full),
    ],
)
def test_few_queries_or_few_keys(way, agrees, tokens, keys, heads, heads_kv, dim, options):
    agrees(*operands(1, tokens, keys, heads, heads_kv, dim, torch.float16), **options)


@pytest.mark.full
@pytest.mark.parametrize("dim", [64, 80, 96, 128, 192, 256])
@pytest.mark.parametrize(
    "mask", [{}, {"causal": True}, {"window": (9, 5), "softcap": 3.0}], ids=["full", "causal", "window"]
)
def test_dimensions_of_models(hopper, agrees, dim, mask):
    """Whose tiles differ."""
    agrees(*operands(1, 140, 150, 2, 1, dim, torch.bfloat16), **mask)


def test_window_softcap_sinks_and_the_gradient_of_lse(agrees):
    tensors = operands(2, 40, 100, 2, 1, 32)
    dlse = torch.randn(2, 2, 40, generator=torch.Generator().manual_seed(1))
    agrees(*tensors, dlse=dlse, sinks=torch.tensor([1.0, -1.0]), window=(9, 5), softcap=3.0)


@pytest.mark.cpu("its kernel")
@pytest.mark.parametrize(
    ("tokens", "keys", "options"),
    [
        (70, 100, {}),
        (140, 130, {"causal": True}),
        (128, 256, {}),
        (130, 70, {"causal": True}),  # queries that see nothing
        (70, 150, {"window": (9, 5), "softcap": 3.0, "sinks": torch.linspace(-1, 1, 8)}),
    ],
    ids=["full", "causal", "large tiles", "more queries", "window"],
)
def test_many_heads_by_one_walk_on_a_cpu(agrees, tokens, keys, options):
    """Several tiles of keys add to one of dQ; heads that share keys; the last tiles are not whole."""
    tensors = operands(2, tokens, keys, 8, 4, 32)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert roles(tensors, **options) == ["prepare", "together"]
        agrees(*tensors, **options)
    finally:
        torch.set_num_threads(before)


def roles(tensors, **options):
    """Of the kernels of a call's gradients, but for those of sinks."""
    out, lse = tile_ops.flash_attention(*tensors[1:], return_lse=True, **options)
    explained = tile_ops.explain(tile_ops.flash_attention_backward, *tensors, out, lse, **options)
    return [kernel.role for kernel in explained.kernels if kernel.role != "sinks"]


@pytest.mark.cpu("its tiles")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("tokens", "keys"), [(1, 9), (16, 16), (5, 30), (20, 40), (33, 9), pytest.param(64, 64, marks=pytest.mark.full)]
)
def test_short_sequences_on_a_cpu(agrees, dtype, tokens, keys):
    for mask in ({}, {"causal": True}, {"window": (3, 2)}):
        agrees(*operands(2, tokens, keys, 4, 2, 32, dtype), **mask)


def test_tiles_of_a_cpu_fit_what_there_is_and_are_all_shipped():
    """Small ones where more of a large one would lie past the ends or behind the mask than it saves; one walk unless threads
    would wait for it."""
    cpu, registers = Target("cpu", "x86-64-v3"), Target("cpu", "x86-64-v4+bf16+vnni+amx")
    shipped = set(configs.shipped(cpu))

    def tiles(tokens, keys=None, heads=8, threads=1, dtype=torch.float32, cpu=cpu, **mask):
        q, k = (torch.empty(1, n, heads, 64, dtype=dtype) for n in (tokens, keys or tokens))
        problem = replace(AttentionProblem.of(q, k, k, **mask), threads=threads)
        kernels = dict(configs.plan(AttentionBackwardProblem(problem), cpu).kernels)
        assert shipped.issuperset(kernels.values())
        sides = {value for spec in kernels.values() for key, value in spec.arguments if key in ("block_M", "block_N")}
        assert len(sides) == 1
        return sides.pop(), "together" in kernels

    assert [tiles(n)[0] for n in (1, 16, 17, 32, 48, 64, 65, 96, 512)] == [16, 16, 32, 32, 16, 64, 16, 32, 64]
    assert [tiles(n, causal=True)[0] for n in (64, 128, 256, 1024)] == [32, 32, 32, 64]
    by_registers = [tiles(n, causal=True, dtype=torch.bfloat16, cpu=registers)[0] for n in (16, 32, 48, 96, 128)]
    assert by_registers == [16, 32, 16, 32, 64]
    assert tiles(512, window=(4, 4))[0] == 16
    assert tiles(1 << 20, causal=True)[0] == 64, "without a look at each of its rows"
    assert [tiles(512, threads=n)[1] for n in (1, 2, 3, 8, 16)] == [True, True, True, True, False]
    assert [tiles(512, heads=n, threads=2)[1] for n in (1, 2, 3)] == [False, True, True]
    assert tiles(64, heads=1, threads=16)[1], "a short one"
    assert not tiles(512, dtype=torch.bfloat16)[1], "dQ is added up where it is returned"

    def packed(*lengths):
        starts = torch.tensor([0, *lengths]).cumsum(0).int()
        q = torch.empty(sum(lengths), 8, 64)
        problem = PackedProblem.of(q, q, q, starts, starts, max(lengths), causal=True)
        kernels = dict(configs.plan_packed(PackedBackwardProblem(problem), cpu).kernels)
        assert shipped.issuperset(kernels.values())
        return dict(kernels["queries"].arguments)["block_M"]

    assert [packed(3, 16, 9), packed(*[40] * 100), packed(3, 500)] == [16, 32, 64]


@pytest.mark.cpu("its threads")
def test_gradients_that_come_again_are_planned_for_the_threads_that_there_are():
    tensors = operands(1, 140, 130, 2, 1, 32)
    out, lse = tile_ops.flash_attention(*tensors[1:], return_lse=True)
    before = torch.get_num_threads()
    try:
        for threads, role in ((1, "together"), (2, "keys")):
            torch.set_num_threads(threads)
            explained = [tile_ops.explain(tile_ops.flash_attention_backward, *tensors, out, lse)]
            for _ in range(5):
                tile_ops.flash_attention_backward(*tensors, out, lse)
            explained.append(tile_ops.explain(tile_ops.flash_attention_backward, *tensors, out, lse))
            first, last = ({kernel.role: kernel.launches for kernel in one.kernels} for one in explained)
            assert last[role] == first[role] + 5
    finally:
        torch.set_num_threads(before)


def test_autograd_through_the_operator(close):
    dout, *inputs = operands(1, 70, 100, 2, 1, 32)
    leaves = [x.requires_grad_() for x in inputs]
    out = tile_ops.flash_attention(*leaves, causal=True)
    found = torch.autograd.grad(out, leaves, dout)
    expected = reference.flash_attention_backward(dout, *inputs, causal=True)
    for one, other in zip(found, expected):
        close(one, other, reference.TOLERANCES["float32"])


def test_values_narrower_than_keys(agrees):
    dout, q, k, v = operands(1, 70, 100, 2, 1, 32)
    agrees(dout[..., :16], q, k, v[..., :16], causal=True)


def test_the_same_bits_each_time():
    dout, *inputs = operands(1, 70, 100, 2, 1, 32)
    out, lse = tile_ops.flash_attention(*inputs, causal=True, return_lse=True)
    first, second = (tile_ops.flash_attention_backward(dout, *inputs, out, lse, causal=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first[:3], second[:3]))


@pytest.mark.parametrize("of_lse", [False, True], ids=["", "lse"])
@pytest.mark.parametrize("with_sinks", [False, True], ids=["", "sinks"])
def test_gradients_come_again(monkeypatch, close, with_sinks, of_lse):
    """Other operands of a shape: native code knows the call."""
    for turn in range(6):
        if turn == 4:  # the first one prepares, the third one is kept
            monkeypatch.setattr(Again, "run", lambda *_: pytest.fail("the implementation was asked"))
        q, dout = torch.randn(2, 2, 40, 4, 32)
        k, v = torch.randn(2, 2, 50, 2, 32)
        sinks, dlse = (torch.randn(4) if with_sinks else None), (torch.randn(2, 4, 40) if of_lse else None)
        leaves = [x.clone().requires_grad_() for x in (q, k, v, sinks) if x is not None]
        out, lse = tile_ops.flash_attention(
            *leaves[:3], causal=True, sinks=leaves[3] if with_sinks else None, return_lse=True
        )
        given = [(out, dout)] + ([(lse, dlse)] if of_lse else [])
        found = torch.autograd.grad([y for y, _ in given], leaves, [dy for _, dy in given])
        expected = reference.flash_attention_backward(dout, q, k, v, dlse=dlse, sinks=sinks, causal=True)
        for one, other in zip(found, expected):
            close(one, other, reference.TOLERANCES["float32"])


def test_gradients_come_again_on_hopper(hopper, monkeypatch, close):
    """Their prepared kernels, and the ones that native code launches; float16, as that one has kernels of its own."""
    for turn in range(5):
        if turn == 4:
            monkeypatch.setattr(Again, "run", lambda *_: pytest.fail("the implementation was asked"))
        dout, q, k, v = torch.randn(4, 1, 20, 1, 32).half()
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        found = torch.autograd.grad(tile_ops.flash_attention(*leaves, causal=True), leaves, dout)
        expected = reference.flash_attention_backward(dout, q, k, v, causal=True)
        for one, other in zip(found, expected):
            close(one, other, reference.TOLERANCES["float16"])


def test_more_zeros_than_are_kept(monkeypatch):
    """For the gradient of lse: made anew in each call."""
    dout, *inputs = operands(1, 20, 20, 2, 1, 32)
    out, lse = tile_ops.flash_attention(*inputs, return_lse=True)
    expected = tile_ops.flash_attention_backward(dout, *inputs, out, lse)[:3]
    _backward.again.forget()
    monkeypatch.setattr("tile_ops.constants.MOST_ZEROS", 39)
    for _ in range(4):
        assert all(map(torch.equal, tile_ops.flash_attention_backward(dout, *inputs, out, lse)[:3], expected))


def test_gradients_of_lse_alone(close):
    q, k, v = torch.randn(3, 1, 40, 2, 32)
    dlse = torch.randn(1, 2, 40)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    _, lse = tile_ops.flash_attention(*leaves, return_lse=True)
    expected = reference.flash_attention_backward(torch.zeros_like(q), q, k, v, dlse=dlse)
    for one, other in zip(torch.autograd.grad(lse, leaves, dlse), expected):
        close(one, other, reference.TOLERANCES["float32"])


def test_is_a_torch_operator():
    dout, *inputs = operands(1, 70, 100, 2, 1, 32)
    leaves = [x.requires_grad_() for x in inputs]
    torch.library.opcheck(torch.ops.tile_ops.flash_attention.default, (*leaves, None, True, -1, -1, None, None))


def test_no_keys():
    dout, q, k, v = operands(1, 4, 0, 1, 1, 32)
    out, lse = tile_ops.flash_attention(q, k, v, return_lse=True)
    dq, dk, _, dsinks = tile_ops.flash_attention_backward(dout, q, k, v, out, lse)
    assert not dq.any()
    assert dk.shape == k.shape
    assert dsinks is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_no_keys_but_sinks(dtype):
    """lse is the sink: of each row that has one."""
    dout, q, k, v = operands(2, 4, 0, 2, 1, 32)
    sinks, dlse = torch.tensor([1.0, -torch.inf], dtype=dtype), torch.randn(2, 2, 4)
    _, lse = tile_ops.flash_attention(q, k, v, sinks=sinks, return_lse=True)
    found = tile_ops.flash_attention_backward(dout, q, k, v, dout, lse, sinks=sinks, dlse=dlse)[3]
    expected = torch.stack([dlse[:, 0].sum(), torch.zeros(())])
    torch.testing.assert_close(found, expected.to(dtype))
    assert not tile_ops.flash_attention_backward(dout, q, k, v, dout, lse, sinks=sinks)[3].any()
    leaf = sinks.clone().requires_grad_()
    tile_ops.flash_attention(q, k, v, sinks=leaf, return_lse=True)[1][:, :1].backward(dlse[:, :1])
    torch.testing.assert_close(leaf.grad, expected.to(dtype))


X, LSE = torch.ones(1, 4, 2, 32), torch.ones(1, 2, 4)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((X[:, :3], X, X, X, X, LSE), WrongShape, "dout (1, 3, 2, 32)"),
        ((X, X, X, X, X.half(), LSE), WrongDtype, "out torch.float16"),
        ((X, X, X, X, X, LSE[:, :1]), WrongShape, "lse has shape (1, 1, 4)"),
        ((X, X, X, X, X, LSE.double()), WrongDtype, "lse is torch.float64"),
    ],
)
def test_refuses(arguments, error, text):
    with pytest.raises(error, match=re.escape(text)):
        tile_ops.flash_attention_backward(*arguments)


@pytest.mark.full
@pytest.mark.cpu("nothing: they are made by the compiler of the wheels, not run")
@pytest.mark.parametrize("role", ["queries", "keys"])
@pytest.mark.parametrize("dim", [72, 40])
def test_heads_of_float32_that_16_threads_do_not_divide(dim, role):
    """Made, not run: dK and dV of heads of 72 spilled 1.3 to 1.8 KB."""
    target = Target("cuda", "sm_86")
    problem = AttentionProblem.of(*[torch.empty(1, 64, 2, dim, device="meta")] * 3, causal=True)
    tiles, _ = configs.choose(dim, "float32", target)
    made = make(Job(configs.specs(problem, tiles, "cuda")[role], target.kind, target.arch))
    assert (made.refusals, made.failure, made.slow) == ((), "", ())
