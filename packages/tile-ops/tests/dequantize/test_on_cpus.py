"""What CPUs multiply packed weights with: by few tokens, by pairs of bfloat16, by weights that are rounded."""

from __future__ import annotations

import importlib

import pytest
import torch

import tile_compiler
import tile_ops
import tilelang
from tile_ops.dequantize import api, configs, reference
from tile_ops.dequantize.operands import no_zeros, values
from tile_ops.dequantize.problem import DequantProblem
from tile_ops.dequantize_vectors import configs as vectors
from tile_ops.dequantize_vectors import kernels
from tile_ops.kernel import Target, target_of
from tile_ops.prebuild import ARCHS

from .test_dequant_matmul import arguments, check, random_weight

BF16, AMX = ARCHS["cpu"][2:]


@pytest.mark.cpu("its own kernels")
@pytest.mark.parametrize("arch", ARCHS["cpu"][:3])
@pytest.mark.parametrize(
    ("m", "format", "group", "dtype"),
    [
        (1, "int4", 512, torch.float16),
        (2, "nf4", 32, torch.bfloat16),
        (4, "uint4", 128, torch.bfloat16),
        (3, "uint2", -1, torch.float16),
        (6, "uint1", 64, torch.bfloat16),
        (8, "uint4", 64, torch.float16),
        (12, "nf4", 128, torch.float16),
    ],
)
def test_few_tokens_on_every_level(arch, m, format, group, dtype, close):
    """Whole steps and what is left of a row, groups of several vectors and of less than one, rows of W that fill no tile. With
    AMX they are the kernels of x86-64-v4."""
    if arch not in target_of(torch.empty(1)).runs():
        pytest.skip(f"this machine is no {arch}")
    n, k = 140, 2 * 2048 + 160
    w, x = (
        random_weight(n, k, format, group, dtype),
        torch.randn(m, k, generator=torch.Generator().manual_seed(1)).to(dtype),
    )
    problem = DequantProblem.of(x, w.packed, **arguments(w))
    found = vectors.plan(problem, Target("cpu", arch))
    specs, numbers, target = dict(found.kernels), dict(found.numbers), tilelang.target.Target("cpu", arch)
    shape = [numbers[name] for name in ("vectors", "places", "tokens", "parts", "lanes")]
    first, second = (
        tilelang.compile(getattr(kernels, spec.function)(**dict(spec.arguments)), target=target)
        for spec in specs.values()
    )
    pairs = dict(specs["product"].arguments)["pairs"]
    # Of float16 a token is two numbers of bfloat16, a weight one, which holds those of all formats but nf4.
    assert pairs == (arch == BF16 and (dtype, format) != (torch.float16, "nf4"))
    those = torch.empty(shape, dtype=torch.uint32 if pairs else torch.float32)
    sums, out = torch.empty(numbers["sums"], shape[2], shape[4]), torch.empty(1, m, n, dtype=dtype)
    offset = torch.randn(n).to(dtype)
    first(x, those, sums)
    codes = (w.scales, no_zeros(x.device) if w.zeros is None else w.zeros, values(format, x.device))
    second(those, sums, w.packed.view(torch.uint32), *codes, offset, out)
    expected = reference.dequant_matmul(x, w.packed, **arguments(w), bias=offset)
    close(out[0], expected, reference.TOLERANCES[str(dtype).removeprefix("torch.")])


def test_numbers_that_are_scaled_are_looked_up():
    """Whatever `looked_up` says: a converted code would pass by the table that has the scales."""
    problem = DequantProblem(4, 512, 8192, "uint4", 128, "bfloat16", "bfloat16", True, False)
    said = dict(dict(vectors.plan(problem, Target("cpu", ARCHS["cpu"][1])).kernels)["product"].arguments)
    assert said["scaled"]
    texts = [kernels.product(**{**said, "looked_up": looked_up}).script() for looked_up in (True, False)]
    assert texts[0] == texts[1]


@pytest.mark.cpu("its own kernels")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_infinite_numbers_stay(dtype, close):
    """Where there are no zero points: a number that is cut in two parts, and codes that stand for 0."""
    w, x = random_weight(8, 96, "int4", 32, dtype), torch.ones(3, 96, dtype=dtype)
    x[0, 5], x[1, 7], x[2, 9] = torch.inf, -torch.inf, torch.nan
    found = tile_ops.dequant_matmul(x, w.packed, **arguments(w))
    expected = reference.dequant_matmul(x, w.packed, **arguments(w))
    assert expected.isinf().any()
    torch.testing.assert_close(found.double(), expected.double(), rtol=0, atol=0, equal_nan=True)


