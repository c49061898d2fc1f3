"""Latent attention of one query against a paged cache agrees with its reference, and is a torch operator."""

from __future__ import annotations

import math
import re

import pytest
import torch

import tile_ops
from tile_ops.errors import WrongDtype, WrongShape, WrongStride, WrongValue
from tile_ops.kernel import Target, resolve
from tile_ops.kernel.target import SHARED_MEMORY
from tile_ops.mla import reference
from tile_ops.mla.configs import plan, shipped
from tile_ops.mla.kernels import BEHIND
from tile_ops.mla.problem import DecodeProblem

SCALE = 0.15


def operands(lengths, heads=10, dim=64, rope=16, page=16, columns=3, dtype=torch.float16, growth=0.0):
    """Pages in random order; what no sequence owns is NaN, and entries of the table that nobody needs are no pages. Keys
    grow by `growth` with each page."""
    generator = torch.Generator().manual_seed(sum(lengths) + heads)
    batch = len(lengths)
    query = torch.randn(batch, heads, dim + rope, generator=generator).to(dtype)
    cache = torch.full((batch * columns + 2, page, dim + rope), float("nan"), dtype=dtype)
    table = torch.randperm(len(cache), generator=generator)[: batch * columns].reshape(batch, columns).int()
    for b, length in enumerate(lengths):
        keys = torch.randn(length, dim + rope, generator=generator).to(dtype)
        for token, key in enumerate(keys):
            cache[table[b, token // page], token % page] = key * (1 + growth * (token // page))
        table[b, -(-length // page) :] = 10**6
    return query[..., :dim], query[..., dim:], cache, table, torch.tensor(lengths, dtype=torch.int32)


def agrees(ran, close, arguments):
    out, lse = ran(tile_ops.mla_decode, *arguments, scale=SCALE, return_lse=True)
    expected, expected_lse = reference.mla_decode(*arguments, scale=SCALE)
    dtype = str(out.dtype).removeprefix("torch.")
    assert not out.isnan().any()
    close(out, expected, reference.TOLERANCES[dtype])
    empty = arguments[4] == 0
    assert (out[empty] == 0).all()
    assert (lse[empty] == float("-inf")).all()
    close(lse[~empty], expected_lse[~empty], 1e-5)


@pytest.fixture(params=["cpu", "cuda -arch=sm_80", "cuda -arch=sm_90a", "hip -mcpu=gfx942"])
def anywhere(request, run_as):
    """`way` and sm_80, whose tiles are others."""
    run_as(request.param)


@pytest.fixture
def many_threads():
    """More than a test has sequences."""
    before = torch.get_num_threads()
    torch.set_num_threads(12)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("heads", "page"), [(40, 32), pytest.param(10, 16, marks=pytest.mark.full)], ids=["32 heads", "16 heads"]
)
def test_agrees_with_the_reference(anywhere, ran, close, heads, page):
    agrees(ran, close, operands((0, 37, 48, 1), heads=heads, page=page))


@pytest.mark.parametrize(("columns", "role"), [(3, "decode"), (32, "part")])
def test_what_is_no_number_reaches_its_sequence(many_threads, ran, columns, role):
    """NaN of a query its head, of a key all heads of its sequence."""
    nope, rope, *rest, table, lengths = operands((37, 48, 40), columns=columns)
    nope[0, 2, 5] = rest[0][table[1, 1], 4, 6] = float("nan")
    arguments = (nope, rope, *rest, table, lengths)
    assert role in {kernel.role for kernel in tile_ops.explain(tile_ops.mla_decode, *arguments, scale=SCALE).kernels}
    out, lse = ran(tile_ops.mla_decode, *arguments, scale=SCALE, return_lse=True)
    expected = torch.zeros(3, 10, dtype=torch.bool)
    expected[0, 2] = expected[1] = True
    assert torch.equal(out.isnan().any(-1), expected)
    assert torch.equal(lse.isnan(), expected)


@pytest.mark.parametrize(("arch", "page", "rows", "held"), [("sm_80", 32, 32, 4), ("sm_90a", 64, 64, 2)])
def test_a_warp_has_the_same_rows_of_scores_and_output(run_as, arch, page, rows, held):
    """Else each thread keeps the sums of all rows, in arrays whose indices it computes, which lie in memory."""
    run_as(f"cuda -arch={arch}")
    explained = tile_ops.explain(tile_ops.mla_decode, *operands((0, 37, 48, 1), heads=40, page=page), scale=SCALE)
    spec = explained.kernels[0].spec
    assert dict(spec.arguments)["block_h"] == rows
    assert f"float largest[{held}];" in resolve(spec, explained.target).kernel.get_kernel_source()


@pytest.mark.parametrize("anywhere", ["cpu", "hip -mcpu=gfx942"], indirect=True)
def test_parts_of_a_sequence(anywhere, many_threads, ran, close):
    """The shortest sequences leave parts without keys; their empty parts must weigh nothing."""
    arguments = operands((5, 300, 0, 512), columns=32)
    assert "part" in {kernel.role for kernel in tile_ops.explain(tile_ops.mla_decode, *arguments, scale=SCALE).kernels}
    agrees(ran, close, arguments)


@pytest.mark.parametrize("heads", [1, 40])
def test_any_number_of_heads(ran, close, heads):
    agrees(ran, close, operands((20, 48), heads=heads))


def test_bfloat16_and_long_pages(ran, close):
    agrees(ran, close, operands((130, 64, 0), heads=16, page=64, dtype=torch.bfloat16))


@pytest.mark.parametrize(
    "anywhere",
    ["cpu", pytest.param("cuda -arch=sm_90a", marks=pytest.mark.full), "hip -mcpu=gfx942"],
    indirect=True,
)
def test_float32(anywhere, ran, close):
    agrees(ran, close, operands((0, 37, 1), heads=3, dim=32, columns=3, dtype=torch.float32))


@pytest.mark.parametrize(
    "lengths", [pytest.param((200, 0, 1, 64, 129), marks=pytest.mark.full), (330, 65, 0, 5)], ids=["whole", "parts"]
)
def test_pairs_of_tiles(hopper, ran, close, lengths):
    """Even and odd numbers of tiles, whole and not, none at all; the second case has parts, some of them empty."""
    columns = -(-max(lengths) // 64)
    arguments = operands(lengths, heads=70, dim=128, rope=64, page=64, columns=columns)
    (first, *_) = tile_ops.explain(tile_ops.mla_decode, *arguments, scale=SCALE).kernels
    assert first.spec.function == ("decode_pairs_part" if max(lengths) > 256 else "decode_pairs")
    agrees(ran, close, arguments)


def test_the_maximum_of_pairs_follows_scores_that_grow(hopper, ran, close):
    """Of this sequence's tiles some have a maximum that is little above the one before, some one that is far above."""
    arguments = operands((330,), heads=3, dim=128, rope=64, page=64, columns=6, growth=0.6)
    query, keys = torch.cat(arguments[:2], -1).float(), arguments[2][arguments[3][0, :5].long()].flatten(0, 1).float()
    tiles = (query[0] @ keys.T * SCALE / math.log(2)).unflatten(-1, (5, 64)).amax(-1)
    steps = tiles.cummax(-1).values.diff(dim=-1)
    assert ((steps > 0) & (steps < BEHIND)).any()
    assert (steps > BEHIND).any()
    agrees(ran, close, arguments)


def test_pairs_of_tiles_are_for_aligned_tensors():
    q_nope, q_rope, cache, table, lengths = operands((70,), heads=2, dim=128, rope=64, page=64)
    for unaligned in (0, 1, 2):
        tensors = [q_nope.contiguous(), q_rope.contiguous(), cache]
        flat = torch.zeros(tensors[unaligned].numel() + 1, dtype=torch.float16)
        tensors[unaligned] = flat[1:].view_as(tensors[unaligned]).copy_(tensors[unaligned])
        problem = DecodeProblem.of(*tensors, table, lengths, scale=SCALE)
        (_, spec), *_ = plan(problem, Target("cuda", "sm_90a")).kernels
        assert spec.function == "decode"
    (_, spec), *_ = plan(
        DecodeProblem.of(q_nope, q_rope, cache, table, lengths, scale=SCALE), Target("cuda", "sm_90a")
    ).kernels
    assert spec.function == "decode_pairs"


def test_sizes_of_a_real_model(ran, close):
    agrees(ran, close, operands((100, 64), heads=16, dim=512, rope=64, page=64, columns=2))


def test_lengths_past_the_table_are_cut(ran, close):
    arguments = operands((48,))
    expected = tile_ops.mla_decode(*arguments, scale=SCALE)
    longer = (*arguments[:4], torch.tensor([70], dtype=torch.int32))
    assert torch.equal(tile_ops.mla_decode(*longer, scale=SCALE), expected)


def test_strided_queries_and_tables(ran, close):
    q_nope, q_rope, cache, table, lengths = operands((20, 48), columns=3)
    wide = torch.stack([table, table + 1], -1)
    agrees(ran, close, (q_nope.transpose(0, 1).contiguous().transpose(0, 1), q_rope, cache, wide[..., 0], lengths))


def test_nothing_to_attend_to():
    q_nope, q_rope, cache, table, lengths = operands((0, 0))
    out, lse = tile_ops.mla_decode(q_nope, q_rope, cache, table[:, :0], lengths, scale=SCALE, return_lse=True)
    assert (out == 0).all()
    assert (lse == float("-inf")).all()
    none = tile_ops.mla_decode(q_nope[:0], q_rope[:0], cache, table[:0], lengths[:0], scale=SCALE)
    assert none.shape == (0, 10, 64)


def test_is_a_torch_operator():
    torch.library.opcheck(torch.ops.tile_ops.mla_decode.default, (*operands((37, 5)), SCALE))


def test_compiles_as_one_graph(close):
    arguments = operands((37, 5))
    compiled = torch.compile(lambda *a: 2 * tile_ops.mla_decode(*a, scale=SCALE), fullgraph=True, backend="aot_eager")
    close(compiled(*arguments), 2 * reference.mla_decode(*arguments, scale=SCALE)[0], reference.TOLERANCES["float16"])


def test_autocast(close, device):
    q_nope, q_rope, cache, table, lengths = operands((37, 5), dtype=torch.bfloat16)
    with torch.autocast(device, torch.bfloat16):
        found = tile_ops.mla_decode(q_nope.float(), q_rope.float(), cache, table, lengths, scale=SCALE)
    assert found.dtype == torch.bfloat16
    expected, _ = reference.mla_decode(q_nope, q_rope, cache, table, lengths, scale=SCALE)
    close(found, expected, reference.TOLERANCES["bfloat16"])


@pytest.mark.parametrize("arch", sorted(SHARED_MEMORY))
@pytest.mark.parametrize("heads", [1, 16, 128])
def test_tiles_fit_the_shared_memory(arch, heads):
    target = Target("hip" if arch.startswith("gfx") else "cuda", arch)
    (_, spec), *_ = plan(DecodeProblem(64, heads, 512, 64, 64, 100, 100, "float16"), target).kernels
    tiles = {"block_h": 64, "block_n": 64, "stages": 2} | dict(spec.arguments)  # those of pairs
    row, block_h, block_n = 512 + 64, tiles["block_h"], tiles["block_n"]
    assert 2 * ((block_h + tiles["stages"] * block_n) * row + block_h * block_n) < SHARED_MEMORY[arch]


def test_parts_fill_the_device_and_no_more():
    def parts(batch, tokens):
        problem = DecodeProblem(batch, 128, 512, 64, 64, 4096, tokens // 64, "float16")
        return dict(plan(problem, Target("cuda", "sm_90a")).numbers)["parts"]

    assert parts(64, 16384) == parts(128, 16384) == parts(1, 256) == 1
    assert 40 <= parts(1, 16384) <= 64
    assert parts(1, 1024) == 4


def test_blocks_and_parts_of_a_cpu_are_as_many_as_its_threads():
    """Few threads have large blocks and no parts, which cost; many have smaller ones rather than nothing to do."""
    target = Target("cpu", "x86-64-v3")
    specs = set(shipped(target))

    def planned(heads, threads, tokens=2048, batch=1):
        problem = DecodeProblem(batch, heads, 512, 64, 64, 4096, tokens // 64, "float32", threads=threads)
        found = plan(problem, target)
        assert {spec for _, spec in found.kernels} <= specs
        return dict(found.kernels[0][1].arguments)["block_h"], dict(found.numbers)["parts"]

    assert [planned(heads, 1) for heads in (1, 16, 17, 40, 128, 200)] == [
        (16, 1),
        (16, 1),
        (32, 1),
        (64, 1),
        (128, 1),
        (128, 1),
    ]
    assert [planned(128, threads) for threads in (2, 8, 16, 32, 64, 256)] == [
        (128, 2),
        (128, 8),
        (64, 8),
        (32, 8),
        (16, 8),
        (16, 8),
    ]
    assert planned(128, 64, batch=64) == (128, 1)
    assert planned(128, 64, tokens=65536)[0] == 128
    assert planned(128, 64, tokens=65536)[1] > 50


@pytest.mark.parametrize(
    "target", [Target("cpu", "x86-64-v3"), Target("cuda", "sm_80"), Target("hip", "gfx942")], ids=str
)
def test_few_kernels_are_shipped(target):
    specs = list(dict.fromkeys(shipped(target)))
    assert {spec.function for spec in specs} == {"decode", "decode_part", "combine"}
    assert len(specs) <= (27 if target.kind == "cpu" else 10)


def test_hopper_ships_pairs_and_what_serves_caches_at_any_address():
    specs = set(shipped(Target("cuda", "sm_90a")))
    assert {spec.function for spec in specs} == {
        "decode_pairs",
        "decode_pairs_part",
        "decode",
        "decode_part",
        "combine",
    }
    for aligned in (True, False):
        problem = DecodeProblem(1, 128, 512, 64, 64, 1, 1024, "bfloat16", aligned)
        assert {spec for _, spec in plan(problem, Target("cuda", "sm_90a")).kernels} <= specs


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"q_nope": torch.zeros(2, 64).half()}, WrongShape, "expected q_nope (batch, heads, dim)"),
        ({"q_rope": torch.zeros(2, 9, 16).half()}, WrongShape, "batch and heads must be the same"),
        ({"lengths": torch.zeros(3).int()}, WrongShape, "batch and heads must be the same"),
        ({"cache": torch.zeros(4, 16, 96).half()}, WrongShape, "64 + 16 elements"),
        ({"cache": torch.zeros(4, 20, 80).half()}, WrongShape, "multiples of 16"),
        ({"cache": torch.zeros(4, 16, 80)}, WrongDtype, "cache torch.float32"),
        ({"block_table": torch.zeros(2, 3).long()}, WrongDtype, "block_table is torch.int64"),
        ({"cache": torch.zeros(16, 4, 80).half().transpose(0, 1)}, WrongStride, "allocate it contiguous"),
        ({"scale": 0.0}, WrongValue, "scale is 0.0"),
    ],
)
def test_refuses(change, error, text):
    names = ("q_nope", "q_rope", "cache", "block_table", "lengths")
    arguments = dict(zip(names, operands((37, 5)))) | {"scale": SCALE} | change
    with pytest.raises(error, match=re.escape(text)):
        tile_ops.mla_decode(**arguments)
