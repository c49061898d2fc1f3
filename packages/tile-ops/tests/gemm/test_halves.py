"""Products of bfloat16 on a CPU that multiplies pairs, where their operands lie."""

from __future__ import annotations

import re

import pytest
import torch

import tile_compiler
import tile_ops
import tilelang
from tile_ops.gemm import reference
from tile_ops.gemm.configs import plan, shipped
from tile_ops.gemm.problem import GemmProblem
from tile_ops.gemm_halves import configs, kernels
from tile_ops.kernel import Target

PAIRS = Target("cpu", "x86-64-v4+bf16+vnni")
TOLERANCE = reference.TOLERANCES["bfloat16"]
of_level = configs.tile


@pytest.fixture(autouse=True)
def _on_every_level(monkeypatch):
    """Their kernels are right on any, and their rules are the same."""
    monkeypatch.setattr(
        configs, "tile", lambda target, *of, **more: of_level(PAIRS if target.kind == "cpu" else target, *of, **more)
    )


def operands(m, n, k, turned="", dtype=torch.bfloat16):
    """a (m, k) and b (k, n), of which `turned` names the transposed ones; NaN lies between all rows."""
    shapes = ((k, m) if "a" in turned else (m, k), (n, k) if "b" in turned else (k, n))
    found = []
    for name, (rows, columns) in zip("ab", shapes):
        x = torch.full((rows, columns + 5), torch.nan, dtype=dtype)[:, :columns]
        x.copy_(torch.randn(rows, columns))
        found.append(x.T if name in turned else x)
    return found


def roles(*args, **options):
    return [kernel.spec.function for kernel in tile_ops.explain(tile_ops.matmul, *args, **options).kernels]


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        pytest.param(128, 256, 256, marks=pytest.mark.full),
        (131, 257, 259),
        (521, 130, 129),
        (70, 1030, 64),
        (257, 600, 33),
        (65, 65, 2049),
    ],
)
def test_agrees(ran, close, m, n, k, turned):
    a, b = operands(m, n, k, turned)
    assert roles(a, b) == (["multiply", "turn"] if "a" in turned else ["multiply"])
    for _ in range(3):  # the third call's kernels are prepared
        c = ran(tile_ops.matmul, a, b)
    close(c, reference.matmul(a, b), TOLERANCE)


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("turned", ["a", pytest.param("ab", marks=pytest.mark.full)])
@pytest.mark.parametrize(("m", "n", "k"), [(2, 70, 300), (13, 130, 64), (30, 33, 129), (100, 77, 131), (65, 200, 1)])
def test_small_products_of_a_transposed_matrix(ran, close, m, n, k, turned):
    """It is read where it lies, also of several."""
    a, b = operands(m, n, k, turned)
    assert roles(a, b) == ["multiply"]
    for options in ({}, {"bias": torch.randn(n).bfloat16(), "activation": "silu"}, {"out_dtype": torch.float32}):
        for _ in range(3):
            c = ran(tile_ops.matmul, a, b, **options)
        exact = reference.matmul(a, b, bias=options.get("bias"), activation=options.get("activation"))
        close(c, exact, reference.TOLERANCES[str(options.get("out_dtype", a.dtype)).removeprefix("torch.")])
    several = torch.stack([a.T, 2 * a.T]).mT
    assert roles(several, b) == ["multiply"]
    close(ran(tile_ops.matmul, several, b), reference.matmul(several, b), TOLERANCE)


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("m", [9, 33])
def test_few_rows(ran, close, m):
    """By a row-major matrix: by a transposed one they are scalar products."""
    a, b = operands(m, 700, 801)
    close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), TOLERANCE)


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize(("m", "n", "k"), [(9, 700, 301), (32, 1023, 520), (17, 257, 40), (1, 63, 300), (20, 768, 256)])
def test_few_rows_by_a_large_matrix(ran, close, monkeypatch, m, n, k):
    """Tiles of four panels, of which the last one has any number; more threads would share out narrower ones."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(configs, "LARGE", 1)
    monkeypatch.setattr(configs, "LEAST_WORK", 1)
    batch = 1 if m > 8 else 3
    a, b = (torch.stack(x) for x in zip(*(operands(m, n, k) for _ in range(batch))))
    (kernel,) = tile_ops.explain(tile_ops.matmul, a, b).kernels
    assert dict(kernel.spec.arguments)["block_n"] == configs.LARGE_WIDTH
    close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), TOLERANCE)


def test_a_large_matrix_leaves_no_thread_without_work():
    for threads, width in ((16, configs.LARGE_WIDTH), (17, configs.WIDTH)):
        assert of_level(PAIRS, "bfloat16", 32, 4096, 4096, threads=threads).block_n == width
    assert of_level(PAIRS, "bfloat16", 32, 4096, 4096, (False, True)).block_n == configs.WIDTH


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("k", [301, 40])
@pytest.mark.parametrize("turned", ["a", "b"])
def test_bias_activation_and_type_of_the_result(ran, close, turned, k):
    a, b = operands(140, 300 if k > 256 else 1000, k, turned)
    for out_dtype in (torch.bfloat16, torch.float32, torch.float16):
        options = {
            "bias": torch.linspace(-1, 1, b.shape[1]).to(out_dtype),
            "activation": "gelu",
            "out_dtype": out_dtype,
        }
        found = ran(tile_ops.matmul, a, b, **options)
        assert found.dtype == out_dtype
        exact = reference.matmul(a, b, bias=options["bias"], activation="gelu")
        close(found, exact, reference.TOLERANCES[str(out_dtype).removeprefix("torch.")])


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("out_dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_gelu_is_rounded_once(ran, out_dtype):
    """Within little more than half a place of what float64 gives for all of bfloat16 from -5 on; near it below. In float32
    within 2^-22 of x, as torch's own, and 0 or x from 6 on."""
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    finite = every[every.float().abs() < 60000]  # also as float16
    x = torch.cat([finite, finite.new_zeros(-len(finite) % 64)]).view(-1, 64)
    found = ran(tile_ops.matmul, x, torch.eye(64).bfloat16(), activation="gelu", out_dtype=out_dtype).double()
    assert found.dtype == torch.float64
    exact = torch.nn.functional.gelu(x.double())
    places = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-24}[out_dtype]
    of_x = x.double().abs().clamp(max=6) * 2.0**-22
    smallest = {torch.bfloat16: 0.0, torch.float16: 2.0**-25, torch.float32: of_x}[out_dtype]
    near = exact.abs() * (1.02 * places) + smallest * 1.01 + torch.where(x.double() < -5, 3e-8, 0.0) + 1e-38
    assert ((found - exact).abs() <= near).all()


