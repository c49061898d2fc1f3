"""Products of bfloat16 in the tile registers of a CPU."""

from __future__ import annotations

import random

import pytest
import torch

import tile_compiler
import tile_ops
import tilelang
from tile_ops.gemm import api, reference
from tile_ops.gemm.configs import plan, shipped
from tile_ops.gemm.problem import GemmProblem
from tile_ops.gemm_halves import configs, kernels
from tile_ops.gemm_halves import tile_registers as registers
from tile_ops.kernel import Target

AMX = Target("cpu", "x86-64-v4+bf16+vnni+amx")


@pytest.mark.cpu("its registers")
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize(("m", "n", "k"), [(37, 300, 513), (130, 257, 160), (70, 1000, 100), (70, 300, 513)])
def test_agrees(in_registers, ran, close, m, n, k, turned):
    """Rows, columns and steps that fill no tile; NaN lies between all rows."""
    in_registers(api.MATMUL, api._matmul)
    shapes = ((k, m) if "a" in turned else (m, k), (n, k) if "b" in turned else (k, n))
    held = [torch.nn.functional.pad(torch.randn(*s), (0, 5), value=torch.nan).bfloat16()[:, :-5] for s in shapes]
    a, b = (x.T if name in turned else x for name, x in zip("ab", held))
    bias = torch.randn(n).bfloat16()
    call = tile_ops.explain(tile_ops.matmul, a, b, bias=bias, activation="gelu")
    assert call.target == AMX
    assert [kernel.spec.family for kernel in call.kernels] == ["gemm_halves"] * (2 if "a" in turned else 1)
    for _ in range(3):  # the third call's kernels are prepared
        c = ran(tile_ops.matmul, a, b, bias=bias, activation="gelu")
    close(c, reference.matmul(a, b, bias=bias, activation="gelu"), reference.TOLERANCES["bfloat16"])


@pytest.mark.cpu("its registers")
@pytest.mark.parametrize("out_dtype", [torch.bfloat16, torch.float32, torch.float16])
@pytest.mark.parametrize(("m", "n", "k", "turned"), [(130, 257, 160, ""), (300, 70, 200, "b"), (260, 150, 520, "")])
def test_sums_of_one_step(in_registers, ran, close, m, n, k, turned, out_dtype):
    """They leave the registers for c, block by block, where it has their type or is of bfloat16."""
    in_registers(api.MATMUL, api._matmul)
    a, b = torch.randn(m, k).bfloat16(), torch.randn(*((n, k) if turned else (k, n))).bfloat16()
    b = b.T if turned else b
    (kernel,) = tile_ops.explain(tile_ops.matmul, a, b, out_dtype=out_dtype).kernels
    assert dict(kernel.spec.arguments)["at_once"] == (out_dtype != torch.float16)
    whole = torch.full((m, n + 3), 7.0, dtype=out_dtype)
    ran(tile_ops.matmul, a, b, out_dtype=out_dtype, out=whole[:, :n])
    expected = reference.matmul(a, b)
    close(whole[:, :n], expected, reference.TOLERANCES[str(out_dtype).removeprefix("torch.")])
    assert (whole[:, n:] == 7).all()


@pytest.mark.cpu("its registers")
@pytest.mark.parametrize("turned", ["a", "ab"])
@pytest.mark.parametrize(("m", "n", "k"), [(13, 70, 130), (40, 60, 90), (40, 130, 90)])
def test_small_products_of_a_transposed_matrix(in_registers, ran, close, m, n, k, turned):
    """Of one it is read where it lies; several, whose c is wide, are turned."""
    in_registers(api.MATMUL, api._matmul)
    for batch in (1, 3):
        held = torch.nn.functional.pad(torch.randn(batch, k, m), (0, 5), value=torch.nan).bfloat16()[..., :-5]
        b = torch.randn(batch, n, k).bfloat16().mT if "b" in turned else torch.randn(batch, k, n).bfloat16()
        roles = [kernel.role for kernel in tile_ops.explain(tile_ops.matmul, held.mT, b).kernels]
        assert roles == (["halves", "turn"] if batch > 1 and m > 16 and n > 64 else ["halves"])
        for _ in range(3):
            c = ran(tile_ops.matmul, held.mT, b)
        close(c, reference.matmul(held.mT, b), reference.TOLERANCES["bfloat16"])


