"""RMSNorm agrees with its reference on every way to run it, and is a torch operator."""

from __future__ import annotations

import re

import pytest
import torch

import tile_ops
from tile_ops.errors import WrongDtype, WrongShape, WrongValue
from tile_ops.kernel import Target
from tile_ops.normalization import configs, reference
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
    for rows, columns in ((18, 48), (35, 128), (18, 129), (33, 1000), (3, 16500)):
        x, weight = operands((rows, columns), dtype)
        (kernel,) = tile_ops.explain(tile_ops.rms_norm, x, weight, activation=activation).kernels
        cached = columns > 128 or (dtype, activation) == (torch.float32, None)
        assert kernel.spec.function == ("rms_norm_cached" if cached else "rms_norm")
        found = ran(tile_ops.rms_norm, x, weight, activation=activation)
        expected = reference.rms_norm(x, weight, activation=activation)
        close(found, expected, reference.TOLERANCES[str(dtype).removeprefix("torch.")])
        assert torch.equal(found[1:], tile_ops.rms_norm(x[1:], weight, activation=activation))


@pytest.mark.cpu("kernels of CPUs")
@pytest.mark.parametrize("norm", ["rms_norm", "layer_norm"])
def test_rows_that_are_no_whole_vectors_share_a_tile_on_a_cpu(ran, close, norm):
    """In float32; of few rows each is a tile, with the same bits."""
    operator, expected = getattr(tile_ops, norm), getattr(reference, norm)
    for rows, columns in ((70, 43), (40, 127), (17, 33)):
        x, weight = operands((rows, columns), torch.float32)
        more = (weight,) if norm == "rms_norm" else (weight, weight + 1)
        (kernel,) = tile_ops.explain(operator, x, *more).kernels
        assert kernel.spec.function == norm
        assert dict(kernel.spec.arguments)["block_rows"] > 1
        found = ran(operator, x, *more)
        close(found, expected(x, *more), reference.TOLERANCES["float32"])
        assert torch.equal(found[3:5], operator(x[3:5], *more))


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
