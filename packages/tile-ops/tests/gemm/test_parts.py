"""Products whose last tiles are cut along k: the model that says where it pays, and the kernels; rows copied to be whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import tile_ops
from tile_ops import prebuild
from tile_ops.again import Again
from tile_ops.gemm import configs, padding, reference
from tile_ops.gemm.api import MATMUL, _matmul
from tile_ops.gemm.model import Division, Rates, best, divisions, whole
from tile_ops.gemm.problem import GemmProblem
from tile_ops.kernel import Target
from tile_ops.kernel.resolve import loaded

RATES = Rates(step=0.5, start=3.0, slots=132)
H200 = Target("cuda", "sm_90a")


def problem(m, n, k, dtype="float16", **others):
    flags = {"transpose_a": False, "transpose_b": True, "batch_a": "each", "batch_b": "each", "bias": None}
    return GemmProblem(
        **({"batch": 1, "m": m, "n": n, "k": k, "dtype": dtype, "out_dtype": dtype} | flags | others),
        activation=None,
        tf32=False,
    )


@pytest.fixture
def emulated(run_as):
    """Calls run as on sm_90a, by plans made afresh."""
    run_as("cuda -arch=sm_90a")

    def forget():
        MATMUL.plan.cache_clear()
        MATMUL._calls.clear()
        _matmul.again.forget()

    forget()
    yield
    forget()


def manifest(kernel, explained):
    return loaded(kernel.spec, explained.target).kernel.artifact.manifest


@pytest.mark.parametrize(("tiles", "steps"), [(160, 64), (140, 13), (40, 256), (1, 256), (133, 9), (300, 64)])
def test_every_division_has_each_step_once(tiles, steps):
    found = list(divisions(tiles, steps, 128 * 256, RATES))
    assert found
    for division in found:
        assert division.parts > 1
        assert (division.parts - 1) * division.steps < steps <= division.parts * division.steps
        assert 0 <= division.whole < tiles
        assert division.whole % RATES.slots == 0
        assert division.pieces(tiles) == (tiles - division.whole) * division.parts


def test_parts_pay_for_a_remainder_of_tiles_and_a_long_k():
    assert best(132, 64, 128 * 256, RATES).whole == 132  # one wave
    assert best(2 * 132 - 1, 64, 128 * 256, RATES).whole == 2 * 132 - 1  # almost two
    assert best(160, 8, 128 * 256, RATES).whole == 160  # too few steps
    remainder = best(160, 128, 128 * 256, RATES)
    assert (remainder.whole, remainder.microseconds < 0.8 * whole(160, 128, RATES).microseconds) == (132, True)
    assert best(1, 256, 64 * 64, RATES).parts > 16


def test_the_plan_says_what_it_weighed():
    chosen = configs.plan(problem(512, 1024, 16384), H200)
    assert [role for role, _ in chosen.kernels] == ["parts", "finish"]
    assert "along k" in chosen.why
    assert "all whole" in chosen.why
    assert [role for role, _ in configs.plan(problem(4096, 1024, 8192), H200).kernels] == ["product"]


@pytest.mark.parametrize("others", [{"batch": 3}, {"gradient": True}, {"dtype": "int8", "scales": "rows"}])
def test_only_plain_products_of_one_matrix_are_cut(others):
    assert [role for role, _ in configs.plan(problem(100, 128, 16384, **others), H200).kernels] == ["product"]


def test_whole_tiles_beside_parts(monkeypatch, emulated, ran, close):
    """Five tiles where four are a wave: one in parts, of which the last has fewer steps; equal calls, equal bits."""
    rates = {"small": Rates(step=10.0, start=1.0, slots=4), "large": Rates(step=1000.0, start=1.0, slots=4)}
    monkeypatch.setattr(configs, "RATES", {("sm_90a", size): rate for size, rate in rates.items()})
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(shape, generator=generator).half() for shape in ((64, 832), (832, 320)))
    bias = torch.linspace(-2, 2, 320)
    numbers = dict(configs.plan(problem(64, 320, 832, transpose_b=False, bias="float32"), H200).numbers)
    assert (numbers["whole"], numbers["parts"], numbers["steps"]) == (4, 3, 5)
    found = ran(tile_ops.matmul, a, b, bias=bias, activation="relu")
    expected = reference.matmul(a, b, bias=bias, activation="relu")
    close(found, expected, reference.TOLERANCES["float16"])
    assert torch.equal(found, tile_ops.matmul(a, b, bias=bias, activation="relu"))
    explained = tile_ops.explain(tile_ops.matmul, a, b, bias=bias, activation="relu")
    early = [k.role for k in explained.kernels for v in manifest(k, explained).variants for n in v.launches if n.pdl]
    assert set(early) == {"parts", "finish"}  # each may begin before what it reads is there: it waits for that itself


@pytest.mark.parametrize("dtype", [torch.float16, pytest.param(torch.float8_e4m3fn, marks=pytest.mark.full)])
def test_blocks_that_stay(monkeypatch, emulated, ran, close, dtype):
    """Seven tiles for three blocks; shapes are no multiples of tiles. A result of 16-bit operands leaves by bulk stores
    all the same, one of bytes, with scales for rows, straight from registers."""
    monkeypatch.setattr(configs, "RATES", {("sm_90a", "large"): Rates(step=1.0, start=1.0, slots=3)})
    tile = configs.Tiles(64, 64, 64, 2, 128, 2)
    for size in ("large", "staying", "staying8"):
        monkeypatch.setitem(configs.TILES, ("sm_90a", size), tile)
    generator = torch.Generator().manual_seed(0)
    a, w = (torch.randn(shape, generator=generator).to(dtype) for shape in ((50, 144), (440, 144)))
    scales = {}
    if dtype != torch.float16:
        scales = {"scale_a": torch.rand(50, generator=generator) + 0.5, "scale_b": torch.rand(440, generator=generator)}
    explained = tile_ops.explain(tile_ops.matmul, a, w.T, **scales)
    assert [kernel.role for kernel in explained.kernels] == ["staying"]
    found = ran(tile_ops.matmul, a, w.T, **scales)
    close(found, reference.matmul(a, w.T, **scales), reference.TOLERANCES["bfloat16" if scales else "float16"])
    text = loaded(explained.kernels[0].spec, explained.target).kernel.get_kernel_source()
    assert ("tma_store(" in text) == (dtype == torch.float16)


@pytest.mark.full
@pytest.mark.parametrize(("dtype", "staged"), [("float16", True), ("float8_e4m3fn", False)])
def test_blocks_that_stay_compile_as_they_are_shipped(dtype, staged):
    """With the tiles that a card gets, beside which the sizes that the compiler looks at are small."""
    scales = None if staged else "rows"
    out_dtype = "float16" if staged else "bfloat16"
    chosen = configs.plan(problem(8192, 8192, 8192, dtype=dtype, out_dtype=out_dtype, scales=scales), H200)
    ((role, spec),) = chosen.kernels
    assert role == "staying"
    made = prebuild.make(prebuild.Job(spec, "cuda", "sm_90a"))
    assert (made.failure, made.refusals, made.archs) == ("", (), ("sm_90a",))


@pytest.mark.parametrize(
    ("size", "m", "n", "k", "dtype", "turned", "division"),
    [
        pytest.param("large", 50, 200, 144, torch.float16, True, (0, 2, 3), marks=pytest.mark.full),
        pytest.param("large", 100, 200, 144, torch.bfloat16, False, (3, 3, 2), marks=pytest.mark.full),
        pytest.param("large", 100, 440, 144, torch.float16, True, (12, 5, 1), marks=pytest.mark.full),
        pytest.param("large", 100, 203, 147, torch.float16, True, (6, 2, 4), marks=pytest.mark.full),
        ("256x160", 100, 200, 144, torch.float16, True, (3, 2, 3)),
    ],
)
def test_blocks_that_stay_for_parts(monkeypatch, emulated, ran, close, size, m, n, k, dtype, turned, division):
    """No wave of whole tiles, one and several, then parts: three blocks, all shapes ragged."""
    rates = {("sm_90a", name): Rates(step=1.0, start=1.0, slots=3) for name in (size, "large")}
    monkeypatch.setattr(configs, "RATES", rates)
    for name in (size, "large", "staying"):
        monkeypatch.setitem(configs.TILES, ("sm_90a", name), configs.Tiles(64, 64, 64, 2, 128, 2))
    monkeypatch.setattr(configs, "least", lambda *_: Division(*division, microseconds=0.0))
    monkeypatch.setattr(configs, "_is_tiny", lambda *_: False)  # as rows that begin anywhere are, of so few elements
    generator = torch.Generator().manual_seed(0)
    a, w = (torch.randn(shape, generator=generator).to(dtype) for shape in ((m, k), (n, k)))
    b = w.T if turned else w.T.contiguous()
    given = {"bias": torch.linspace(-2, 2, n), "activation": "gelu"}
    explained = tile_ops.explain(tile_ops.matmul, a, b, **given)
    assert [kernel.role for kernel in explained.kernels] == ["parts", "finish"]
    assert "by blocks that stay" in explained.why
    found = ran(tile_ops.matmul, a, b, **given)
    close(found, reference.matmul(a, b, **given), reference.TOLERANCES[str(dtype).removeprefix("torch.")])
    assert torch.equal(found, tile_ops.matmul(a, b, **given))
    parts = explained.kernels[0]
    assert all(launch.grid[0] == 3 for v in manifest(parts, explained).variants for launch in v.launches)
    text = loaded(parts.spec, explained.target).kernel.get_kernel_source()
    assert ("tma_store(" in text) == (size == "large")  # the others leave no room for a tile of C


@pytest.mark.parametrize(
    "given", [{}, {"bias": torch.linspace(-2, 2, 200), "activation": "gelu"}], ids=["plain", "bias"]
)
def test_parts_of_the_last_tiles_come_again(monkeypatch, emulated, close, given):
    """Other operands of such a call: first its kernels are prepared, then nothing but their launches is left."""
    monkeypatch.setattr(configs, "RATES", {("sm_90a", "large"): Rates(step=1.0, start=1.0, slots=3)})
    for name in ("large", "staying"):
        monkeypatch.setitem(configs.TILES, ("sm_90a", name), configs.Tiles(64, 64, 64, 2, 128, 2))
    monkeypatch.setattr(configs, "least", lambda *_: Division(3, 2, 3, microseconds=0.0))
    generator = torch.Generator().manual_seed(0)
    for number in range(5):
        a, w = (torch.randn(shape, generator=generator).half() for shape in ((100, 144), (200, 144)))
        if number == 0:
            found = tile_ops.explain(tile_ops.matmul, a, w.T, **given)
            assert [kernel.role for kernel in found.kernels] == ["parts", "finish"]
        if number == 2:
            monkeypatch.setattr("tile_ops.gemm.operands.Views.of", lambda *_: pytest.fail("views were made"))
        if number == 3:
            monkeypatch.setattr(Again, "run", lambda *_: pytest.fail("the implementation was asked"))
        found = tile_ops.matmul(a, w.T, **given)
        close(found, reference.matmul(a, w.T, **given), reference.TOLERANCES["float16"])


@pytest.mark.full
@pytest.mark.cpu("nothing: they are made by the compiler of the wheels, not run")
@pytest.mark.parametrize("turned", [False, True])
def test_parts_of_float32_have_registers_for_operands_that_begin_anywhere(turned):
    """Made, not run: their loads, beside 128 sums, spilled 64 and 132 bytes."""
    target = Target("cuda", "sm_90a")
    problem = GemmProblem(1, 512, 768, 2048, "float32", "float32", False, turned, "each", "each", None, None, False)
    spec = configs._split_specs(problem, target, "alone 128x128")["parts"]
    made = prebuild.make(prebuild.Job(spec, target.kind, target.arch))
    assert (made.refusals, made.failure, made.slow) == ((), "", ())


def test_parts_of_the_last_tiles_of_blocks_that_stay():
    """12.1 and 8.3 waves of large tiles; 15.5, and scales, which parts do not take, are left whole."""
    for m, n, k, full in ((5000, 10000, 4096, 12), (4224, 8448, 4096, 8)):
        chosen = configs.plan(problem(m, n, k), H200)
        numbers, arguments = dict(chosen.numbers), dict(chosen.kernels[0][1].arguments)
        assert [role for role, _ in chosen.kernels] == ["parts", "finish"]
        assert (numbers["whole"], arguments["blocks"], arguments["staged"]) == (full * 132, 132, True)
        assert dict(chosen.kernels[1][1].arguments)["panel"] == arguments["panel"]
        assert {spec for _, spec in chosen.kernels} <= set(configs.shipped(H200))
    chosen = configs.plan(problem(8192, 8192, 8192), H200)
    assert [role for role, _ in chosen.kernels] == ["staying"]
    assert "parts along k" in chosen.why  # weighed
    scaled = problem(5000, 10000, 4096, dtype="float8_e4m3fn", out_dtype="bfloat16", scales="rows")
    assert [role for role, _ in configs.plan(scaled, H200).kernels] == ["staying"]


def test_blocks_stay_for_many_tiles_of_narrow_results():
    def roles(**others):
        return [role for role, _ in configs.plan(problem(8192, 8192, 8192, **others), H200).kernels]

    assert roles() == roles(dtype="float8_e4m3fn", out_dtype="bfloat16", scales="rows") == ["staying"]
    assert roles(out_dtype="float32") == roles(dtype="int8", out_dtype="bfloat16", scales="rows") == ["product"]


def test_blocks_stay_for_little_more_than_a_wave():
    """By tiles that leave no room for one of the result, which then leaves straight from registers."""
    ((role, spec),) = configs.plan(problem(2000, 5120, 776), H200).kernels
    arguments = dict(spec.arguments)
    assert (role, arguments["block_m"], arguments["block_n"], arguments["staged"]) == ("staying", 256, 160, False)
    ((role, _),) = configs.plan(problem(1000, 5120, 4096), H200).kernels
    assert role == "product"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "gfx942"])
def test_each_size_of_a_product_has_tiles_that_suit_it(arch):
    """One rule for all GPUs: as few idle multiprocessors as tiles allow, and no bulk copy of a part of a row."""
    target = Target("hip" if arch == "gfx942" else "cuda", arch)
    for m, n, k in ((100, 1000, 4096), (1000, 1000, 4096), (2000, 2560, 4096), (8192, 8192, 8192)):
        for transpose_b in (False, True):
            _, spec = configs.plan(problem(m, n, k, transpose_b=transpose_b), target).kernels[0]
            tile = dict(spec.arguments)
            assert transpose_b or tile["block_n"] * 2 % 128 == 0
            assert (tile["block_m"] + tile["block_n"]) * tile["block_k"] * 2 * tile["stages"] <= 227 * 1024
    tiles = [dict(configs.plan(problem(n, n, 4096), target).kernels[0][1].arguments) for n in (64, 1000, 8192)]
    areas = [tile["block_m"] * tile["block_n"] for tile in tiles]
    assert areas == sorted(areas)
    assert areas[0] < areas[-1]


@pytest.mark.parametrize(("m", "n", "k"), [(70, 40, 33), pytest.param(66, 43, 40, marks=pytest.mark.full)])
def test_rows_that_begin_anywhere_are_copied_for_large_products(monkeypatch, emulated, ran, close, m, n, k):
    monkeypatch.setattr(padding, "STEP", 1000.0)
    monkeypatch.setattr(configs, "TINY_STEP", 1000.0)
    launched = []
    of = padding.Padded.of.__func__
    monkeypatch.setattr(
        padding.Padded, "of", classmethod(lambda cls, *args: launched.append(of(cls, *args)) or launched[-1])
    )
    generator = torch.Generator().manual_seed(0)
    a, w = (torch.randn(shape, generator=generator).half() for shape in ((m, k), (n, k)))
    bias = torch.linspace(-2, 2, n).half()
    explained = tile_ops.explain(tile_ops.matmul, a, w.T, bias=bias)
    assert padding.ROLE in [kernel.role for kernel in explained.kernels]
    for factor in (1.0, 2.0, -3.0):  # the later ones are prepared
        x = a * factor
        found, expected = ran(tile_ops.matmul, x, w.T, bias=bias), reference.matmul(x, w.T, bias=bias)
        close(found, expected, reference.TOLERANCES["float16"])
    for rows in launched:
        assert padding.has_whole_rows(rows.a, rows.b, rows.c)
        assert rows.a.shape[2] % 8 == rows.b.shape[1] % 8 == 0
    assert len(launched) == 2


def test_results_and_biases_of_another_type_are_copied_by_torch(monkeypatch, emulated, ran, close):
    """What is copied beside them, the operands, by kernels."""
    for module, name in ((padding, "STEP"), (configs, "TINY_STEP")):
        monkeypatch.setattr(module, name, 1000.0)
    a, w, bias = torch.randn(71, 35).half(), torch.randn(41, 35).half(), torch.linspace(-2, 2, 41)
    assert padding.ROLE in [k.role for k in tile_ops.explain(tile_ops.matmul, a, w.T, bias=bias).kernels]
    for out_dtype in (torch.float16, torch.float32):
        for factor in (1.0, 2.0, -3.0):
            x = a * factor
            found = ran(tile_ops.matmul, x, w.T, bias=bias, out_dtype=out_dtype)
            assert found.dtype == out_dtype
            close(found, reference.matmul(x, w.T, bias=bias), reference.TOLERANCES["float16"])


@pytest.mark.parametrize("turned", [(True, False), (False, False), (True, True)], ids=str)
def test_only_what_lies_along_rows_is_copied(monkeypatch, emulated, ran, close, turned):
    """k is no part of a row where a is transposed and b is not: then odd tokens make no copy of operands whose rows are whole."""
    monkeypatch.setattr(padding, "STEP", 1000.0)
    monkeypatch.setattr(configs, "TINY_STEP", 1000.0)
    launched = []
    of = padding.Padded.of.__func__
    monkeypatch.setattr(
        padding.Padded, "of", classmethod(lambda cls, *args: launched.append(of(cls, *args)) or launched[-1])
    )
    m, n, k = 72, 43, 37
    generator = torch.Generator().manual_seed(0)
    a = torch.randn((k, m) if turned[0] else (m, k), generator=generator).half()
    b = torch.randn((n, k) if turned[1] else (k, n), generator=generator).half()
    a, b = a.T if turned[0] else a, b.T if turned[1] else b
    close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), reference.TOLERANCES["float16"])
    (rows,) = launched
    whole = {(True, False): (37, 72), (False, False): (72, 40), (True, True): (40, 72)}[turned]
    assert tuple(rows.a.shape[1:]) == whole
    assert rows.c.shape == (1, 72, 48)


@pytest.mark.parametrize(("m", "n", "k", "copied"), [(16, 16, 16, False), (256, 256, 4096, True)])
def test_operands_that_begin_anywhere_are_copied_where_it_pays(emulated, m, n, k, copied):
    """Where strides alone are to blame, of which no plan knows."""
    storage = torch.zeros(m * (k + 1) + 1, dtype=torch.float16)
    a, b = storage[1 : m * (k + 1) + 1].view(m, k + 1)[:, :k], torch.zeros(k, n, dtype=torch.float16)
    call = MATMUL.call(a, b, bias=None, activation=None, out_dtype=None)
    assert padding.ROLE not in call
    whole = torch.zeros(1, m, n, dtype=torch.float16)
    assert padding.is_needed(call, a[None], b[None], whole) == copied
    assert not padding.is_needed(call, a.contiguous()[None], b[None], whole)


def test_copies_are_weighed_against_what_single_elements_take():
    """bfloat16 of an H200, whose figures are in padding.py: rows of 705 elements are copied; few, or whole ones, are not, and
    neither is what a matrix instruction does not multiply."""
    roles = {
        (m, n, k): padding.ROLE
        in dict(configs.plan(problem(m, n, k, dtype="bfloat16", transpose_b=n == 1), H200).kernels)
        for m, n, k in [
            (1144, 144, 705),
            (197, 452, 244),
            (1144, 144, 704),
            (64, 448, 12034),
            (4, 1003, 4096),
            (900, 1, 777),
        ]
    }
    assert [shape for shape, copied in roles.items() if copied] == [(1144, 144, 705), (64, 448, 12034)]


def test_tiny_tiles_are_for_small_products():
    """Of halves on Hopper: few tiles and steps of whole rows, more where single elements fill them."""

    def is_tiny(m, n, k, **others):
        spec = dict(configs.plan(problem(m, n, k, **{"transpose_b": False, **others}), H200).kernels).get("product")
        return spec is not None and (dict(spec.arguments)["block_m"], dict(spec.arguments)["block_n"]) == (16, 32)

    assert all(
        is_tiny(*shape) for shape in [(64, 448, 128), (16, 8, 8), (18, 454, 32), (197, 452, 244), (100, 7622, 1)]
    )
    assert not any(is_tiny(*shape) for shape in [(64, 448, 256), (1024, 1024, 64), (1144, 144, 705), (4000, 4001, 3)])
    assert is_tiny(24, 36, 32, batch=14)
    assert is_tiny(32, 36, 24, batch=14, transpose_a=True)
    assert is_tiny(36, 8, 202, dtype="float32")
    assert not is_tiny(157, 480, 715, dtype="float32")
    assert not is_tiny(16, 8, 8, dtype="int8", out_dtype="int32")
    assert not is_tiny(16, 8, 8, gradient=True)
    ((_, spec),) = configs.plan(replace(problem(16, 8, 8, dtype="float32"), tf32=True), H200).kernels
    assert dict(spec.arguments)["block_m"] > 16


def test_tiny_tiles_agree(emulated, ran, close):
    for m, n, k, turned in [(18, 45, 70, False), (33, 8, 130, True), (5, 40, 16, True)]:
        generator = torch.Generator().manual_seed(m)
        a = torch.randn(3, m, k, generator=generator)
        b = torch.randn((3, n, k) if turned else (3, k, n), generator=generator)
        for dtype in (torch.bfloat16, torch.float32):
            x, y = a.to(dtype), b.to(dtype).mT if turned else b.to(dtype)
            assert "tiny" in tile_ops.explain(tile_ops.matmul, x, y).why
            tolerance = reference.TOLERANCES[str(dtype).removeprefix("torch.")]
            close(ran(tile_ops.matmul, x, y), reference.matmul(x, y), tolerance)
            found = ran(tile_ops.matmul, x[0].mT.contiguous().mT, y[0], activation="silu")
            close(found, reference.matmul(x[0], y[0], activation="silu"), tolerance)


def test_blocks_stay_for_short_sums():
    """Where beginning and storing a tile is all that it takes; one wave of tiles has nothing to overlap."""
    for m, n, k in ((8192, 4096, 16), (8192, 4096, 64), (2800, 11328, 144)):
        ((role, spec),) = configs.plan(problem(m, n, k), H200).kernels
        arguments = dict(spec.arguments)
        assert (role, arguments["block_m"], arguments["block_n"], arguments["staged"]) == ("staying", 128, 256, True)
    assert [role for role, _ in configs.plan(problem(1024, 4096, 16), H200).kernels] == ["product"]