@pytest.mark.parametrize(
    ("m", "n", "k", "tile"),
    [
        (9, 4096, 4096, (32, 2048, 256)),
        (33, 4096, 4096, (64, 1024, 512)),
        (64, 4096, 4096, (64, 1024, 512)),
        (65, 4096, 1025, (128, 1024, 512)),
        (65, 4096, 1024, (2048, 256, 1024)),
        (320, 4096, 1024, (2048, 256, 1024)),
        (256, 4096, 4096, (256, 256, 1024)),
        (321, 4096, 513, (2048, 512, 1024)),
        (5000, 257, 1024, (2048, 512, 1024)),
        (5000, 256, 512, (2048, 256, 512)),
        (257, 4096, 512, (2048, 512, 512)),
        (257, 4096, 1025, (2048, 256, 2048)),
        (767, 4096, 2049, (512, 256, 1024)),
        (768, 4096, 2049, (1024, 256, 1024)),
        (5000, 64, 9000, (2048, 64, 4096)),
        (300, 64, 600, (2048, 64, 4096)),
        (128, 64, 4096, (128, 64, 4096)),
        (32, 64, 4096, (32, 128, 1024)),
        (129, 128, 2049, (2048, 128, 4096)),
        (129, 128, 2048, (2048, 128, 2048)),
        (128, 128, 4096, (128, 128, 1024)),
        (5000, 4096, 128, (2048, 1024, 256)),
        (5000, 4096, 64, (2048, 1024, 64)),
        (5000, 64, 128, (2048, 128, 256)),
        (8, 4096, 4096, None),
        (128, 128, 128, (64, 64, 256)),
        (16, 64, 64, (16, 64, 256)),
    ],
)
def test_tiles(m, n, k, tile):
    assert tile_of(m, n, k, (False, False)) == tile


@pytest.mark.parametrize(
    ("m", "n", "k", "tile"),
    [
        (32, 512, 512, (32, 128, 1024)),
        (32, 3072, 768, (32, 2048, 256)),
        (128, 1024, 1024, (128, 1024, 512)),
        (256, 4096, 1024, (2048, 256, 1024)),
        (512, 4096, 1024, (2048, 512, 1024)),
        (512, 4096, 2049, (512, 256, 1024)),
        (5000, 4096, 128, (2048, 1024, 256)),
    ],
)
def test_tiles_of_sums(m, n, k, tile):
    """With a bias or an activation, or of another type, they are on chip: of a step strips of them, and few rows by steps."""
    for more in ({"bias": "bfloat16"}, {"activation": "gelu"}, {"out_dtype": "float16"}):
        assert tile_of(m, n, k, (False, False), **more) == tile


@pytest.mark.cpu("its registers")
@pytest.mark.parametrize("activation", [None, "gelu", "silu", "relu"])
@pytest.mark.parametrize(
    ("m", "n", "k", "turned"), [(330, 250, 70, ""), (397, 300, 600, "b"), (2100, 70, 300, ""), (300, 33, 520, "b")]
)
def test_sums_are_finished_by_strips(in_registers, ran, close, m, n, k, turned, activation):
    """Of rows that fill no strip, a second block of rows, columns that fill no vector, by what B's first strip prepared."""
    in_registers(api.MATMUL, api._matmul)
    a, b = torch.randn(m, k).bfloat16(), torch.randn(*((n, k) if turned else (k, n))).bfloat16()
    b, bias = b.T if turned else b, torch.randn(n).bfloat16()
    (kernel,) = tile_ops.explain(tile_ops.matmul, a, b, bias=bias, activation=activation).kernels
    said = dict(kernel.spec.arguments)
    assert said["strip"]
    assert k <= said["block_k"]
    whole = torch.full((m, n + 3), 7.0, dtype=torch.bfloat16)
    ran(tile_ops.matmul, a, b, bias=bias, activation=activation, out=whole[:, :n])
    expected = reference.matmul(a, b, bias=bias, activation=activation)
    close(whole[:, :n], expected, reference.TOLERANCES["bfloat16"])
    assert (whole[:, n:] == 7).all()


def test_tiles_leave_no_thread_without_work():
    for n, threads, size in (
        (1024, 1, (2048, 512)),
        (1024, 2, (2048, 512)),
        (1024, 4, (2048, 256)),
        (1024, 8, (2048, 128)),
        (1024, 64, (128, 128)),
        (768, 2, (2048, 128)),
    ):
        chosen = configs.tile(AMX, "bfloat16", 1024, n, 1024, threads=threads)
        assert (chosen.block_m, chosen.block_n, chosen.at_once) == (*size, True)


