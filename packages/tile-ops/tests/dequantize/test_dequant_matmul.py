"""Products with packed weights agree with the reference on every way to run them, and are torch operators."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
import torch

import tile_ops
import tilelang
from tile_ops.dequantize import configs, kernels, reference
from tile_ops.dequantize.formats import FORMATS, unpack
from tile_ops.dequantize.problem import DequantProblem
from tile_ops.dequantize.weights import QuantizedWeight
from tile_ops.errors import WrongDtype, WrongShape, WrongStride, WrongValue
from tile_ops.kernel import KernelSpec, Target, resolve, target_of


def test_autocast_leaves_scales_of_eight_bits(device):
    w = tile_ops.quantize(torch.randn(64, 64).bfloat16(), format="mxfp4", group_size=32)
    x = torch.randn(2, 64)
    with torch.autocast(device, torch.bfloat16):
        found = w.matmul(x)
    assert torch.equal(found, w.matmul(x.bfloat16()))


def random_weight(n, k, format, group_size, dtype=torch.float16, seed=0):
    """Codes, scales and zero points at random: every code occurs in every place."""
    generator = torch.Generator().manual_seed(seed)
    kind = FORMATS[format]
    group = k if group_size == -1 else group_size
    shape = (-(-k // group), n)
    codes = torch.randint(0, 2**kind.bits, (n, k), generator=generator)
    scales = torch.rand(shape, generator=generator) + 0.5
    scales = scales.log2().round().exp2().to(torch.float8_e8m0fnu) if kind.scale else scales.to(dtype)
    zeros = torch.randint(0, 2**kind.bits + 1, shape, generator=generator).to(torch.uint8) if kind.zeros else None
    return QuantizedWeight(tile_ops.pack(codes, kind.bits), scales, zeros, format, group_size)


def arguments(w):
    return {"scales": w.scales, "zeros": w.zeros, "format": w.format, "group_size": w.group_size}


def check(ran, close, m, n, k, format="int4", group_size=128, dtype=torch.float16, bias=False, **options):
    w = random_weight(n, k, format, group_size, dtype)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(m, k, generator=generator).to(dtype)
    offset = torch.randn(n, generator=generator).to(dtype) if bias else None
    found = ran(tile_ops.dequant_matmul, x, w.packed, **arguments(w), bias=offset, **options)
    expected = reference.dequant_matmul(x, w.packed, **arguments(w), bias=offset)
    close(found, expected, reference.TOLERANCES[str(dtype).removeprefix("torch.")])


@pytest.mark.amd_in_full
def test_one_token(way, ran, close):
    for n, k in ((16, 2048), (46, 96))[: 2 if way in ("cpu", "cuda") else 1]:  # other shapes are other compilations
        check(ran, close, 1, n, k, "uint4", 32, bias=True)


@pytest.mark.amd_in_full
def test_several_tokens(way, ran, close):
    check(ran, close, 3, 144, 352, "uint4", bias=True)


@pytest.mark.full
def test_whole_tiles(way, ran, close):
    check(ran, close, 16, 128, 256, "uint4", bias=True)


def test_many_tokens_of_bfloat16(ran, close):
    for m, n, k in ((64, 128, 128), (50, 40, 160)):
        check(ran, close, m, n, k, "int4", 32, torch.bfloat16, out_dtype=torch.float32)


@pytest.mark.amd_in_full
def test_tokens_enough_to_decode_first(way, ran, close, monkeypatch):
    """In panels of 256 rows, the last of which is smaller: two or three. Also where the bias has another type than the result."""
    monkeypatch.setattr(configs, "MANY", 20)
    monkeypatch.setattr(configs, "PANEL", dict.fromkeys(configs.PANEL, 256 * 2 * 96))
    n = 516 if way in ("cpu", "cuda") else 260  # not emulated
    check(ran, close, 20, n, 96, "uint4", 32, torch.bfloat16, bias=True)
    x, w = torch.zeros(20, 96).bfloat16(), random_weight(n, 96, "uint4", 32, torch.bfloat16)
    explained = tile_ops.explain(tile_ops.dequant_matmul, x, w.packed, **arguments(w))
    assert explained.kernels[0].spec.function == "decode"
    if n > 260:
        check(ran, close, 21, 260, 96, "nf4", 64, torch.bfloat16, bias=True, out_dtype=torch.float32)
        check(ran, close, 22, 260, 96, "int2", -1)


def test_tiles_fit_the_shared_memory_of_amd(ran, close, run_as):
    run_as("hip -mcpu=gfx942")
    check(ran, close, 100, 40, 160, "uint4", 32)


def test_ampere(ran, close, run_as):
    run_as("cuda -arch=sm_80")
    check(ran, close, 16, 128, 256, "nf4", 64)


def test_splits_of_k_are_added(ran, close, run_as):
    run_as("cuda -arch=sm_90a")
    check(ran, close, 8, 40, 4096, bias=True)
    x, w = torch.zeros(8, 4096).half(), random_weight(40, 4096, "int4", 128)
    assert len(tile_ops.explain(tile_ops.dequant_matmul, x, w.packed, **arguments(w)).kernels) == 2


def test_splits_fill_the_chip():
    """Rows of W that leave a last round of blocks half empty are split, unless the parts are more to add than it saves."""
    splits = {}
    for m, n, k in ((1, 16384, 16384), (1, 28672, 8192), (64, 28672, 8192), (1, 1024, 8192), (1, 64, 512)):
        problem = DequantProblem(m, n, k, "uint4", 128, "float16", "float16", True, False)
        splits[m, n] = dict(configs.plan(problem, Target("cuda", "sm_90a")).numbers)["splits"]
    assert splits == {(1, 16384): 1, (1, 28672): 2, (64, 28672): 1, (1, 1024): 8, (1, 64): 1}


@pytest.mark.parametrize("dealt", [False, True])
def test_hopper_reads_by_tma_and_multiplies_by_warpgroups(dealt):
    """Weights and scales are brought by TMA and decoded in the registers that wgmma reads, with nothing spilled and
    nothing serialized."""
    specs = [s for s in configs.shipped(Target("cuda", "sm_90a")) if s.function == "product"]
    spec = next(s for s in specs if dict(s.arguments)["dealt"] == dealt)
    func = kernels.product(**dict(spec.arguments))
    report = tilelang.lower(func, target="cuda -arch=sm_90a").artifact.report
    kernel = report["kernels"][0]
    assert kernel["spills"] == kernel["stack"] == 0
    used = [i.partition("<")[0] for o in kernel["operators"] for i in o["instructions"]]
    assert used.count("tma_load") == 4  # x, weights, scales, zero points
    assert "wgmma_m64k16_f32_f16_rs" in used
    assert not [n for n in report["notes"] if "serialized" in n["text"]]


@pytest.mark.cpu("launches a kernel itself")
def test_parts_are_added_in_their_order(close):
    """What the second kernel of split products does, on the CPU."""
    parts = torch.randn(3, 2, 20, generator=torch.Generator().manual_seed(0))
    bias, out = torch.arange(20).half(), torch.empty(2, 20).half()
    spec = KernelSpec.of("dequantize", "sum_splits", dtype="float16", out_dtype="float16")
    resolve(spec, target_of(parts))(parts, bias, out)
    close(out, parts.double().sum(0) + bias, 1e-3)
    resolve(spec, target_of(parts))(parts, bias[:0], out)
    close(out, parts.double().sum(0), 1e-3)


@pytest.mark.parametrize("format", FORMATS)
def test_formats(ran, close, format):
    check(ran, close, 3, 20, 160, format, 32)


@pytest.mark.parametrize("format", ["int2", "uint1", "nf4", "mxfp4"])
def test_formats_on_matrix_instructions(ran, close, format):
    check(ran, close, 20, 20, 160, format, 32)


@pytest.mark.parametrize("format", ["int4", "int2"])
def test_int8_activations(ran, close, format):
    for m, n, k in ((8, 64, 128), (20, 20, 352)):
        w = random_weight(n, k, format, -1, torch.float32)
        x = torch.randint(-128, 128, (m, k), dtype=torch.int8, generator=torch.Generator().manual_seed(0))
        bias = torch.arange(n).float()
        found = ran(tile_ops.dequant_matmul, x, w.packed, **arguments(w), bias=bias)
        assert found.dtype == torch.float32
        close(found, reference.dequant_matmul(x, w.packed, **arguments(w), bias=bias), 1e-6)


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("format", ["int4", "int2", "int1"])
@pytest.mark.parametrize("m", [1, 3, 7, 13])
def test_few_tokens_of_int8_on_a_cpu(format, m):
    """More columns than a step and rows than a tile, no multiples; the largest sum of all."""
    n, k = 70, 1376
    w = random_weight(n, k, format, -1, torch.float32)
    w.packed[1] = {"int2": 0b10101010, "int4": 0x88, "int1": 255}[format]  # the least codes
    w.scales.fill_(0.5)
    x = torch.randint(-128, 128, (m, k), dtype=torch.int8, generator=torch.Generator().manual_seed(0))
    x[-1] = -128
    problem = DequantProblem(m, n, k, format, 0, "int8", "float32", False, False)
    (_, spec), *_ = configs.plan(problem, target_of(x)).kernels
    assert dict(spec.arguments)["by_planes"]
    found = torch.empty(m, n)
    resolve(spec, target_of(x))(x, w.packed, w.scales, torch.empty(0), found)
    assert torch.equal(found.double(), reference.dequant_matmul(x, w.packed, **arguments(w)))


IN_FULL = [pytest.param(*case, marks=pytest.mark.full) for case in ((1, "int4"), (8, "int2"), (1, "int1"))]


@pytest.mark.parametrize(("rows", "format"), [(1, "int2"), *IN_FULL])
def test_one_token_of_int8(ran, monkeypatch, run_as, rows, format):
    """Words that fill no tile, x from the middle of a word on, and the largest sum of all: exact, and by dp4a."""
    monkeypatch.setitem(configs.ONE_INT8, 0, {**configs.ONE_INT8[0], "block_N": rows})  # unrolled: 1 compiles fast
    run_as("cuda -arch=sm_90a")
    n, k = 2 * rows + 2, 352
    w = random_weight(n, k, format, -1, torch.float32)
    w.packed[1] = {"int2": 0b10101010, "int4": 0x88, "int1": 255}[format]  # the least codes
    w.scales.fill_(0.5)
    for x in (
        torch.randint(-128, 128, (k + 3,), dtype=torch.int8, generator=torch.Generator().manual_seed(0))[3:],
        torch.full((1, k), -128, dtype=torch.int8),
    ):
        found = ran(tile_ops.dequant_matmul, x, w.packed, **arguments(w))
        assert torch.equal(found.double(), reference.dequant_matmul(x, w.packed, **arguments(w)))
    (kernel,) = tile_ops.explain(tile_ops.dequant_matmul, x, w.packed, **arguments(w)).kernels
    assert kernel.spec.function == "one_int8"


def test_one_token_of_int8_by_target():
    """Words that a block reads are as many as a row has; other targets have no dp4a and take the matrix kernel."""
    chosen = {}
    for k, kind, arch in (
        (8192, "cuda", "sm_80"),
        (8160, "cuda", "sm_90a"),
        (8192, "hip", "gfx942"),
        (8192, "cpu", ""),
    ):
        problem = DequantProblem(1, 64, k, "int2", 0, "int8", "float32", False, False)
        spec = dict(configs.plan(problem, Target(kind, arch)).kernels)["product"]
        chosen[k, kind] = spec.function, dict(spec.arguments).get("block_W")
    assert chosen == {
        (8192, "cuda"): ("one_int8", 512),
        (8160, "cuda"): ("one_int8", 128),
        (8192, "hip"): ("product_int8", None),
        (8192, "cpu"): ("product_int8", None),
    }


@pytest.mark.cpu("launches a kernel itself")
def test_every_copy_of_a_table_has_all_pairs(close):
    """Tables of pairs, as Hopper takes them, on the CPU; rows and columns use each copy."""
    problem = DequantProblem(8, 32, 128, "nf4", 64, "float16", "float32", False, True)
    hopper = dict(dict(configs.plan(problem, Target("cuda", "sm_90a")).kernels)["product"].arguments)
    assert hopper["copies"] == 32
    w, x = random_weight(32, 128, "nf4", 64), torch.randn(8, 128, generator=torch.Generator().manual_seed(1)).half()
    spec = KernelSpec.of("dequantize", "product", None, **{**hopper, "block_N": 16, "block_K": 64, "stages": 1})
    bias, out = torch.arange(32).half(), torch.empty(1, 8, 32)
    unused = torch.zeros(1, 1, dtype=torch.uint8)
    resolve(spec, target_of(x))(x, w.packed, w.scales, unused, torch.tensor(FORMATS["nf4"].table), bias, out)
    close(out[0], reference.dequant_matmul(x, w.packed, **arguments(w), bias=bias), reference.TOLERANCES["float16"])


def test_tokens_are_dealt_where_that_pays():
    """For 64 tokens of large matrices of four-bit integers on the architecture where it was measured."""

    def roles(m, format, arch, n=28672):
        problem = DequantProblem(m, n, 8192, format, 128, "float16", "float16", format == "uint4", False)
        return [role for role, _ in configs.plan(problem, Target("cuda", arch)).kernels]

    assert "deal" in roles(64, "uint4", "sm_90a")
    assert "deal" in roles(64, "int4", "sm_90a")
    other = ((33, "uint4", "sm_90a"), (65, "uint4", "sm_90a"), (64, "nf4", "sm_90a"), (64, "uint4", "sm_80"))
    assert not any("deal" in roles(*case) for case in other)
    assert "deal" not in roles(64, "uint4", "sm_90a", 4096)


def test_hopper_looks_up_pairs(ran, close, run_as):
    run_as("cuda -arch=sm_90a")
    check(ran, close, 3, 72, 352, "nf4", 64)


OTHERS = [pytest.param(20, "int4", dtype, marks=pytest.mark.full) for dtype in (torch.float16, torch.bfloat16)]


@pytest.mark.parametrize(("n", "format", "dtype"), [(80, "uint4", torch.float16), *OTHERS])
def test_codes_of_whole_words(ran, close, run_as, monkeypatch, n, format, dtype):
    """Tokens from the middle of a word on are put in the order of the codes, also where k fills no step; zero points beyond
    all codes; rows of W by TMA, and as few as it does not take."""
    run_as("cuda -arch=sm_90a")
    monkeypatch.setitem(configs.DEALT_BYTES, ("sm_90a", 8), 0)
    monkeypatch.setitem(configs.TILES, ("sm_90a", 8), configs.Tile(64, 64, 2))  # emulated faster than the large one
    m, k = 8, 160
    w = random_weight(n, k, format, 32, dtype)
    if w.zeros is not None:
        w.zeros[1] = 127
    x = torch.randn(m * k + 1, generator=torch.Generator().manual_seed(1)).to(dtype)[1:].view(m, k)
    found = ran(tile_ops.dequant_matmul, x, w.packed, **arguments(w))
    close(found, reference.dequant_matmul(x, w.packed, **arguments(w)), reference.TOLERANCES[str(dtype)[6:]])
    explained = tile_ops.explain(tile_ops.dequant_matmul, x, w.packed, **arguments(w))
    assert [kernel.role for kernel in explained.kernels] == ["deal", "product"]


@pytest.mark.parametrize(("m", "group_size"), [(1, -1), (20, -1), (1, 256)])
def test_group_sizes(ran, close, m, group_size):
    check(ran, close, m, 20, 608, "uint4", group_size, torch.bfloat16)


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_packing_is_undone(bits):
    codes = torch.randint(0, 2**bits, (3, 64))
    packed = tile_ops.pack(codes, bits)
    assert packed.shape == (3, 64 * bits // 8)
    assert torch.equal(unpack(packed, bits).long(), codes)
    assert int(packed[0, 0]) == sum(int(c) << i * bits for i, c in enumerate(codes[0, : 8 // bits]))


@pytest.mark.parametrize("kind", [torch.int8, torch.uint8, torch.int32, torch.bool, torch.uint16], ids=str)
def test_codes_of_any_integers_are_packed(kind):
    codes = torch.randint(0, 2, (3, 64))
    assert torch.equal(tile_ops.pack(codes.to(kind), 1), tile_ops.pack(codes, 1))
    assert torch.equal(tile_ops.pack(torch.tensor([-1, 1000]), 4), torch.tensor([0x8F], dtype=torch.uint8))


@pytest.mark.parametrize("format", ["uint4", "mxfp4"])
def test_a_weight_is_saved_and_loaded(format, tmp_path):
    w = tile_ops.quantize(torch.randn(8, 64).half(), format=format, group_size=32)
    torch.save({"layer": w}, tmp_path / "weight.pt")
    found = torch.load(tmp_path / "weight.pt", weights_only=True)["layer"]
    assert (found.format, found.group_size, found.order) == (format, 32, None)
    x = torch.randn(2, 64).half()
    assert torch.equal(found.matmul(x), w.matmul(x))


@pytest.mark.parametrize("format", FORMATS)
def test_quantized_weights_are_near(format):
    weight = torch.randn(8, 128, generator=torch.Generator().manual_seed(0))
    w = tile_ops.quantize(weight.half(), format=format, group_size=32)
    near = reference.dequantize(w.packed, **arguments(w))
    kind = FORMATS[format]
    values = sorted(set(kind.values()))
    # Half of the widest gap between two values, and what rounding of the scale costs (mxfp4: up to a factor of 2).
    gap = max(b - a for a, b in pairwise(values)) / 2 + (values[-1] - values[0]) * 1e-3
    step = w.scales.double().T.repeat_interleave(32, 1)
    clipped = 1 if kind.signed else 0  # the largest number of two's complement is missing
    assert ((near - weight.half().double()).abs() <= (gap + clipped) * step).all()


def test_strided_and_stacked_operands(ran, close):
    w = random_weight(16, 64, "int4", 32)
    x = torch.randn(2, 64, 3).half().transpose(1, 2)
    found = ran(tile_ops.dequant_matmul, x, w.packed, **arguments(w))
    close(found, reference.dequant_matmul(x, w.packed, **arguments(w)), reference.TOLERANCES["float16"])
    assert torch.equal(w.matmul(x), found)


def test_empty():
    w = random_weight(16, 64, "int4", 32)
    assert tile_ops.dequant_matmul(torch.empty(0, 64).half(), w.packed, **arguments(w)).shape == (0, 16)
    none = QuantizedWeight(torch.empty(4, 0, dtype=torch.uint8), torch.empty(0, 4).half(), None, "int4", 32)
    bias = torch.arange(4).half()
    assert torch.equal(none.matmul(torch.empty(2, 0).half(), bias=bias), bias.expand(2, 4))
    assert torch.equal(none.matmul(torch.empty(2, 0).half()), torch.zeros(2, 4).half())


def test_is_a_torch_operator():
    w = random_weight(16, 64, "uint4", 32)
    x = torch.randn(3, 64).half()
    given = (x, w.packed, w.scales, w.zeros, "uint4", 32, torch.zeros(16).half(), torch.float32)
    torch.library.opcheck(torch.ops.tile_ops.dequant_matmul.default, given)


def test_compiles_as_one_graph(close):
    w = random_weight(16, 64, "int4", 32)
    x = torch.randn(3, 64).half()
    compiled = torch.compile(lambda x: 2 * w.matmul(x), fullgraph=True, backend="aot_eager")
    close(compiled(x), 2 * reference.dequant_matmul(x, w.packed, **arguments(w)), reference.TOLERANCES["float16"])


def test_autocast(close, device):
    w = random_weight(16, 64, "int4", 32, torch.float32)
    x = torch.randn(3, 64)
    with torch.autocast(device, torch.bfloat16):
        found = w.matmul(x)
    assert found.dtype == torch.bfloat16
    close(found, reference.dequant_matmul(x, w.packed, **arguments(w)), reference.TOLERANCES["bfloat16"])


def test_autocast_leaves_scales_beside_bytes(ran, device):
    w = random_weight(16, 64, "int4", -1, torch.float32)
    x, bias = torch.randint(-128, 128, (3, 64), dtype=torch.int8), torch.randn(16)
    expected = w.matmul(x, bias=bias)
    with torch.autocast(device, torch.bfloat16):
        found = ran(tile_ops.dequant_matmul, x, w.packed, **arguments(w), bias=bias)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


X, W = torch.ones(2, 64).half(), torch.zeros(8, 32, dtype=torch.uint8)
S, Z = torch.ones(2, 8).half(), torch.zeros(2, 8, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"format": "int3"}, WrongValue, "format is 'int3'"),
        ({"group_size": 48}, WrongValue, "group_size is 48"),
        ({"x": X.float()}, WrongDtype, "x is torch.float32"),
        ({"x": X[:, :32]}, WrongShape, "x has 32 columns, weight 32 bytes of 2 codes"),
        ({"x": X[:, :16], "weight": W[:, :8].contiguous()}, WrongShape, "a multiple of 32"),
        ({"weight": W.int()}, WrongDtype, "weight is torch.int32"),
        ({"weight": W[0]}, WrongShape, "weight (32,)"),
        ({"weight": torch.zeros(32, 8, dtype=torch.uint8).T}, WrongStride, "weight is not contiguous"),
        ({"weight": torch.zeros(257, dtype=torch.uint8)[1:].view(8, 32)}, WrongStride, "no multiple of 4 bytes"),
        ({"scales": S[:1]}, WrongShape, "scales has shape (1, 8); expected (k / group_size, n) = (2, 8)"),
        ({"scales": S.bfloat16()}, WrongDtype, "scales are torch.bfloat16; expected float16"),
        ({"zeros": Z}, WrongValue, "zeros are given for int4"),
        ({"zeros": Z.int(), "format": "uint4"}, WrongDtype, "zeros are torch.int32"),
        ({"zeros": Z[:, :4], "format": "uint4"}, WrongShape, "zeros has shape (2, 4)"),
        ({"x": X.to(torch.int8)}, WrongValue, "group_size is 32 and x int8"),
        ({"x": X.to(torch.int8), "format": "nf4", "group_size": -1}, WrongValue, "format is nf4 and x int8"),
        (
            {"x": torch.zeros(1, 1 << 17, dtype=torch.int8), "weight": torch.zeros(8, 1 << 16, dtype=torch.uint8)}
            | {"scales": torch.ones(1, 8), "group_size": -1},
            WrongShape,
            "x is int8 with 131072 columns; expected less than 131072",
        ),
        ({"bias": torch.ones(4).half()}, WrongShape, "bias has shape (4,)"),
        ({"bias": torch.ones(8)}, WrongDtype, "bias is torch.float32"),
        ({"out_dtype": torch.int32}, WrongDtype, "out_dtype is torch.int32"),
    ],
)
def test_refuses(changed, error, text):
    given = {"x": X, "weight": W, "scales": S, "format": "int4", "group_size": 32, **changed}
    with pytest.raises(error, match=re.escape(text)):
        tile_ops.dequant_matmul(given.pop("x"), given.pop("weight"), **given)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: tile_ops.pack(torch.zeros(8, 24).int(), 3), WrongValue, "pack: bits is 3; expected one of (1, 2, 4)"),
        (lambda: tile_ops.pack(torch.zeros(8, 24), 4), WrongDtype, "pack: codes are torch.float32; expected integers"),
        (lambda: tile_ops.pack(torch.zeros(8, 25).int(), 4), WrongShape, "codes have shape (8, 25); expected (..., k)"),
        (lambda: tile_ops.pack(torch.zeros(()).int(), 4), WrongShape, "codes have shape ()"),
        (lambda: quantized(W, 32), WrongDtype, "quantize: weight is torch.uint8; expected one of float16"),
        (lambda: quantized(W.double(), 32), WrongDtype, "float32: weight.half()"),
        (lambda: quantized(W.half(), 48), WrongValue, "quantize: group_size is 48; expected -1 (whole rows) or one of"),
        (lambda: quantized(W.half(), 0), WrongValue, "group_size is 0"),
    ],
)
def test_refuses_what_no_product_takes(call, error, text):
    with pytest.raises(error, match=re.escape(text)):
        call()


def quantized(weight, group_size):
    return tile_ops.quantize(weight, format="int4", group_size=group_size)