def test_few_tokens_by_level():
    """Tokens of the kernel, by pairs or float32, and whether numbers are scaled in a table; None for another way."""

    def few(m, format, group, dtype, arch):
        problem = DequantProblem(m, 512, 8192, format, group, dtype, dtype, format == "uint4", False)
        product = dict(configs.plan(problem, Target("cpu", arch)).kernels)["product"]
        said = dict(product.arguments)
        return (said["tokens"], said["pairs"], said["scaled"]) if product.family == vectors.FAMILY else None

    v3, v4 = ARCHS["cpu"][:2]
    assert [few(m, "uint4", 128, "bfloat16", BF16) for m in (1, 8, 9)] == [(1, True, False), (8, True, False), None]
    assert [few(m, "uint4", 128, "float16", BF16) for m in (7, 11, 13)] == [(8, True, False), (12, True, False), None]
    assert [few(m, "nf4", 128, "float16", BF16) for m in (5, 9, 13)] == [(6, False, False), (10, False, False), None]
    assert [few(m, "uint4", 128, "bfloat16", AMX) for m in (2, 3, 6, 7)] == [
        (2, False, False),
        (3, False, True),
        (6, False, True),
        None,
    ]
    assert [few(m, "uint4", 64, "float16", AMX) for m in (4, 6, 7)] == [(4, False, False), (6, False, False), None]
    assert [few(m, "int4", 32, "float16", AMX) for m in (7, 8, 9)] == [(8, False, False), (8, False, False), None]
    assert [few(m, "nf4", 64, "float16", AMX) for m in (7, 12, 13)] == [(8, False, False), (12, False, False), None]
    assert [few(m, "int4", 128, "bfloat16", v4) for m in (4, 7)] == [(4, False, False), (8, False, False)]
    assert [few(m, "uint4", 128, "bfloat16", v3) for m in (4, 5, 13)] == [(4, False, False), (6, False, False), None]


@pytest.mark.cpu("its own kernels")
@pytest.mark.parametrize("format", ["int4", pytest.param("uint2", marks=pytest.mark.full), "nf4"])
def test_tiles_of_float32(run_as, ran, close, monkeypatch, format):
    """More tokens, decoded to float32: steps, groups and rows of W as above."""
    monkeypatch.setattr(vectors, "plan", lambda *_: None)
    for m, group in ((13, 32), (70, 512), (20, 1024)):
        check(ran, close, m, 140, 2 * 512 + 160, format, group, bias=True)


@pytest.mark.cpu("its own kernels")
@pytest.mark.parametrize("arch", ARCHS["cpu"])
@pytest.mark.parametrize("m", [1, 4, 16])
def test_codes_are_looked_up_in_registers_of_a_cpu(arch, m):
    problem = DequantProblem(m, 512, 8192, "nf4", 128, "float16", "float16", False, False)
    asm = assembly(problem, arch)
    wide = "%zmm" if arch.startswith("x86-64-v4") else "%ymm"
    assert sum("vperm" in line and wide in line for line in asm) >= 8  # each of a word's codes


@pytest.mark.cpu("its own kernels")
@pytest.mark.parametrize(("m", "dtype"), [(1, "float16"), (8, "bfloat16")])
def test_pairs_meet_in_registers(m, dtype):
    """Each look-up gives 32 numbers, which are multiplied as often as x has numbers of bfloat16 for them, and never stored."""
    problem = DequantProblem(m, 512, 8192, "int4", 128, dtype, dtype, False, False)
    loops = [[]]
    for line in assembly(problem, BF16):
        loops.append([]) if line.startswith(".LBB") else loops[-1].append(line)
    loops = [lines for lines in loops if any("vpermw" in line for line in lines)]
    assert loops
    for lines in loops:
        lookups, products = (sum(name in line and "%zmm" in line for line in lines) for name in ("vpermw", "vdpbf16ps"))
        assert products == lookups * m * (2 if dtype == "float16" else 1)
        assert not any("vmovdqu64\t%zmm" in line or ("vmovdqa64\t%zmm" in line and "(" in line) for line in lines)


def assembly(problem, arch):
    """Lines of the product."""
    spec = dict(configs.plan(problem, Target("cpu", arch)).kernels)["product"]
    function = getattr(importlib.import_module(f"tile_ops.{spec.family}.kernels"), spec.function)
    func = function(**dict(spec.arguments))
    return tile_compiler.lower(func, tilelang.target.Target("cpu", arch)).asm().splitlines()


