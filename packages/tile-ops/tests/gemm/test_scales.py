"""Products of float8 and int8 with scales of tensors, rows and blocks."""

from __future__ import annotations

import re

import pytest
import torch

import tile_ops
from tile_ops.errors import WrongDtype, WrongShape
from tile_ops.gemm import reference

E4M3 = torch.float8_e4m3fn


def test_rows_of_matrices_that_are_apart(ran, close, tolerance):
    """Each row has its own scale, wherever the rows lie."""
    a, b = torch.randn(3, 5, 70).to(torch.float8_e4m3fn)[:, 1:], torch.randn(70, 32).to(torch.float8_e4m3fn)
    rows, columns = torch.rand(3, 4), torch.rand(32)
    found = ran(tile_ops.matmul, a, b, scale_a=rows, scale_b=columns, out_dtype=torch.float32)
    close(found, (a.double() @ b.double()) * rows.double()[..., None] * columns.double(), tolerance)


def operands(m, n, k, dtype):
    generator = torch.Generator().manual_seed(0)
    if dtype == torch.int8:
        a, b = (torch.randint(-128, 128, s, generator=generator, dtype=dtype) for s in ((m, k), (n, k)))
    else:
        a, b = (torch.randn(s, generator=generator).to(dtype) for s in ((m, k), (n, k)))
    return a, b.mT


@pytest.fixture
def tolerance(device):
    """Hopper's tensor cores keep fewer bits of a sum of float8 products, which the emulator does not play."""
    return reference.TOLERANCES["float32"] if device == "cpu" else 3e-3


@pytest.mark.parametrize("dtype", [E4M3, pytest.param(torch.int8, marks=pytest.mark.full)])
@pytest.mark.parametrize("target", ["cuda -arch=sm_90a", pytest.param("cuda -arch=sm_80", marks=pytest.mark.full)])
def test_bytes_in_any_order_and_of_sizes_that_no_bulk_copy_takes(ran, close, tolerance, run_as, target, dtype):
    """Tensor cores load no bytes across k as they lie: their tiles have longer rows, and must fit the shared memory."""
    run_as(target)
    a, b = operands(70, 40, 90, dtype)
    for left, right in ((a, b.contiguous()), (a.mT.contiguous().mT, b)):
        found = ran(tile_ops.matmul, left, right, out_dtype=torch.int32 if dtype == torch.int8 else torch.float32)
        close(found, a.double() @ b.double(), tolerance)


def scales(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(1)) + 0.5


@pytest.mark.parametrize("dtype", [E4M3, torch.int8])
@pytest.mark.parametrize("shapes", [((), ()), ((20,), (24,)), ((20, 1), (1, 24)), ((1,), (24,))])
def test_scales_of_tensors_and_rows(ran, close, tolerance, dtype, shapes):
    a, b = operands(20, 24, 64, dtype)
    scale_a, scale_b = scales(*shapes[0]), scales(*shapes[1])
    options = {"scale_a": scale_a, "scale_b": scale_b, "bias": torch.linspace(-2, 2, 24), "activation": "relu"}
    found = ran(tile_ops.matmul, a, b, out_dtype=torch.float32, **options)
    close(found, reference.matmul(a, b, **options), tolerance)


@pytest.mark.parametrize("size", [(20, 24, 256), (20, 150, 300)])
def test_scales_of_blocks(ran, close, tolerance, size):
    m, n, k = size
    a, b = operands(m, n, k, E4M3)
    deep, wide = -(-k // 128), -(-n // 128)
    options = {"scale_a": scales(m, deep), "scale_b": scales(deep, wide)}
    found = ran(tile_ops.matmul, a, b, out_dtype=torch.float32, **options)
    close(found, reference.matmul(a, b, **options), tolerance)


def test_leading_dimensions_of_a(ran, close):
    a, b = operands(20, 24, 64, E4M3)
    a, scale_a, scale_b = a.view(4, 5, 64), scales(4, 5), scales(24)
    found = ran(tile_ops.matmul, a, b, scale_a=scale_a, scale_b=scale_b)
    assert found.dtype == torch.bfloat16
    close(found, reference.matmul(a, b, scale_a=scale_a, scale_b=scale_b), reference.TOLERANCES["bfloat16"])


@pytest.mark.full
def test_blocks_on_hopper(run_as, ran, close, tolerance):
    run_as("cuda -arch=sm_90a")
    a, b = operands(128, 128, 256, E4M3)
    options = {"scale_a": scales(128, 2), "scale_b": scales(2, 1)}
    found = ran(tile_ops.matmul, a, b, out_dtype=torch.float32, **options)
    close(found, reference.matmul(a, b, **options), tolerance)


def test_is_a_torch_operator():
    a, b = operands(20, 24, 64, torch.int8)
    arguments = (a, b, scales(20), scales(24), None, None, None)
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(torch.ops.tile_ops.scaled_matmul.default, arguments, test_utils=checks)


def test_autocast_leaves_float8_alone(close, tolerance, device):
    a, b = operands(20, 24, 64, E4M3)
    with torch.autocast(device, torch.bfloat16):
        found = tile_ops.matmul(a, b, out_dtype=torch.float32)
    close(found, reference.matmul(a, b), tolerance)


F8 = operands(20, 24, 256, E4M3)
I8 = operands(20, 24, 256, torch.int8)


@pytest.mark.parametrize(
    ("pair", "scale_a", "scale_b", "error", "text"),
    [
        (F8, scales(20), None, WrongShape, "one of scale_a and scale_b is missing"),
        (F8, scales(19), scales(24), WrongShape, "the scales have shapes (19,) and (24,)"),
        (F8, scales(20, 2), scales(24), WrongShape, "expected one number, (20,) and (24,), or (20, 2) and (2, 1)"),
        (F8, scales(20).double(), scales(24), WrongDtype, "expected float32"),
        (I8, scales(20, 2), scales(2, 1), WrongDtype, "scales of blocks are for float8"),
        ((F8[0].float(), F8[1].float()), scales(20), scales(24), WrongDtype, "scales are for float8 and int8"),
        ((F8[0], F8[1][None]), scales(20), scales(24), WrongShape, "with scales b is one matrix"),
    ],
)
def test_refuses(pair, scale_a, scale_b, error, text):
    with pytest.raises(error, match=re.escape(text)):
        tile_ops.matmul(*pair, scale_a=scale_a, scale_b=scale_b)