@pytest.mark.parametrize(
    ("m", "n", "k", "tile"),
    [
        (64, 4096, 4096, (64, 128, 512)),
        (129, 4096, 1024, (256, 256, 512)),
        (257, 4096, 1024, (512, 256, 512)),
        (5000, 4096, 4096, (512, 256, 512)),
        (5000, 64, 4096, (512, 64, 512)),
        (5000, 4096, 128, (64, 64, 128)),
        (5000, 4096, 64, (64, 64, 64)),
        (257, 4096, 200, (512, 128, 256)),
        (257, 4096, 513, (512, 256, 512)),
        (128, 128, 128, (128, 128, 128)),
        (33, 64, 300, (64, 64, 64)),
        (16, 500, 300, (16, 64, 128)),
    ],
)
def test_tiles_of_a_transposed_a(m, n, k, tile):
    assert tile_of(m, n, k, (True, False)) == tile


@pytest.mark.parametrize(
    ("m", "n", "k", "transposed"),
    [
        (32, 4096, 4096, None),
        (33, 4096, 4096, 64),
        (65, 4096, 4096, 96),
        (128, 4096, 1025, 128),
        (129, 4096, 4096, 256),
        (257, 4096, 4096, None),
        (128, 512, 512, 32),
        (160, 1024, 1024, 32),
        (160, 512, 1024, None),
        (161, 1024, 1024, None),
        (1024, 1024, 1025, None),
        (128, 2048, 65, 32),
        (128, 2048, 64, None),
        (34, 512, 500, None),
    ],
)
def test_rows_that_are_turned_for_a_transposed_b(m, n, k, transposed):
    """So many rows of A at a time, or none."""
    chosen = configs.tile(AMX, "bfloat16", m, n, k, (False, True))
    assert (chosen.block_m if chosen.transposed else None) == transposed
    assert tile_of(m, n, k, (False, True)) == (chosen.block_m, chosen.block_n, chosen.block_k)
    # Threads that would wait for others.
    assert not configs.tile(AMX, "bfloat16", m, n, k, (False, True), threads=64).transposed


def test_products_of_any_size_are_shipped():
    held, draw = set(shipped(AMX)), random.Random(0)
    for _ in range(3000):
        m, n, k = (draw.choice((draw.randint(1, 70), draw.randint(60, 600), draw.randint(500, 5000))) for _ in "mnk")
        turned, threads = draw.choice(((False, False), (False, True), (True, False))), draw.choice((1, 2, 4, 16, 64))
        out_dtype, activation = draw.choice(("bfloat16", "float32")), draw.choice((None, "gelu"))
        problem = GemmProblem(
            1, m, n, k, "bfloat16", out_dtype, *turned, "each", "each", None, activation, False, threads=threads
        )
        lacking = [spec for _, spec in plan(problem, AMX).kernels if spec.family == "gemm_halves" and spec not in held]
        assert not lacking, problem


def tile_of(m, n, k, turned, out_dtype="bfloat16", bias=None, activation=None):
    """Rows, columns and steps of a shipped kernel; None where products go another way."""
    problem = GemmProblem(1, m, n, k, "bfloat16", out_dtype, *turned, "each", "each", bias, activation, False)
    found = dict(plan(problem, AMX).kernels)
    if "halves" not in found:
        return None
    arguments = dict(found["halves"].arguments)
    assert out_dtype == "float16" or set(found.values()) <= set(shipped(AMX))
    return tuple(arguments[name] for name in ("block_m", "block_n", "block_k"))


@pytest.mark.cpu("kernels of CPUs")
@pytest.mark.parametrize("transposes", [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize("tile", [*registers.AT_ONCE[-2:], registers.MORE[0], registers.SHALLOW])
def test_nothing_is_copied(tile, transposes):
    found = configs.kernels(tile, "bfloat16", "bfloat16", "bfloat16", transposes)
    func = kernels.multiply(**dict(found["halves"].arguments))
    text = tile_compiler.lower(func, tilelang.target.Target("cpu", AMX.arch)).trace.text()
    assert "A_tile" not in text
    assert "B_tile" not in text
    assert "tl.tiles.amx_bf16." in text
    assert ("tl.turn." in text) == transposes[1]
    assert ("tl.groups." in text) != transposes[1]
