"""Large float32 products on a CPU, by panels of b."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

import tile_ops
from tile_ops.gemm import reference
from tile_ops.gemm.configs import plan
from tile_ops.gemm.problem import GemmProblem
from tile_ops.gemm_in_place import configs as gemm_in_place
from tile_ops.gemm_panels import configs
from tile_ops.kernel import Target

AMX = "x86-64-v4+bf16+vnni+amx"


def operands(m, n, k, turned=""):
    """a (m, k) and b (k, n), of which `turned` names the transposed ones."""
    a = torch.randn(k, m).T if "a" in turned else torch.randn(m, k)
    return a, torch.randn(n, k).T if "b" in turned else torch.randn(k, n)


def kernels(*args, **options):
    return [
        f"{kernel.spec.family}.{kernel.spec.function}"
        for kernel in tile_ops.explain(tile_ops.matmul, *args, **options).kernels
    ]


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(256, 256, 512), (300, 330, 500), (513, 257, 767), (1030, 640, 256), (129, 512, 1024), (257, 289, 700)],
)
def test_agrees(ran, close, m, n, k, turned):
    """By tiles of all three heights; rows, columns and steps that tiles do not divide."""
    a, b = operands(m, n, k, turned)
    assert kernels(a, b) == ["gemm_panels.multiply"]
    close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), reference.TOLERANCES["float32"])


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
@pytest.mark.parametrize("n", [530, 512])
def test_bias_and_activation(ran, close, n, activation):
    """In the kernel of the product, where its sums are done: of k in one step, and in several."""
    for k in (250, 1100):
        a, b = operands(260, n, k, "b")
        options = {"bias": torch.randn(n), "activation": activation}
        assert kernels(a, b, **options) == ["gemm_panels.multiply"]
        exact = reference.matmul(a, b, **options)
        close(ran(tile_ops.matmul, a, b, **options), exact, reference.TOLERANCES["float32"])


@pytest.mark.cpu("its kernels")
def test_another_type_of_the_result(ran, close):
    a, b = operands(260, 300, 480, "b")
    options = {"bias": torch.randn(300), "activation": "relu", "out_dtype": torch.bfloat16}
    assert kernels(a, b, **options) == ["gemm_panels.multiply", "gemm.combine"]
    found = [ran(tile_ops.matmul, a, b, **options) for _ in range(4)]
    assert {result.dtype for result in found} == {torch.bfloat16}
    exact = reference.matmul(a, b, bias=options["bias"], activation="relu")
    for result in found:
        close(result, exact, reference.TOLERANCES["bfloat16"])


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("turned", [False, True])
def test_several_matrices(ran, close, turned):
    """As many on both sides, and one of a or b for all; a neighbour's for two."""
    a, b = torch.randn(4, 300, 500), torch.randn(4, 260, 500).mT if turned else torch.randn(4, 500, 260)
    for left, right in ((a, b), (a[:, None], b.view(1, 4, *b.shape[1:])), (a.view(2, 2, 300, 500), b[:2, None])):
        options = {"bias": torch.randn(260), "activation": "relu"}
        assert kernels(left, right, **options) == ["gemm_panels.multiply"]
        exact = reference.matmul(left, right, **options)
        close(ran(tile_ops.matmul, left, right, **options), exact, reference.TOLERANCES["float32"])


def test_rows_of_any_pitch(close):
    """Of all three; what lies between the rows of the result stays."""
    a, b = torch.randn(300, 600)[:, 10:500], torch.randn(490, 400)[:, 3:303]
    whole = torch.full((300, 310), 7.0)
    tile_ops.matmul(a, b, out=whole[:, :300])
    close(whole[:, :300], reference.matmul(a, b), reference.TOLERANCES["float32"])
    assert (whole[:, 300:] == 7).all()


def test_what_is_not_a_number_stays_in_its_row_and_column():
    """Of a result that held other numbers: rows, columns and steps past the ends are zeros, whatever a cache held there."""
    a, b = operands(300, 270, 300)
    a[17, 3], b[5, 33] = float("nan"), float("inf")
    out = torch.full((300, 270), float("nan"))
    tile_ops.matmul(a, b, out=out)
    finite = torch.isfinite(out)
    assert not finite[17].any()
    assert not finite[:, 33].any()
    assert finite.sum() == 299 * 269


def test_steps_that_hold_k():
    """As many as leave a panel in the first cache, more where rows of the result do not begin with a line."""
    of_level = {level: Target("cpu", f"x86-64-{level}") for level in ("v3", "v4", "v4+bf16+vnni+amx")}

    def steps(level, n, k):
        return configs.tile(of_level[level], "float32", 1024, n, k).block_k

    wanted = {32: 64, 100: 128, 256: 256, 500: 256, 700: 256}
    assert {k: steps("v4", 1024, k) for k in wanted} == wanted
    assert {k: steps("v4+bf16+vnni+amx", 1024, k) for k in wanted} == {k: min(128, v) for k, v in wanted.items()}
    assert {level: steps(level, 1000, 700) for level in of_level} == {"v3": 256, "v4": 512, "v4+bf16+vnni+amx": 512}