@pytest.mark.cpu("its kernels")
def test_activations_of_what_is_not_finite(ran):
    """As torch has it in float64: the bias is infinite, or no number."""
    a, b = torch.zeros(33, 300).bfloat16(), torch.zeros(300, 70).bfloat16()
    bias = torch.tensor([torch.inf, -torch.inf, torch.nan, 3e38, -3e38] * 14)
    functional = torch.nn.functional
    for activation, expected in (("relu", functional.relu), ("gelu", functional.gelu), ("silu", functional.silu)):
        found = ran(tile_ops.matmul, a, b, bias=bias, activation=activation)
        exact = expected(bias.double()).bfloat16()
        assert torch.equal(found.nan_to_num(5, 6, 7), exact.nan_to_num(5, 6, 7).expand(33, 70))


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("turned", ["", "b"])
@pytest.mark.parametrize("out_dtype", [torch.bfloat16, torch.float32, torch.float16])
def test_sums_of_one_step(ran, close, turned, out_dtype):
    """Without bias and activation they are C's elements as they leave the registers, at any pitch; float16 is rounded later."""
    for m, n, k in ((200, 700, 64), (131, 515, 77), (65, 1024, 128), (300, 300, 200)):
        a, b = operands(m, n, k, turned)
        (kernel,) = tile_ops.explain(tile_ops.matmul, a, b, out_dtype=out_dtype).kernels
        assert dict(kernel.spec.arguments)["at_once"] == (out_dtype != torch.float16)
        exact = reference.matmul(a, b)
        close(ran(tile_ops.matmul, a, b, out_dtype=out_dtype), exact, reference.TOLERANCES[str(out_dtype)[6:]])
        whole = torch.full((m, n + 9), 7.0, dtype=out_dtype)
        tile_ops.matmul(a, b, out_dtype=out_dtype, out=whole[:, :n])
        close(whole[:, :n], exact, reference.TOLERANCES[str(out_dtype)[6:]])
        assert (whole[:, n:] == 7).all()


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize(
    ("m", "n", "k", "out_dtype"),
    [
        (33, 1025, 300, torch.bfloat16),
        (65, 513, 515, torch.float16),
        (96, 512, 511, torch.bfloat16),
        (131, 1000, 257, torch.bfloat16),
        (256, 511, 258, torch.float32),
    ],
)
def test_few_rows_are_turned_for_many_of_a_transposed_matrix(ran, close, monkeypatch, m, n, k, out_dtype):
    """With and without bias and activation, at any pitch; bits are those of the tiles that turn b, which several threads take
    where these are too few."""
    a, b = operands(m, n, k, "b")
    monkeypatch.setattr(configs, "LEAST_WORK_OF_FEW", 0)
    for options in (
        {"out_dtype": out_dtype},
        {"out_dtype": out_dtype, "bias": torch.linspace(-1, 1, n), "activation": "silu"},
    ):
        found = []
        for threads in (1, 7):
            monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
            few = roles(a, b, **options)
            assert few == ["multiply_transposed"] if threads == 1 else "multiply_transposed" not in few
            whole = torch.full((m, n + 9), 7.0, dtype=out_dtype)
            for _ in range(3):  # the third call's kernel is prepared
                found.append(ran(tile_ops.matmul, a, b, **options))
            tile_ops.matmul(a, b, out=whole[:, :n], **options)
            assert torch.equal(whole[:, :n], found[-1])
            assert (whole[:, n:] == 7).all()
        exact = reference.matmul(a, b, bias=options.get("bias"), activation=options.get("activation"))
        close(found[0], exact, reference.TOLERANCES[str(out_dtype).removeprefix("torch.")])
        if m > 64:  # fewer are scalar products otherwise
            assert all(torch.equal(x, found[0]) for x in found)


