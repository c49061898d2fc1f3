"""RMSNorm agrees with its reference on every way to run it, and is a torch operator."""

from __future__ import annotations

import re

import pytest
import torch

import tile_ops
from tile_ops.errors import WrongDtype, WrongShape, WrongValue
from tile_ops.kernel import Target, target_of
from tile_ops.normalization import configs, reference
from tile_ops.normalization.configs import plan
from tile_ops.normalization.problem import NormProblem


def operands(shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = 3 * torch.randn(shape, generator=generator)
    return x.to(dtype), torch.randn(shape[-1:], generator=generator).to(dtype)


@pytest.mark.parametrize("shape", [(3, 2, 40), (5, 160), (2, 300)])
@pytest.mark.parametrize("activation", [None, "silu"])
def test_agrees_with_the_reference(way, ran, close, shape, activation):
    x, weight = operands(shape, torch.float16)
    found = ran(tile_ops.rms_norm, x, weight, activation=activation)
    close(found, reference.rms_norm(x, weight, activation=activation), reference.TOLERANCES["float16"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_element_types(way, ran, close, dtype):
    x, weight = operands((4, 96), dtype)
    found = ran(tile_ops.rms_norm, x, weight, eps=1e-3)
    close(found, reference.rms_norm(x, weight, eps=1e-3), reference.TOLERANCES[str(dtype).removeprefix("torch.")])


def test_rows_too_long_for_registers(way, ran, close):
    x, weight = operands((3, 8704), torch.float16)
    close(ran(tile_ops.rms_norm, x, weight), reference.rms_norm(x, weight), reference.TOLERANCES["float16"])


def test_pieces_of_a_row_waste_little():
    """Elements of a block's rows on a GPU, and pieces, for rows of so many."""
    found = {}
    for columns in (32, 40, 96, 160, 320, 640, 1024, 8192):
        plan = configs.plan(NormProblem(1, columns, "float16", "silu"), Target("hip", "gfx942"))
        arguments = dict(plan.kernels[0][1].arguments)
        found[columns] = (arguments["block_columns"], arguments["pieces"])
    assert found == {
        32: (32, 1),
        40: (64, 1),
        96: (96, 3),
        160: (256, 4),
        320: (320, 5),
        640: (640, 5),
        1024: (1024, 4),
        8192: (8192, 4),
    }


@pytest.mark.parametrize(("dtype", "lanes", "rows"), [(torch.float16, 4, 32), (torch.float32, 8, 16)])
def test_rows_of_known_lengths_are_one_stretch_of_memory(run_as, ran, close, dtype, lanes, rows):
    """On CUDA; several blocks, the last with fewer rows. Threads that add up a row may hold vectors of others."""
    run_as("cuda -arch=sm_80", any_gpu=True)
    x, weight = operands((2 * rows + 3, 160), dtype)
    plan = tile_ops.explain(tile_ops.rms_norm, x, weight, activation="silu")
    arguments = dict(plan.kernels[0].spec.arguments)
    assert (arguments["columns"], arguments["lanes"]) == (160, lanes)
    found = ran(tile_ops.rms_norm, x, weight, activation="silu")
    tolerance = reference.TOLERANCES[str(dtype).removeprefix("torch.")]
    close(found, reference.rms_norm(x, weight, activation="silu"), tolerance)
    assert torch.equal(found[rows + 1 :], tile_ops.rms_norm(x[rows + 1 :], weight, activation="silu"))


@pytest.mark.cpu("kernels of CPUs")
@pytest.mark.parametrize("activation", [None, "silu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_read_from_a_cache_on_a_cpu(ran, close, dtype, activation):
    """Blocks of 16 rows, the last with fewer, and of one; rows of less than a piece, of pieces, of pieces and a rest."""
    for rows, columns in ((18, 7), (18, 48), (20, 64), (35, 128), (18, 129), (33, 1000), (33, 1024), (3, 16500)):
        x, weight = operands((rows, columns), dtype)
        (kernel,) = tile_ops.explain(tile_ops.rms_norm, x, weight, activation=activation).kernels
        masks = dtype == torch.float32 or "v4" in target_of(x).arch
        tiles = columns <= 128 if not masks else columns == 64 and activation is not None
        assert kernel.spec.function == ("rms_norm" if tiles else "rms_norm_cached")
        found = ran(tile_ops.rms_norm, x, weight, activation=activation)
        expected = reference.rms_norm(x, weight, activation=activation)
        close(found, expected, reference.TOLERANCES[str(dtype).removeprefix("torch.")])
        assert torch.equal(found[1:], tile_ops.rms_norm(x[1:], weight, activation=activation))


def test_rows_of_a_cpu_are_in_tiles_or_by_pieces_that_are_all_shipped():
    """Pieces of a vector where what is left of it is one more, else of several; tiles of rows that fill them, with SiLU."""

    def of(columns, dtype="float32", activation=None, level="x86-64-v4"):
        (spec,) = (
            spec for _, spec in plan(NormProblem(2000, columns, dtype, activation), Target("cpu", level)).kernels
        )
        assert spec in shipped_there[level]
        found = dict(spec.arguments)
        return found["block_columns"], found["block_rows"], spec.function == "rms_norm"

    levels = ("x86-64-v3", "x86-64-v4")
    shipped_there = {level: set(configs.shipped(Target("cpu", level))) for level in levels}
    by_vectors, by_pieces = (16, 16, False), (64, 16, False)
    assert [of(n) for n in (1, 20, 64, 1023, 1024)] == [*[by_vectors] * 4, by_pieces]
    assert [of(n, "bfloat16") for n in (20, 128)] == [by_vectors] * 2
    assert [of(n, activation="silu") for n in (20, 28, 29, 47, 64, 65)] == [
        *[by_vectors] * 2,
        (32, 32, True),
        by_vectors,
        (64, 16, True),
        by_vectors,
    ]
    old = {n: of(n, level="x86-64-v3") for n in (20, 32, 255, 256, 257)}
    assert list(old.values()) == [(8, 16, False), (32, 16, False), (8, 16, False), *[(32, 16, False)] * 2]
    assert [of(n, "float16", level="x86-64-v3")[2] for n in (128, 129)] == [True, False]


@pytest.mark.cpu("kernels of CPUs")
def test_rows_that_are_no_whole_vectors_share_a_tile_on_a_cpu(ran, close):
    """In float32; of few rows each is a tile, with the same bits."""
    for rows, columns in ((70, 43), (40, 127), (17, 33)):
        x, weight = operands((rows, columns), torch.float32)
        (kernel,) = tile_ops.explain(tile_ops.layer_norm, x, weight, weight + 1).kernels
        assert kernel.spec.function == "layer_norm"
        assert dict(kernel.spec.arguments)["block_rows"] > 1
        found = ran(tile_ops.layer_norm, x, weight, weight + 1)
        close(found, reference.layer_norm(x, weight, weight + 1), reference.TOLERANCES["float32"])
        assert torch.equal(found[3:5], tile_ops.layer_norm(x[3:5], weight, weight + 1))


def test_squares_may_exceed_float16(ran, close):
    x, weight = operands((4, 64), torch.float16)
    x = 1e4 * x.clamp(-2, 2)
    close(ran(tile_ops.rms_norm, x, weight), reference.rms_norm(x, weight), reference.TOLERANCES["float16"])


def test_strided_operands(ran, close):
    x, weight = operands((6, 8, 64), torch.float32)
    for strided in (x.transpose(0, 1), x[0].T.contiguous().T):
        close(
            ran(tile_ops.rms_norm, strided, weight),
            reference.rms_norm(strided, weight),
            reference.TOLERANCES["float32"],
        )


def test_empty():
    assert tile_ops.rms_norm(torch.empty(0, 64), torch.ones(64)).shape == (0, 64)
    assert tile_ops.rms_norm(torch.empty(3, 0), torch.ones(0)).shape == (3, 0)


def test_is_a_torch_operator():
    arguments = (*operands((4, 64), torch.float16), 1e-6, "silu")
    torch.library.opcheck(torch.ops.tile_ops.rms_norm.default, arguments)


def test_compiles_as_one_graph(close):
    x, weight = operands((4, 64), torch.float32)
    compiled = torch.compile(lambda x: 2 * tile_ops.rms_norm(x, weight), fullgraph=True, backend="aot_eager")
    close(compiled(x), 2 * reference.rms_norm(x, weight), reference.TOLERANCES["float32"])


def test_autocast(close, device):
    x, weight = operands((4, 64), torch.float32)
    with torch.autocast(device, torch.bfloat16):
        found = tile_ops.rms_norm(x, weight)
    assert found.dtype == torch.bfloat16
    close(found, reference.rms_norm(x, weight), reference.TOLERANCES["bfloat16"])


@pytest.mark.parametrize(
    ("x", "weight", "options", "error", "text"),
    [
        (torch.ones(2, 64), torch.ones(63), {}, WrongShape, "weight has shape (63,), x has 64 channels"),
        (torch.ones(2, 64), torch.ones(64).half(), {}, WrongDtype, "x is torch.float32, weight torch.float16"),
        (torch.ones(2, 64).int(), torch.ones(64).int(), {}, WrongDtype, "must be one of float16"),
        (torch.ones(2, 64), torch.ones(64), {"activation": "gelu"}, WrongValue, "activation is 'gelu'"),
        (torch.ones(2, 64), torch.ones(64), {"eps": -1.0}, WrongValue, "eps is -1.0"),
        (torch.tensor(1.0), torch.ones(1), {}, WrongShape, "x has no dimension"),
    ],
)
def test_refuses(x, weight, options, error, text):
    with pytest.raises(error, match=re.escape(text)):
        tile_ops.rms_norm(x, weight, **options)