def test_rows_for_all_threads():
    """Tiles of fewer rows where threads would be without work, of which each has four panels."""
    found = [
        configs.tile(Target("cpu", AMX), "float32", 1024, 1024, 1024, threads=threads).block_m
        for threads in (1, 8, 9, 64)
    ]
    assert found == [512, 512, 256, 64]
    assert configs.tile(Target("cpu", AMX), "float32", 1024, 1024, 1024, threads=64, batch=8).block_m == 512


def test_blocks_for_all_threads():
    """Two for each, of four panels at least; a single thread copies A once."""
    of = configs.Tile(512, 64, 512, 16)

    def panels(*shape, threads, batch=1):
        return configs.panels_of_a_block(of, *shape, batch, threads)

    assert panels(2048, 1024, threads=1) == 16
    assert panels(2048, 1024, threads=4) == 8
    assert panels(2048, 1024, threads=64) == 4
    assert panels(100, 192, threads=8) == 3
    assert panels(2048, 1024, threads=4, batch=2) == 16


@pytest.mark.parametrize(
    ("m", "n", "k", "dtype"),
    [
        (32, 2048, 1024, "float32"),
        (127, 512, 512, "float32"),  # where its operands lie
        (512, 63, 512, "float32"),
        (1024, 1024, 30, "float32"),
        (128, 128, 127, "float32"),
        (512, 512, 512, "bfloat16"),
    ],
)
def test_others_go_another_way(m, n, k, dtype):
    a, b = operands(m, n, k)
    dtype = getattr(torch, dtype)
    assert "gemm_panels.multiply" not in kernels(a.to(dtype), b.to(dtype))


@pytest.mark.parametrize(("level", "columns"), [("v3", 16), ("v4", 32), ("v4+bf16+vnni+amx", 64)])
def test_smaller_products_take_panels_where_that_was_measured(level, columns):
    target = Target("cpu", f"x86-64-{level}")
    shapes = ((128, 1024, 1024), (256, 256, 256), (2048, 2048, 64), (200, 200, 70), (300, 208, 200), (2048, 64, 2048))
    found = [configs.tile(target, "float32", *shape) for shape in shapes]
    most = 128 if "amx" in level else 256
    assert [b.block_k for b in found] == [min(most, steps) for steps in (256, 256, 64, 128, 256, 256)]
    assert [b.block_m for b in found] == [128, 256, 512, 256, 512, 512]
    assert {b.block_n for b in found} == {columns}
    assert [configs.tile(target, "float32", m, 2048, 2048).block_m for m in (48, 64, 65)] == [64, 64, 128]
    assert configs.tile(target, "float32", 32, 2048, 2048) is None
    assert configs.tile(target, "float32", 2048, 2048, 31) is None
    assert configs.tile(target, "float16", 256, 256, 256) is None


@pytest.mark.parametrize(
    ("level", "in_place", "by_panels"),
    [
        ("v3", [(127, 512, 512), (256, 256, 256), (256, 64, 2048)], [(128, 300, 300)]),
        ("v4", [(127, 512, 512), (48, 1024, 1024), (128, 300, 300)], [(128, 512, 512), (49, 1024, 1024)]),
        ("v4+bf16+vnni+amx", [(127, 512, 512), (256, 64, 1024)], [(128, 512, 512), (33, 1024, 1024)]),
    ],
)
def test_rows_that_read_b_where_it_lies(level, in_place, by_panels):
    """Where a panel that they share is not worth a copy of a, as was measured of each level."""
    target = Target("cpu", f"x86-64-{level}")
    found = [
        [gemm_in_place.tile(target, m, n, k, False, panels=True) is not None for m, n, k in shapes]
        for shapes in (in_place, by_panels)
    ]
    assert found == [[True] * len(in_place), [False] * len(by_panels)]


@pytest.mark.parametrize(
    ("level", "rows"), [("v3", 128), ("v4", 128), ("v4+bf16+vnni", 128), ("v4+bf16+vnni+amx", 256)]
)
def test_a_transposed_a_is_copied_from_few_multiplications_on(level, rows):
    """Where it lies, each step of a register tile's rows is another line of a cache; a copy of fewer rows has them nearer."""
    target = Target("cpu", f"x86-64-{level}")
    turned = {"transposes": (True, False)}
    found = [configs.tile(target, "float32", m, m, k, **turned) for m, k in ((128, 64), (2048, 2048))]
    assert [tile.block_m for tile in found] == [128, rows]
    assert configs.tile(target, "float32", 128, 128, 64) is None
    assert configs.tile(target, "float32", 64, 64, 64, **turned) is None
    problem = GemmProblem(1, 128, 128, 64, "float32", "float32", True, False, "each", "each", None, None, False)
    assert "panels" in dict(plan(problem, target).kernels)
    assert "direct" in dict(plan(replace(problem, transpose_a=False), target).kernels)


