"""Large float32 products on a CPU, by panels of b."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

import tile_ops
import tile_ops.scratch as memory
from tile_ops.gemm import reference
from tile_ops.gemm_panels import configs
from tile_ops.kernel import Target
from tile_ops.kernel.target import target_of


def operands(m, n, k, turned=""):
    """a (m, k) and b (k, n), of which `turned` names the transposed ones."""
    a = torch.randn(k, m).T if "a" in turned else torch.randn(m, k)
    return a, torch.randn(n, k).T if "b" in turned else torch.randn(k, n)


def roles(*args, **options):
    return [kernel.spec.function for kernel in tile_ops.explain(tile_ops.matmul, *args, **options).kernels]


def packed_at_once(monkeypatch, n, k, count):
    """From here on `count` steps of such a b are packed at once: their numbers of a call with three matrices."""
    arch = target_of(torch.empty(1)).arch
    chosen = configs.blocks(target_of(torch.empty(1)), "float32", 300, n, k)
    of = configs.numbers(chosen, n, k)
    small = replace(chosen, at_once=count * of["panels"] * of["width"] * of["depth"] * 4)
    monkeypatch.setitem(configs.BLOCKS, arch, (small,))
    return configs.numbers(small, n, k, 3)


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(256, 256, 512), (300, 330, 500), (513, 257, 767), (256, 640, 256), (256, 512, 1024), (257, 289, 700)],
)
def test_agrees(ran, close, m, n, k, turned):
    a, b = operands(m, n, k, turned)
    assert roles(a, b) == ["pack", "multiply"]
    close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), reference.TOLERANCES["float32"])


@pytest.mark.cpu("its kernels")
def test_bias_activation_and_type_of_the_result(ran, close):
    a, b = operands(260, 300, 480, "b")
    options = {"bias": torch.randn(300), "activation": "relu"}
    assert roles(a, b, **options) == ["pack", "multiply", "combine"]
    exact = reference.matmul(a, b, **options)
    close(ran(tile_ops.matmul, a, b, **options), exact, reference.TOLERANCES["float32"])
    narrow = ran(tile_ops.matmul, a, b, out_dtype=torch.bfloat16)
    assert narrow.dtype == torch.bfloat16
    close(narrow, reference.matmul(a, b), reference.TOLERANCES["bfloat16"])


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("matrices", [1, 2, 3])
def test_several_matrices(ran, close, monkeypatch, turned, matrices):
    """Three, of which some are packed at once."""
    n = 256 + 2 * matrices  # a call of its own: plans are remembered
    a, b = torch.randn(3, 300, 500), torch.randn(3, n, 500).mT if turned else torch.randn(3, 500, n)
    steps = packed_at_once(monkeypatch, n, 500, 1)["steps"]
    assert packed_at_once(monkeypatch, n, 500, matrices * steps)["matrices"] == matrices
    assert roles(a, b) == ["pack", "multiply"]
    close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), reference.TOLERANCES["float32"])


@pytest.mark.cpu("its kernels")
def test_of_several_matrices_those_with_operands_of_their_own(close):
    a, b = torch.randn(2, 256, 256), torch.randn(2, 256, 256)
    assert "pack" not in roles(a, b, activation="relu")
    assert "pack" not in roles(a[:1].expand(2, -1, -1)[:, None], b.view(1, 2, 256, 256))


def test_rows_of_any_pitch(close):
    """Of all three; what lies between the rows of the result stays."""
    a, b = torch.randn(300, 600)[:, 10:500], torch.randn(490, 400)[:, 3:303]
    whole = torch.full((300, 310), 7.0)
    tile_ops.matmul(a, b, out=whole[:, :300])
    close(whole[:, :300], reference.matmul(a, b), reference.TOLERANCES["float32"])
    assert (whole[:, 300:] == 7).all()


@pytest.mark.parametrize("at_once", [1, 2])
def test_parts_of_k_one_after_the_other(close, monkeypatch, at_once):
    n = 256 + at_once  # a call of its own: plans are remembered
    a, b = operands(256, n, 1020)
    assert packed_at_once(monkeypatch, n, 1020, at_once)["at_once"] == at_once
    close(tile_ops.matmul(a, b), reference.matmul(a, b), reference.TOLERANCES["float32"])


def test_steps_that_fit():
    """The deepest whose zeros beyond k are few."""
    v3 = Target("cpu", "x86-64-v3")
    depths = {k: configs.blocks(v3, "float32", 1024, 1024, k).block_k for k in (256, 500, 512, 700, 1000, 8192)}
    assert depths == {256: 256, 500: 512, 512: 512, 700: 256, 1000: 512, 8192: 512}


def test_blocks_for_all_threads():
    """Two for each, of four panels at least; a single thread copies A once."""
    assert configs.panels_of_a_block(4, 16, 1) == 16
    assert configs.panels_of_a_block(4, 16, 4) == 8
    assert configs.panels_of_a_block(4, 16, 64) == 4
    assert configs.panels_of_a_block(1, 3, 8) == 3
    assert configs.panels_of_a_block(4, 16, 4, batch=2) == 16


@pytest.mark.parametrize(
    ("m", "n", "k", "dtype"),
    [
        (127, 512, 512, "float32"),
        (512, 63, 512, "float32"),
        (1024, 1024, 30, "float32"),
        (128, 128, 127, "float32"),
        (512, 512, 512, "bfloat16"),
    ],
)
def test_others_go_another_way(m, n, k, dtype):
    a, b = operands(m, n, k)
    dtype = getattr(torch, dtype)
    assert "pack" not in roles(a.to(dtype), b.to(dtype))


@pytest.mark.parametrize(("level", "columns"), [("v3", 16), ("v4", 32), ("v4+bf16+vnni+amx", 64)])
def test_smaller_products_take_panels_where_that_was_measured(level, columns):
    target = Target("cpu", f"x86-64-{level}")
    found = [
        configs.blocks(target, "float32", *shape)
        for shape in (
            (128, 1024, 1024),
            (256, 256, 256),
            (2048, 2048, 64),
            (200, 200, 70),
            (200, 200, 600),
            (200, 200, 700),
            (2048, 64, 2048),
        )
    ]
    assert [b.block_k for b in found] == [512, 256, 64, 128, 256, 256, 512]
    assert {b.block_n for b in found} == {columns}
    assert configs.blocks(target, "float32", 64, 2048, 2048) is None
    assert configs.blocks(target, "float32", 2048, 2048, 31) is None
    assert configs.blocks(target, "float16", 256, 256, 256) is None


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize(("m", "n", "k"), [(256, 512, 256), (130, 300, 120), (200, 520, 64)])
def test_calls_that_come_again_in_several_threads(close, m, n, k):
    """Each has panels of its own, which the next call of its thread uses again."""
    operands = [(torch.randn(m, k), torch.randn(k, n)) for _ in range(4)]
    expected = [reference.matmul(a, b) for a, b in operands]

    def work(number: int) -> list[torch.Tensor]:
        a, b = operands[number % 4]
        return [tile_ops.matmul(a, b) for _ in range(6)]

    with ThreadPoolExecutor(4) as pool:
        for number, results in enumerate(pool.map(work, range(8))):
            for result in results:
                close(result, expected[number % 4], reference.TOLERANCES["float32"])


@pytest.mark.cpu("its kernels")
def test_panels_for_another_number_of_threads():
    a, b = operands(300, 600, 512)
    expected = [tile_ops.matmul(a, b) for _ in range(4)][-1]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(before + 1)
        assert torch.equal(tile_ops.matmul(a, b), expected)
    finally:
        torch.set_num_threads(before)


def test_scratch_grows_and_is_kept_up_to_its_limit(monkeypatch):
    monkeypatch.setattr(memory, "KEPT", 4000)
    monkeypatch.setattr(memory, "_memory", memory._Memory())
    first = memory.scratch(100)
    assert memory.scratch(50) is first
    second = memory.scratch(200)
    assert second.numel() == 200
    assert memory.scratch(5000).numel() == 5000
    assert memory.scratch(200) is second


def test_equal_calls_give_equal_bits():
    a, b = operands(300, 300, 512)
    assert torch.equal(tile_ops.matmul(a, b), tile_ops.matmul(a, b))