@pytest.mark.cpu("its own kernels")
@pytest.mark.parametrize("registers", [False, True], ids=["vectors", "tiles"])
@pytest.mark.parametrize("format", ["uint4", "int4", "uint1", "int2", "fp4"])
def test_pairs_on_a_cpu(request, registers, format, ran, close):
    """Steps and tiles that are not whole, groups of a word and of several steps, tokens that fill a tile and that do not."""
    with_pairs(request, registers)
    more = ((9, 16, 160, 128), (15, 70, 2144, 1024)) if registers else ()
    for m, n, k, group in ((14, 140, 1184, 128), (16, 130, 1024, 256), (13, 16, 96, -1), *more):
        x, w = torch.zeros(m, k, dtype=torch.float16), random_weight(n, k, format, group, torch.float16)
        _, product = tile_ops.explain(tile_ops.dequant_matmul, x, w.packed, **arguments(w)).kernels
        assert product.spec.function == "product_pairs"
        check(ran, close, m, n, k, format, group, bias=m == 14)


@pytest.mark.cpu("its own kernels")
def test_zeros_that_pairs_take_off_sums_are_near_zero(request):
    """A row of W whose codes all equal its zero points, beside large x that are far from 0: exactly 0 is what it would be."""
    with_pairs(request, False)
    x = (300 * torch.randn(14, 512, generator=torch.Generator().manual_seed(0)) + 1000).half()
    w = random_weight(4, 512, "uint4", 128)
    w.zeros[:, 2] = 5
    w.packed.view(4, -1)[2] = 0x55
    found = tile_ops.dequant_matmul(x, w.packed, **arguments(w), out_dtype=torch.float32)
    (product,) = (
        k for k in tile_ops.explain(tile_ops.dequant_matmul, x, w.packed, **arguments(w)).kernels if k.role == "product"
    )
    assert product.spec.function == "product_pairs"
    assert found[:, 2].abs().max() <= 1e-5 * found.square().mean().sqrt()
    assert found[:, [0, 1, 3]].abs().min() > 0


@pytest.mark.cpu("its own kernels")
@pytest.mark.parametrize(
    ("format", "registers"),
    [
        pytest.param(
            format,
            registers,
            id=f"{format}-{'tiles' if registers else 'vectors'}",
            marks=[pytest.mark.full] if registers and format in ("uint1", "int2") else [],
        )
        for format in ("uint4", "int4", "uint1", "int2", "nf4")
        for registers in (False, True)
    ],
)
def test_rounded_weights_on_a_cpu(request, registers, format, ran, close):
    """The same by weights of x's type: few tokens as rows, more as columns, or as both, of one tile and of two."""
    with_pairs(request, registers)
    shapes = (
        (9, 140, 1184, 32),
        (12, 16, 1024, 256),
        (19, 140, 96, -1),
        (39, 270, 1024, 64),
        (41, 16, 1024, 64),
    )
    shapes += ((230, 20, 2144, 1024), (260, 16, 96, 32), *([(7, 140, 1184, 32)] if registers else []))
    for m, n, k, group in shapes:
        x, w = torch.zeros(m, k, dtype=torch.bfloat16), random_weight(n, k, format, group, torch.bfloat16)
        (product,) = tile_ops.explain(tile_ops.dequant_matmul, x, w.packed, **arguments(w)).kernels
        assert product.spec.function == "product_rounded"
        rows = {9: 12, 12: 12, 19: 4, 39: 8, 41: 0}.get(m, 0)
        assert dict(product.spec.arguments)["rows"] == (0 if registers else rows)
        check(ran, close, m, n, k, format, group, torch.bfloat16, bias=m in (19, 39, 41), out_dtype=torch.float32)


@pytest.mark.cpu("its own kernels")
@pytest.mark.parametrize("format", ["uint4", "int4", "uint1", "int2", "nf4", "mxfp4"])
def test_split_weights_on_a_cpu(request, format, ran, close):
    """As sums of two of bfloat16: steps, tiles and groups that are not whole, whole rows, tokens of one tile and of two."""
    with_pairs(request, True)
    shapes = ((17, 140, 1184, 32), (31, 64, 96, -1), (40, 530, 1024, 64), (260, 20, 2144, 1024), (100, 16, 160, 128))
    for m, n, k, group in shapes:
        group = 32 if format == "mxfp4" else group
        x, w = torch.zeros(m, k, dtype=torch.float16), random_weight(n, k, format, group, torch.float16)
        kernels = tile_ops.explain(tile_ops.dequant_matmul, x, w.packed, **arguments(w)).kernels
        assert [kernel.spec.function for kernel in kernels] == ["split", "product_split"]
        check(ran, close, m, n, k, format, group, bias=m in (17, 40), out_dtype=torch.float32 if m == 31 else None)