@pytest.mark.cpu("its kernels")
def test_several_matrices(ran, close):
    """Their own, a shared one, one of neighbours, which may be transposed."""
    for shape_a, shape_b in (
        ((3, 90, 300), (3, 300, 260)),
        ((3, 90, 301), (301, 260)),
        ((2, 3, 90, 302), (2, 1, 302, 260)),
    ):
        a, b = torch.randn(shape_a).bfloat16(), torch.randn(shape_b).bfloat16()
        for left in (a, a.mT.contiguous().mT):
            assert roles(left, b) == (["multiply"] if left is a else ["multiply", "turn"])
            close(ran(tile_ops.matmul, left, b), reference.matmul(left, b), TOLERANCE)


@pytest.mark.cpu("its kernels")
def test_rows_of_a_result_of_any_pitch(close):
    """What lies between them stays."""
    a, b = operands(150, 303, 402, "b")
    whole = torch.full((150, 310), 7.0, dtype=torch.bfloat16)
    tile_ops.matmul(a, b, out=whole[:, :303])
    close(whole[:, :303], reference.matmul(a, b), TOLERANCE)
    assert (whole[:, 303:] == 7).all()


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("threads", [2, 5])
def test_blocks_for_several_threads(close, monkeypatch, threads):
    """Other numbers for the same kernels: what was prepared for one thread is not taken for several."""
    a, b = operands(200, 1000 + threads, 410, "a")
    asked, of_threads = [], configs.tiles_of_a_block
    monkeypatch.setattr(configs, "tiles_of_a_block", lambda *of: asked.append(of[-1]) or of_threads(*of))
    for count in (1, threads):
        monkeypatch.setattr(torch, "get_num_threads", lambda count=count: count)
        for _ in range(3):
            close(tile_ops.matmul(a, b), reference.matmul(a, b), TOLERANCE)
        assert asked[-1] == count


def test_tiles_of_a_block():
    tile = configs.Tile(256, 64, 256)
    assert configs.tiles_of_a_block(tile, 256, 8192, 1, 1) == 32  # 2048 columns
    assert configs.tiles_of_a_block(tile, 256, 1024, 1, 1) == 16
    assert configs.tiles_of_a_block(tile, 256, 1024, 1, 2) == 4
    assert configs.tiles_of_a_block(tile, 1024, 1024, 1, 2) == 16
    assert configs.tiles_of_a_block(tile, 256, 128, 1, 64) == 1
    assert configs.tiles_of_a_block(tile, 256, 6 * 64, 1, 2) == 1  # by two each a thread would do four of the six


@pytest.mark.cpu("kernels of CPUs")
@pytest.mark.parametrize(
    ("m", "n", "k", "tile"),
    [
        (32, 4096, 4096, (32, 256, 256)),
        (33, 4096, 4096, (64, 64, 256)),
        (32, 4096, 1023, (32, 64, 256)),
        (16, 1024, 4096, (32, 256, 256)),
        (64, 4096, 4096, (64, 64, 256)),
        (128, 1024, 1024, (128, 64, 256)),
        (129, 1024, 129, (256, 64, 256)),
        (5000, 1024, 1024, (512, 64, 256)),
        (2048, 2048, 128, (256, 256, 128)),
        (100, 2048, 64, (128, 256, 64)),
        (8, 4096, 4096, None),
    ],
)
def test_tiles(m, n, k, tile):
    for turned in ((False, False), (True, False)):
        problem = GemmProblem(1, m, n, k, "bfloat16", "bfloat16", *turned, "each", "each", None, None, False)
        found = dict(plan(problem, PAIRS).kernels)
        assert ("halves" in found) == (tile is not None)
        if tile is not None:
            arguments = dict(found["halves"].arguments)
            assert tuple(arguments[name] for name in ("block_m", "block_n", "block_k")) == tile
            assert set(found.values()) <= set(shipped(PAIRS))


