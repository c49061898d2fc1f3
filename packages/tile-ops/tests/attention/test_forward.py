"""Attention agrees with its definition on every way to run it, and is a torch operator."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

import tile_ops
import tilelang.target
from tile_ops.attention import api, configs, kernels, reference
from tile_ops.attention.configs import plan, shipped
from tile_ops.attention.problem import AttentionProblem
from tile_ops.errors import WrongDtype, WrongShape, WrongValue
from tile_ops.kernel import Target
from tile_ops.prebuild import Job, make
from tilelang.kernel import compiled
from tilelang.options import make_options


def operands(batch, tokens, keys, heads, heads_kv, dim, dtype=torch.float16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    q = 2 * torch.randn(batch, tokens, heads, dim, generator=generator)
    k, v = torch.randn(2, batch, keys, heads_kv, dim, generator=generator)
    return q.to(dtype), k.to(dtype), v.to(dtype)


@pytest.fixture
def agrees(ran, close):
    """`agrees(q, k, v, **options)`: result and lse are those of the definition."""

    def check(q, k, v, **options):
        out, lse = ran(tile_ops.flash_attention, q, k, v, return_lse=True, **options)
        expected, expected_lse = reference.flash_attention(q, k, v, **options)
        close(out, expected, reference.TOLERANCES[str(q.dtype).removeprefix("torch.")])
        finite = ~expected_lse.isinf()
        assert torch.equal(lse.isinf(), ~finite)
        close(lse[finite], expected_lse[finite], 1e-4)

    return check


HOPPER = "cuda -arch=sm_90a"
WINDOWS = [(70, 150, (20, 3)), (70, 150, (-1, 5)), (150, 40, (0, 0))]


def test_causal(way, agrees):
    for tokens, keys, heads, heads_kv in [(100, 150, 2, 1), (1, 131, 2, 2), (130, 9, 1, 1)]:
        agrees(*operands(1, tokens, keys, heads, heads_kv, 64), causal=True)


@pytest.mark.parametrize(
    ("keys", "heads", "heads_kv", "dim", "options"),
    [
        (700, 6, 2, 64, {}),
        (257, 1, 1, 72, {"causal": True}),
        (600, 40, 2, 64, {"window": (300, 5)}),
        pytest.param(1111, 4, 4, 128, {"causal": True, "window": (20, 0), "softcap": 5.0}, marks=pytest.mark.full),
        pytest.param(20000, 2, 1, 64, {"softcap": 3.0}, marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("sinks", [False, True])
def test_one_query(way, agrees, keys, heads, heads_kv, dim, options, sinks):
    if sinks:
        options = {**options, "sinks": torch.randn(heads)}
    agrees(*operands(2, 1, keys, heads, heads_kv, dim), **options)


def test_one_query_on_a_gpu_takes_many_keys_in_runs():
    roles = {}
    for batch, tokens, keys in [(1, 1, 256), (1, 1, 257), (3, 1, 4096), (300, 1, 4096), (1, 2, 4096), (1, 1, 10**6)]:
        q, k, v = (torch.empty(batch, n, 4, 64, dtype=torch.float16, device="meta") for n in (tokens, keys, keys))
        problem = AttentionProblem.of(q, k, v, causal=True)
        found = plan(problem, Target("cuda", "sm_90a"))
        roles[batch, tokens, keys] = (*dict(found.kernels), *dict(found.numbers).values())
        latent = AttentionProblem.of(q, k, v[..., :32], causal=True)  # narrower values
        assert "split" not in dict(plan(latent, Target("cuda", "sm_90a")).kernels)
        assert list(dict(plan(problem, Target("cpu", "x86-64-v4")).kernels)) == ["forward"]
    assert roles == {
        (1, 1, 256): ("forward",),
        (1, 1, 257): ("split", "combine", 2, 1),
        (3, 1, 4096): ("split", "combine", 16, 1),
        (300, 1, 4096): ("split", "combine", 16, 1),
        (1, 2, 4096): ("forward", "join", 8),
        (1, 1, 10**6): ("split", "combine", 64, 1),
    }


def test_few_queries_on_a_gpu_take_many_keys_in_runs():
    """As many as fill the chip, of 512 keys or more, and of 6 for each query of a tile; the batch has no part in it."""
    for tokens, keys, heads, options, runs in [
        (8, 7200, 6, {}, 14),
        (8, 7200, 12, {}, 11),
        (8, 1023, 1, {}, 1),
        (8, 1024, 1, {"causal": True}, 2),
        (128, 1535, 1, {}, 1),
        (128, 1536, 1, {}, 2),
        (1000, 40960, 2, {}, 8),
        (1000, 40960, 9, {}, 1),
        (8, 7200, 1, {"window": (1100, 20)}, 2),
        (8, 7200, 1, {"window": (100, 20)}, 1),
    ]:
        for batch in (1, 100_000):
            sizes = ((batch, tokens, heads, 64), *[(batch, keys, 1, 64)] * 2)
            q, k, v = (torch.empty(size, dtype=torch.float16, device="meta") for size in sizes)
            problem = AttentionProblem.of(q, k, v, **options)
            found = plan(problem, Target("cuda", "sm_90a"))
            assert dict(found.numbers).get("runs", 1) == runs
            joined = dict(found.kernels).get("join")
            assert (joined and joined.function) == (None if runs == 1 else "join" if runs <= 8 else "join_many")
            assert not dict(plan(problem, Target("cpu", "x86-64-v4")).numbers)


@pytest.mark.parametrize(
    ("tokens", "keys", "heads", "heads_kv", "dim", "options"),
    [
        (5, 1100, 1, 1, 64, {"causal": True}),
        (3, 4700, 1, 1, 80, {}),
        (40, 1700, 2, 1, 32, {"window": (1100, 40)}),
        pytest.param(130, 5000, 1, 1, 64, {}, marks=pytest.mark.full),
        pytest.param(9, 2500, 4, 2, 128, {"window": (-1, 3), "softcap": 3.0}, marks=pytest.mark.full),
        pytest.param(70, 1100, 2, 2, 80, {"softcap": 2.0, "causal": True}, marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("sinks", [False, True])
def test_few_queries_by_many_keys(way, agrees, tokens, keys, heads, heads_kv, dim, options, sinks):
    if sinks:
        options = {**options, "sinks": torch.randn(heads)}
    agrees(*operands(1, tokens, keys, heads, heads_kv, dim), **options)


@pytest.mark.full
@pytest.mark.parametrize("sinks", [False, True])
def test_queries_that_see_no_key_of_any_run(hopper, agrees, sinks):
    options = {"sinks": torch.tensor([0.5])} if sinks else {}
    agrees(*operands(1, 1600, 1540, 1, 1, 32), causal=True, **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"causal": True}, marks=pytest.mark.full),
        {"causal": True, "window": (30, 0), "softcap": 5.0},
    ],
    ids=repr,
)
def test_what_is_no_number_reaches_what_sees_it(way, ran, options):
    """And nothing else: a query's NaN its own row, a key's the rows of its head whose masks show it."""
    q, k, v = operands(1, 100, 100, 2, 2, 64)
    behind = torch.arange(100)[:, None] - torch.arange(100)
    seen = torch.ones(100, 100, dtype=torch.bool)
    if options:
        seen = (behind >= 0) & (behind <= options.get("window", (100, 0))[0])
    expected = torch.zeros(1, 100, 2, dtype=torch.bool)
    q[0, 70, 0, 3] = float("nan")
    expected[0, 70, 0] = True
    k[0, 20, 1, 5] = float("nan")
    expected[0, :, 1] = seen[:, 20]
    out, lse = ran(tile_ops.flash_attention, q, k, v, return_lse=True, **options)
    assert torch.equal(out.isnan().any(-1), expected)
    assert torch.equal(lse.isnan(), expected.mT)


def test_a_sink_that_is_no_number(ran):
    q, k, v = operands(1, 20, 20, 2, 2, 64)
    out = ran(tile_ops.flash_attention, q, k, v, sinks=torch.tensor([float("nan"), 0.0]))
    assert out[:, :, 0].isnan().all()
    assert out[:, :, 1].isfinite().all()


@pytest.mark.parametrize(("kind", "arch"), [("cuda", "sm_80"), ("hip", "gfx942"), ("cpu", "x86-64-v3")])
def test_gpus_begin_with_the_longest_tiles_of_all_heads(kind, arch):
    q = torch.zeros(1, 128, 2, 64, dtype=torch.float16)
    orders = {}
    for causal in (True, False):
        ((_, spec),) = plan(AttentionProblem.of(q, q, q, causal=causal), Target(kind, arch)).kernels
        orders[causal] = dict(spec.arguments).get("heads_first", False)
    assert orders == {True: kind != "cpu", False: False}


def test_blocks_stay_on_hopper_for_causal_masks():
    def planned(arch, batch, tokens, heads, dim=128, keys=None, dtype=torch.float16):
        q = torch.empty(batch, tokens, heads, dim, dtype=dtype)
        k = torch.empty(batch, keys or tokens, heads, dim, dtype=dtype)
        return plan(AttentionProblem.of(q, k, k, causal=True), Target("cuda", arch))

    def roles(*shape, arch="sm_90a", **others):
        return [role for role, _ in planned(arch, *shape, **others).kernels]

    assert roles(4, 4096, 32) == roles(1, 1, 1) == roles(1, 200, 3, dim=64) == ["staying"]
    assert roles(4, 4096, 32, keys=4097) == roles(1, 9, 1, dim=72) == roles(1, 9, 1, arch="sm_80") == ["forward"]
    assert roles(1, 9, 1, dtype=torch.float32) == ["forward"]
    large = planned("sm_90a", 4, 4096, 32)
    assert dict(large.numbers) == {"launched": 132, "section": 16}
    assert "4096 tiles" in large.why
    assert "132 blocks that stay" in large.why
    assert dict(planned("sm_90a", 3, 129, 7).numbers) == {"launched": 42, "section": 21}
    # 8 tiles to a head in sections of 16 give one block 18 steps, of all 32 heads 11; 512 tokens of 256 heads 36 and 28.
    sections = [dict(planned("sm_90a", *shape).numbers)["section"] for shape in ((1, 1024, 32), (16, 512, 16))]
    assert sections == [32, 8]
    shipped = list(configs.shipped(Target("cuda", "sm_90a")))
    assert {spec for _, spec in large.kernels} < set(shipped)
    assert {spec for _, spec in planned("sm_90a", 4, 9, 32, keys=90).kernels} < set(shipped), (
        "as many keys are not needed"
    )


def test_blocks_that_stay(monkeypatch, run_as, agrees):
    """Eighteen tiles in sections of two heads for five blocks; a maximum that does not follow at once, and one that has to."""
    run_as(HOPPER)
    monkeypatch.setitem(configs.STAYING, ("sm_90a", 64), configs.Staying(5, 8))
    monkeypatch.setattr(configs, "SECTIONS", (3, 3))
    q, k, v = operands(1, 300, 300, 6, 3, 64)
    q[:, 200:] *= 8
    agrees(q, k, v, causal=True)
    alone = tile_ops.flash_attention(q[:, :, :2], k[:, :, :1], v[:, :, :1], causal=True)
    assert torch.equal(tile_ops.flash_attention(q, k, v, causal=True)[:, :, :2], alone)


def test_tiles_of_a_cpu_fit_what_there_is_and_are_all_shipped():
    """Large ones not where the last tile would be mostly empty, or threads without one."""

    def tiles(batch, tokens, keys=None, level="x86-64-v3", dtype=torch.float32, threads=1, **mask):
        q, k = (torch.empty(batch, n, 8, 64, dtype=dtype) for n in (tokens, keys or tokens))
        problem = replace(AttentionProblem.of(q, k, k, **mask), threads=threads)
        spec = plan(problem, Target("cpu", level)).kernels[0][1]
        assert spec in shipped_there[level]
        arguments = dict(spec.arguments)
        return arguments["block_M"], arguments["block_N"]

    levels = ("x86-64-v3", "x86-64-v4+bf16+vnni+amx")
    shipped_there = {level: set(configs.shipped(Target("cpu", level))) for level in levels}
    assert {tiles(1, n) for n in (1, 16)} == {(16, 16)}
    assert tiles(1, 17) == tiles(9, 1, 32) == (32, 32)
    assert [tiles(1, n, 4000)[0] for n in (1, 2, 5, 9, 17, 40, 49)] == [1, 4, 8, 16, 20, 40, 64]
    assert [tiles(1, n)[0] for n in (128, 256, 257, 300, 512)] == [128, 256, 48, 64, 256]
    assert [tiles(1, 1024, threads=threads)[0] for threads in (1, 16, 32, 64, 128)] == [256, 256, 256, 128, 64]
    assert [tiles(1, 64, keys)[1] for keys in (33, 512, 513)] == [64, 64, 128]
    assert [tiles(4, 1024), tiles(4, 512), tiles(9, 257)] == [(256, 128), (256, 64), (48, 64)]
    assert [tiles(4, n, causal=True) for n in (256, 1024, 4096)] == [(64, 64), (128, 128), (256, 128)]
    assert tiles(1, 1 << 20, causal=True)[0] == 256, "without a look at each of its rows"
    assert tiles(4, 1024, level=levels[1], causal=True) == (128, 128)
    registers = {"level": levels[1], "dtype": torch.bfloat16}
    assert [tiles(1, n, 400, **registers) for n in (1, 2, 3, 40, 64)] == [
        (1, 64),
        (2, 64),
        (4, 128),
        (40, 128),
        (64, 128),
    ]
    sizes = {n: tiles(4, n, **registers) for n in (128, 256, 512, 1024)}
    assert sizes == {128: (128, 128), 256: (256, 256), 512: (256, 256), 1024: (256, 128)}
    assert [tiles(1, n, causal=True, **registers) for n in (256, 512, 1024)] == [(128, 128), (128, 128), (256, 128)]
    assert tiles(1, 20, **registers) == (32, 32)
    many = [tiles(1, n, threads=threads, **registers)[0] for n in (65, 130, 500) for threads in (32, 128)]
    assert min(many) < 32, "few rows of wide tiles, for as many threads"


@pytest.mark.cpu("its threads")
def test_calls_that_come_again_are_planned_for_the_threads_that_there_are():
    q, k, v = operands(1, 256, 300, 1, 1, 64, torch.float32)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 4):
            torch.set_num_threads(threads)
            explained = [tile_ops.explain(tile_ops.flash_attention, q, k, v)]
            results += [tile_ops.flash_attention(q, k, v) for _ in range(4)]
            explained.append(tile_ops.explain(tile_ops.flash_attention, q, k, v))
            assert explained[1].launches == explained[0].launches + 4
            assert dict(explained[0].kernels[0].spec.arguments)["block_M"] == 256 // threads
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(result, results[0]) for result in results), "but for their blocks"


def test_a_query_on_a_cpu_does_not_depend_on_the_others():
    """But for the order in which the sums of a score are added where there are at most eight."""
    q, k, v = operands(4, 256, 140, 4, 4, 32, torch.float32)
    for tokens in (9, 40):
        alone = tile_ops.flash_attention(q[1:2, :tokens], k[1:2], v[1:2])
        assert torch.equal(tile_ops.flash_attention(q, k, v)[1:2, :tokens], alone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_few_queries_and_few_keys_on_a_cpu(dtype, agrees):
    for tokens, keys in ((1, 1), (1, 300), (3, 70), (7, 129), (12, 12), (20, 30), (40, 40), (33, 700)):
        agrees(*operands(2, tokens, keys, 2, 1, 64, dtype), causal=tokens == keys)


@pytest.mark.cpu("its registers")
def test_tile_registers(in_registers, agrees):
    """One and two queries are for vectors beside them."""
    in_registers(api.FLASH_ATTENTION, api.forward_operation)
    for tokens, keys in ((1, 140), (2, 140), (40, 150), (65, 129)):
        q, k, v = operands(1, tokens, keys, 2, 1, 64, torch.bfloat16)
        agrees(q, k, v, causal=tokens > 2)
        assert "amx" in tile_ops.explain(tile_ops.flash_attention, q, k, v).target.arch


def test_every_key_in_sight(cpu_or_hopper, agrees):
    agrees(*operands(1, 128, 256, 1, 1, 128))


@pytest.mark.parametrize(
    ("cpu_or_hopper", "cases"),
    [("cpu", WINDOWS), pytest.param(HOPPER, WINDOWS, marks=pytest.mark.full)],
    indirect=["cpu_or_hopper"],
)
def test_window_softcap_and_sinks(cpu_or_hopper, agrees, cases):
    for tokens, keys, window in cases:
        q, k, v = operands(1, tokens, keys, 2, 1, 64)
        agrees(q, k, v, window=window, softcap=5.0, sinks=torch.tensor([0.5, 3.0]))


def test_ampere(run_as, agrees):
    run_as("cuda -arch=sm_80")
    agrees(*operands(1, 30, 150, 2, 1, 64), causal=True)


def test_a_causal_window_reaches_left_alone(agrees):
    q, k, v = operands(1, 40, 40, 1, 1, 32, torch.float32)
    agrees(q, k, v, causal=True, window=(5, 9))
    wide = tile_ops.flash_attention(q, k, v, causal=True, window=(5, 9))
    assert torch.equal(wide, tile_ops.flash_attention(q, k, v, window=(5, 0)))


@pytest.mark.parametrize("dim", [128, *(pytest.param(dim, marks=pytest.mark.full) for dim in (64, 256))])
def test_tiles_of_float32_fit_cards_with_little_shared_memory(dim):
    """Made, not run: 99 KiB for a block."""
    target = Target("cuda", "sm_86")
    problem = AttentionProblem.of(*[torch.empty(1, 64, 2, dim, device="meta")] * 3)
    ((_, spec),) = plan(problem, target).kernels
    made = make(Job(spec, target.kind, target.arch))
    assert (made.refusals, made.failure, made.slow, made.archs) == ((), "", (), ("sm_86",))


def test_a_dimension_that_no_vector_divides(agrees):
    agrees(*operands(2, 70, 90, 4, 2, 72, torch.float32), causal=True, scale=0.3)


@pytest.mark.parametrize(
    "way", ["cpu", "hip -mcpu=gfx942", pytest.param(HOPPER, marks=pytest.mark.full)], indirect=True
)
def test_values_narrower_than_keys(way, agrees):
    q, k, v = operands(1, 5, 70, 2, 1, 64)
    agrees(q, k, v[..., :32], causal=True, scale=0.3)


@pytest.mark.full
def test_latent_attention_on_hopper(run_as, agrees):
    run_as("cuda -arch=sm_90a")
    q, k, v = operands(1, 10, 140, 1, 1, 192)
    agrees(q, k, v[..., :128], causal=True)
    (kernel,) = tile_ops.explain(tile_ops.flash_attention, q, k, v[..., :128], causal=True).kernels
    assert dict(kernel.spec.arguments)["block_N"] == 128, "the tiles of dimension 128"


def test_strided_operands(agrees):
    q, k, v = (x.transpose(1, 2) for x in operands(2, 3, 3, 20, 20, 32, torch.float32))
    agrees(q, k, v)


def test_rows_do_not_depend_on_the_batch():
    q, k, v = operands(3, 20, 40, 2, 1, 32, torch.float32)
    alone = tile_ops.flash_attention(q[1:2], k[1:2], v[1:2])
    assert torch.equal(tile_ops.flash_attention(q, k, v)[1:2], alone)


def test_large_scores_do_not_overflow(agrees):
    q, k, v = operands(1, 20, 40, 1, 1, 32, torch.float32)
    agrees(100 * q, 100 * k, v)


def test_no_keys_and_no_queries():
    q, k, v = operands(2, 3, 0, 2, 1, 32)
    out, lse = tile_ops.flash_attention(q, k, v, return_lse=True)
    assert out.shape == (2, 3, 2, 32)
    assert not out.any()
    assert torch.equal(lse, torch.full((2, 2, 3), -torch.inf))
    _, lse = tile_ops.flash_attention(q, k, v, sinks=torch.tensor([1.0, 2.0]), return_lse=True)
    assert torch.equal(lse[1], torch.tensor([[1.0] * 3, [2.0] * 3]))
    q, k, v = operands(2, 0, 5, 2, 1, 32)
    assert tile_ops.flash_attention(q, k, v).shape == (2, 0, 2, 32)


def test_is_a_torch_operator():
    q, k, v = operands(1, 20, 40, 2, 1, 32, torch.float32)
    arguments = (q, k, v, None, False, -1, -1, None, None)
    torch.library.opcheck(torch.ops.tile_ops.flash_attention.default, arguments)


def test_compiles_as_one_graph(close):
    q, k, v = operands(1, 20, 40, 2, 1, 32, torch.float32)
    compiled = torch.compile(lambda q: 2 * tile_ops.flash_attention(q, k, v), fullgraph=True, backend="aot_eager")
    close(compiled(q), 2 * reference.flash_attention(q, k, v)[0], reference.TOLERANCES["float32"])


def test_autocast(close, device):
    q, k, v = operands(1, 20, 40, 2, 1, 32, torch.float32)
    with torch.autocast(device, torch.bfloat16):
        found = tile_ops.flash_attention(q, k, v)
    assert found.dtype == torch.bfloat16
    close(found, reference.flash_attention(q, k, v)[0], reference.TOLERANCES["bfloat16"])


Q = torch.ones(1, 4, 6, 32)
KV = torch.ones(1, 5, 2, 32)


@pytest.mark.parametrize(
    ("q", "k", "v", "options", "error", "text"),
    [
        (Q[0], KV, KV, {}, WrongShape, "q has 3 dimensions and k has 4"),
        (Q, KV, KV[:, :4], {}, WrongShape, "k and v must both be (1, keys, heads_kv, 32)"),
        (Q, KV[..., :16], KV[..., :16], {}, WrongShape, "k and v must both be (1, keys, heads_kv, 32)"),
        (Q[:, :, :5], KV, KV, {}, WrongShape, "q has 5 heads, k and v have 2"),
        (Q[..., :12], KV[..., :12], KV[..., :12], {}, WrongShape, "the heads have 12 elements"),
        (Q, KV[..., :16], KV, {}, WrongShape, "k and v must both be (1, keys, heads_kv, 32)"),
        (
            Q[..., :16],
            KV[..., :16],
            KV,
            {},
            WrongShape,
            "the heads of v have 32 elements; a multiple of 8 from 8 to 16",
        ),
        (Q, KV, KV[..., :12], {}, WrongShape, "the heads of v have 12 elements"),
        (Q, KV.half(), KV, {}, WrongDtype, "q is torch.float32, k torch.float16, v torch.float32"),
        (Q, KV, KV.half(), {}, WrongDtype, "float32: v.to(q.dtype)"),
        (Q.int(), KV.int(), KV.int(), {}, WrongDtype, "all must be one of float16, bfloat16, float32: q.float()"),
        (Q, KV, KV, {"sinks": torch.ones(2)}, WrongShape, "sinks has shape (2,)"),
        (Q, KV, KV, {"sinks": torch.ones(6).int()}, WrongDtype, "sinks is torch.int32"),
        (Q, KV, KV, {"window": (-2, 0)}, WrongValue, "window is (-2, 0)"),
        (Q, KV, KV, {"window": 4}, WrongValue, "window is 4; (left, right)"),
        (Q, KV, KV, {"window": (4, 0, 0)}, WrongValue, "window is (4, 0, 0); (left, right)"),
        (Q, KV, KV, {"window": (4.0, 0)}, WrongValue, "window[0] is 4.0; a number of keys, an int, is expected"),
        (Q, KV, KV, {"window": (4, None)}, WrongValue, "window[1] is None; a number of keys, an int, is expected"),
        (Q, KV, KV, {"scale": 0.0}, WrongValue, "scale is 0.0"),
        (Q, KV, KV, {"softcap": -1.0}, WrongValue, "softcap is -1.0"),
    ],
)
def test_refuses(q, k, v, options, error, text):
    with pytest.raises(error, match=re.escape(text)):
        tile_ops.flash_attention(q, k, v, **options)


FULL = pytest.mark.full


@pytest.mark.parametrize(
    "dims", [(128, 128), pytest.param((64, 64), marks=FULL), pytest.param((192, 128), marks=FULL)], ids=str
)
def test_tiles_fit_the_memory_of_an_amd_block(dims):
    """What the wheel ships for gfx942 needs no more than its 64 KiB, with what products pass through shared memory."""
    target = Target("hip", "gfx942")
    spec = next(s for s in shipped(target) if {("dim", dims[0]), ("dim_v", dims[1])} <= set(s.arguments))
    options = make_options(execution="emulate", pass_configs=dict(spec.pass_configs))  # prints the text, compiles none
    artifact = compiled(kernels.forward(**dict(spec.arguments)), tilelang.target.Target("hip", "gfx942"), options)
    (launch,) = artifact.manifest.variants[0].launches
    assert 0 < launch.shared <= 64 << 10
