"""One row and few by a transposed matrix that caches do not hold: what a CPU's plan takes, and kernels that fetch ahead."""

from __future__ import annotations

import pytest
import torch

import tilelang
from tile_ops.gemm import configs, few_rows, kernels, reference
from tile_ops.gemm.problem import GemmProblem
from tile_ops.kernel import Target
from tile_ops.prebuild import ARCHS

V3, V4, BF16, AMX = (Target("cpu", arch) for arch in ARCHS["cpu"])


def planned(target, m, n, k, dtype, transpose_b=True):
    """The function of a product's first kernel, and its elements that are fetched ahead, if it has such."""
    flags = {"transpose_a": False, "transpose_b": transpose_b, "batch_a": "each", "batch_b": "each", "bias": None}
    problem = GemmProblem(batch=1, m=m, n=n, k=k, dtype=dtype, out_dtype=dtype, activation=None, tf32=False, **flags)
    spec = configs.plan(problem, target).kernels[0][1]
    return spec.function, dict(spec.arguments).get("ahead")


def test_what_is_read_from_memory_is_fetched_ahead():
    large, small = (4096, 4096), (2048, 4096)
    assert planned(BF16, 1, *large, "bfloat16") == ("gemv_rows", 1024)
    assert planned(BF16, 2, *large, "bfloat16") == ("gemv_rows", 1024)
    assert planned(BF16, 3, *large, "bfloat16")[0] == "multiply_few"
    assert planned(V4, 4, *large, "float16") == ("gemv_rows", 1024)
    assert planned(V4, 5, *large, "float16")[0] == "multiply_few"
    assert planned(V4, 2, *large, "float32") == ("gemv_rows", 256)
    assert planned(BF16, 1, *small, "bfloat16")[0] == "multiply_few"
    assert planned(BF16, 1, 1024, 4096, "float32") == ("gemv_rows", 0)
    assert planned(AMX, 1, *large, "float16") == ("gemv_rows", 0)
    assert planned(AMX, 1, *large, "float32") == ("gemv_rows", 0)
    assert planned(V3, 2, *large, "float16")[0] == "multiply_few"
    assert planned(BF16, 1, *large, "float32", transpose_b=False)[0] != "gemv_rows"


@pytest.mark.cpu("launches a kernel itself")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(("rows", "m", "n", "k"), [(1, 1, 43, 1000), (2, 2, 16, 64), (4, 3, 9, 1217)])
def test_what_is_fetched_may_not_be_there(close, dtype, rows, m, n, k):
    """Rows of B, and elements of them, that a block or a step would fetch beyond the end: nothing of them counts."""
    name = str(dtype).removeprefix("torch.")
    ahead = few_rows.AHEAD[name] // dtype.itemsize
    tile = {"rows": rows, "block_n": 8, "block_k": 64, "lanes": 16, "ahead": ahead}
    kernel = tilelang.compile(kernels.gemv_rows(name, name, name, **tile), target="cpu")
    generator = torch.Generator().manual_seed(k)
    a, b, bias = (torch.randn(shape, generator=generator).to(dtype) for shape in ((m, k), (n, k), (n,)))
    out = torch.full((1, m, n), torch.nan, dtype=dtype)
    kernel(a[None], b[None], bias, out, 0)
    close(out[0], reference.matmul(a, b.T, bias=bias), reference.TOLERANCES[name])


@pytest.mark.cpu("launches a kernel itself")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("k", [1, 7, 8, 15, 17, 40, 48, 63, 100, 129])
def test_the_ends_of_rows_fill_no_register(close, dtype, lanes, k):
    """What is read a second time with them, an infinite number among it, counts once; what lies behind a row is not read."""
    name = str(dtype).removeprefix("torch.")
    generator = torch.Generator().manual_seed(k)
    for rows, m, n, steps in ((1, 1, 13, 4), (4, 3, 8, 2)):
        tile = {"rows": rows, "block_n": 8, "block_k": steps * lanes, "lanes": lanes, "ahead": 0}
        kernel = tilelang.compile(kernels.gemv_rows(name, name, name, **tile), target="cpu")
        room = [torch.randn(extent, k + 5, generator=generator).to(dtype) for extent in (m, n)]
        for x in room:
            x[:, k:] = torch.nan
        a, b = (x[:, :k] for x in room)
        a[0, max(0, k - lanes)] = torch.inf  # the first that is read with the last ones
        b[2, k // 2] = -torch.inf
        out = torch.full((1, m, n), torch.nan, dtype=dtype)
        kernel(a[None], b[None], torch.empty(0, dtype=dtype), out, 0)
        expected = reference.matmul(a, b.T)
        infinite = ~expected.isfinite()
        assert infinite[0].all()
        assert infinite[:, 2].all()
        assert torch.equal(out[0][infinite].double().nan_to_num(nan=7.0), expected[infinite].nan_to_num(nan=7.0))
        close(out[0][~infinite], expected[~infinite], reference.TOLERANCES[name])