@pytest.mark.cpu("its own kernels")
def test_split_weights_have_more_than_eleven_bits(request):
    """A weight is not rounded to float16 on its way: of one that is hardly above a number of it, all is there."""
    with_pairs(request, True)
    w = random_weight(16, 64, "nf4", 64)
    x = torch.zeros(20, 64, dtype=torch.float16)
    for token in range(20):
        x[token, 3 * token] = 1 + token / 1024
    found = tile_ops.dequant_matmul(x, w.packed, **arguments(w), out_dtype=torch.float32)
    expected = x.double() @ reference.dequantize(w.packed, **arguments(w)).double().T
    assert ((found - expected).abs() <= expected.abs() * 2**-15 + 1e-9).all()


@pytest.mark.cpu("its own kernels")
def test_infinite_numbers_stay_in_split_weights(request):
    with_pairs(request, True)
    w, x = random_weight(40, 96, "nf4", 32), torch.ones(20, 96, dtype=torch.float16)
    x[0, 5], x[1, 7], x[2, 9] = torch.inf, -torch.inf, torch.nan
    w.scales[1, 3] = torch.inf
    found = tile_ops.dequant_matmul(x, w.packed, **arguments(w))
    expected = reference.dequant_matmul(x, w.packed, **arguments(w))
    numbers = expected.isfinite()
    assert expected.isinf().any()
    assert expected.isnan().any()
    assert numbers.any()
    assert torch.equal(numbers, found.isfinite())
    torch.testing.assert_close(found[~numbers].double(), expected[~numbers], rtol=0, atol=0, equal_nan=True)


def with_pairs(request, registers):
    """As a CPU that multiplies pairs of bfloat16, by tile registers or without them."""
    if registers:
        request.getfixturevalue("in_registers")(api.DEQUANT_MATMUL, api._dequant_matmul)
    elif "bf16" not in target_of(torch.empty(1)).arch or "amx" in target_of(torch.empty(1)).arch:
        pytest.skip("this machine multiplies no pairs of bfloat16, or has tile registers")


def test_what_is_held_exactly_goes_by_pairs():
    """float16, which is two of bfloat16, by tables that it holds; groups of 32 where they are worth it; no bytes."""

    def planned(m, format, group=128, dtype="float16", arch=BF16):
        problem = DequantProblem(m, 512, 8192, format, group, dtype, "float32", False, False)
        return dict(configs.plan(problem, Target("cpu", arch)).kernels).get("product")

    def paired(*call, **options):
        product = planned(*call, **options)
        return product is not None and product.function == "product_pairs"

    assert [paired(m, "uint4") for m in (12, 13, 16, 17)] == [False, True, True, False]
    assert paired(14, "fp4")
    assert not paired(14, "nf4")
    assert not paired(14, "bnb_fp4")
    assert not paired(16, "int4", 32)
    assert not paired(14, "uint4", arch="x86-64-v4")
    assert not paired(16, "int4", 0, "int8")
    assert not paired(16, "uint4", 128, "bfloat16")
    assert [paired(m, "int4", 32, arch=AMX) for m in (8, 9, 16, 17)] == [False, True, True, False]
    assert [paired(16, "uint1", group, arch=AMX) for group in (64, 128, 0)] == [False, True, True], "words of a group"
    split = [planned(m, name, group, arch=AMX) for m, name, group in (
        (13, "nf4", 128), (17, "uint4", 128), (16, "mxfp4", 32), (16, "uint1", 64), (2000, "nf4", 64)
    )]  # fmt: skip
    assert {spec.function for spec in split} == {"product_split"}
    assert not paired(16, "uint4", 128, "bfloat16", AMX)
    names = [planned(m, "nf4", 64, "bfloat16") for m in (8, 9, 1023, 1024)]
    assert [spec and spec.function for spec in names] == ["product", "product_rounded", "product_rounded", None]


def test_tiles_of_rounded_weights():
    """Tokens as columns and as rows, rows of W, and codes of a row in a step."""

    def tile(m, arch=BF16):
        problem = DequantProblem(m, 4096, 4096, "uint4", 128, "bfloat16", "bfloat16", False, False)
        found = dict(dict(configs.plan(problem, Target("cpu", arch)).kernels)["product"].arguments)
        return found["columns"], found["rows"], found["block_N"], found["block_W"] * 8

    few = [tile(m) for m in (9, 13, 17, 21)]
    assert few == [(0, 12, 128, 1024), (16, 0, 64, 1024), (16, 4, 64, 1024), (16, 8, 64, 1024)]
    assert [tile(m) for m in (57, 1000)] == [(64, 0, 256, 512), (256, 0, 256, 512)]
    tiles = [tile(m, AMX) for m in (8, 20, 48, 49, 65)]
    assert tiles == [(8, 0, 256, 512), (20, 0, 256, 512), (48, 0, 512, 256), (56, 0, 512, 256), (96, 0, 512, 256)]