def test_eight_rows_of_a_small_matrix_are_one_block_with_amx():
    found = [gemm_in_place.tile(Target("cpu", AMX), m, 512, 512, False, panels=False) for m in (4, 5, 8)]
    assert found == [gemm_in_place.FEW, gemm_in_place.FEW_WITH_AMX, gemm_in_place.FEW_WITH_AMX]
    assert gemm_in_place.tile(Target("cpu", AMX), 8, 1024, 1024, False, panels=False) == gemm_in_place.WIDE_FEW
    assert gemm_in_place.tile(Target("cpu", "x86-64-v4"), 8, 512, 512, False, panels=False) == gemm_in_place.FEW


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize(("m", "n", "k"), [(3, 70, 33), (8, 33, 600), (5, 64, 300), (7, 1, 64), (8, 100, 257)])
def test_few_rows_by_a_small_transposed_matrix(close, ran, m, n, k):
    """Columns and steps that fill no tile, with what ends a product, too; and several matrices."""
    a, b, bias = torch.randn(m, k), torch.randn(n, k).T, torch.randn(n)
    close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), reference.TOLERANCES["float32"])
    found = ran(tile_ops.matmul, a, b, bias=bias, activation="gelu")
    close(found, reference.matmul(a, b, bias=bias, activation="gelu"), reference.TOLERANCES["float32"])
    several = torch.randn(3, m, k), torch.randn(3, n, k).mT
    close(ran(tile_ops.matmul, *several), reference.matmul(*several), reference.TOLERANCES["float32"])


def test_few_rows_by_a_small_transposed_matrix_are_tiles_of_eight_with_avx512():
    def rows(arch, m):
        return gemm_in_place.small(Target("cpu", arch), m, 64, 64).block_m

    assert [rows(arch, 8) for arch in ("x86-64-v4", AMX)] == [8, 8]
    assert rows("x86-64-v3", 5) == 128
    several = [gemm_in_place.tile(Target("cpu", "x86-64-v4"), m, 64, 64, True, False, batch=4) for m in (8, 9)]
    assert [tile.block_m for tile in several] == [8, 128]


def test_rows_of_a_tile_where_b_lies():
    """Blocks of five and six rows that hold them with the least left over."""
    target = Target("cpu", "x86-64-v4")
    small, large = (
        {m: gemm_in_place.tile(target, m, n, n, False, panels=False) for m in (8, 12, 13, 16, 17, 30, 31, 32, 33, 300)}
        for n in (512, 1024)
    )
    assert [tile.block_m for tile in small.values()] == [8, 96, 16, 16, 96, 96, 32, 32, 96, 96]
    assert [tile.block_m for tile in large.values()] == [tile.block_m for tile in small.values()]
    assert {(tile.block_n, tile.block_k) for m, tile in small.items() if m > 8} == {(64, 512)}
    assert {(tile.block_n, tile.block_k) for m, tile in large.items() if m > 8} == {(512, 64)}


def test_rows_of_a_tile_where_b_lies_with_amx():
    """Few eights of rows meet three vectors of columns at once; the others' panels of a larger matrix have fewer steps."""
    target = Target("cpu", AMX)
    rows = (12, 16, 17, 32, 36, 37, 40, 41, 100)
    small, large = ([gemm_in_place.tile(target, m, n, 512, False, panels=False) for m in rows] for n in (256, 512))
    assert [tile.block_m for tile in small] == [tile.block_m for tile in large] == [96, 16, 96, 32, 96, 40, 40, 96, 96]
    assert {(tile.block_n, tile.block_k) for tile in small + large if tile.block_m < 96} == {(96, 256)}
    for tiles, steps in ((small, 512), (large, 128)):
        assert {(tile.block_n, tile.block_k) for tile in tiles if tile.block_m == 96} == {(64, steps)}


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize(("m", "n", "k"), [(13, 97, 300), (16, 512, 513), (31, 130, 70), (38, 100, 257), (40, 96, 90)])
def test_few_eights_of_rows(ran, close, m, n, k):
    """Rows and columns that end in a register tile, in all of them, and steps that do; with what ends a product."""
    a, b = operands(m, n, k)
    options = {"bias": torch.randn(n), "activation": "silu"}
    assert kernels(a, b) == ["gemm_in_place.multiply"]
    close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), reference.TOLERANCES["float32"])
    close(ran(tile_ops.matmul, a, b, **options), reference.matmul(a, b, **options), reference.TOLERANCES["float32"])


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize(("m", "n", "k"), [(256, 512, 256), (130, 300, 120), (200, 520, 64)])
def test_calls_that_come_again_in_several_threads(close, m, n, k):
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
    """By tiles of other heights: an element's sum has one order."""
    a, b = operands(700, 600, 512)
    expected = [tile_ops.matmul(a, b) for _ in range(4)][-1]
    before = torch.get_num_threads()
    try:
        for threads in (before + 1, 64):
            torch.set_num_threads(threads)
            assert torch.equal(tile_ops.matmul(a, b), expected)
    finally:
        torch.set_num_threads(before)


def test_equal_calls_give_equal_bits():
    a, b = operands(300, 300, 512)
    assert torch.equal(tile_ops.matmul(a, b), tile_ops.matmul(a, b))