def test_small_products_and_few_rows_of_several_matrices():
    found = [configs.tile(PAIRS, "bfloat16", 16, 64, 64, (turned, False)) for turned in (False, True)]
    assert found == [configs.Tile(64, 256, 64, at_once=True), configs.Tile(16, 64, 128, across=True)]
    of_batches = [configs.tile(PAIRS, "bfloat16", 3, 64, 200, batch=batch) for batch in (1, 2)]
    assert of_batches == [None, configs.Tile(8, 64, 256, at_once=True)]


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("turned", ["", "b"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, pytest.param(torch.float16, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("batch", "m", "n", "k"),
    [(5, 1, 90, 130), *(pytest.param(*shape, marks=pytest.mark.full) for shape in ((3, 4, 64, 64), (4, 8, 300, 33)))],
)
def test_several_matrices_of_few_rows(ran, close, dtype, batch, m, n, k, turned):
    """As many on both sides, and one b for all that a's strides keep apart."""
    a = torch.randn(m, batch, k).to(dtype).transpose(0, 1)
    b = torch.randn(batch, n, k).to(dtype).mT if turned else torch.randn(batch, k, n).to(dtype)
    for right in (b, b[0]):
        for _ in range(3):
            found = ran(tile_ops.matmul, a, right)
        close(found, reference.matmul(a, right), reference.TOLERANCES[str(dtype).removeprefix("torch.")])


def test_levels():
    levels = ("v3", "v4", "v4+bf16+vnni", "v4+bf16+vnni+amx")
    found = [of_level(Target("cpu", f"x86-64-{level}"), "bfloat16", 256, 1024, 1024) is not None for level in levels]
    assert found == [False, False, True, True]
    assert of_level(PAIRS, "float16", 256, 1024, 1024) is None


@pytest.mark.cpu("kernels of CPUs")
def test_nothing_of_many_rows_is_copied():
    found = configs.kernels(configs.Tile(96, 512, 256, transposed=True), *["bfloat16"] * 3, (False, True))
    func = kernels.multiply_transposed(**dict(found["halves"].arguments))
    text = tile_compiler.lower(func, tilelang.target.Target("cpu", PAIRS.arch)).trace.text()
    assert not re.search("[AB]_tile", text)
    assert "tl.gemm.bf16.4_6_" in text  # rows by vectors in registers


@pytest.mark.parametrize(
    ("m", "rows"), [(33, 48), (64, 64), (65, 80), (96, 96), (97, 64), (160, 80), (161, 64), (256, 64)]
)
def test_rows_of_a_tile_of_few(m, rows):
    tile = of_level(PAIRS, "bfloat16", m, 4096, 4096, (False, True))
    assert tile == configs.Tile(rows, 512, 256, transposed=True)
    assert configs.tiles_of_a_block(tile, m, 4096, 1, 1) == 4
    for transposes in ((False, False), (True, False)):
        assert not of_level(PAIRS, "bfloat16", m, 4096, 4096, transposes).transposed
    for sizes in (
        (32, 4096, 4096),
        (257, 4096, 4096),
        (m, 4096, 256),
        (34, 512, 300),
    ):  # too few, too many, shallow, small
        found = of_level(PAIRS, "bfloat16", *sizes, (False, True))
        assert found is not None
        assert not found.transposed
    for threads, taken in ((2, True), (5, False), (4, True), (8, True), (16, False)):  # 8 tiles
        assert of_level(PAIRS, "bfloat16", m, 4096, 4096, (False, True), threads).transposed == taken


@pytest.mark.cpu("kernels of CPUs")
@pytest.mark.parametrize("transposes", [(False, False), (False, True), (True, False)])
def test_nothing_is_copied(transposes):
    found = configs.kernels(configs.Tile(256, 64, 256, at_once=True), "bfloat16", "bfloat16", "bfloat16", transposes)
    func = kernels.multiply(**dict(found["halves"].arguments))
    text = tile_compiler.lower(func, tilelang.target.Target("cpu", PAIRS.arch)).trace.text()
    assert not re.search("[ABC]_tile", text)  # C: where one step makes it
    assert ("tl.turn." in text) == transposes[1]
    assert ("tl.groups." in text) != transposes[1]


@pytest.mark.cpu("kernels of CPUs")
def test_a_walk_along_rows_packs_four_panels():
    """And what is left of the columns that are there one by one."""
    found = configs.kernels(configs.Tile(32, 320, 256), "bfloat16", "bfloat16", "bfloat16", (False, False))
    func = kernels.multiply(**dict(found["halves"].arguments))
    text = tile_compiler.lower(func, tilelang.target.Target("cpu", PAIRS.arch)).trace.text()
    assert set(re.findall(r"tl\.groups\.16\.2_16_(\d+)_", text)) == {"64", "256"}
