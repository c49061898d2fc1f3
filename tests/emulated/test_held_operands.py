"""Operands that a loop does not change stay in registers where products wait for shared memory: same results, and the report says
what stays, or why nothing does."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.layout import make_linear_layout

CUDA = "cuda -arch=sm_90a"
DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float32": torch.float32,
    "int8": torch.int8,
}


def weighted(
    tokens: int,
    dim: int = 512,
    *,
    dtype: str = "float16",
    block: int = 64,
    stages: int = 2,
    rows: int = 64,
    policy: Any = T.GemmWarpPolicy.FullCol,
    key_last: bool = True,
    rewritten: bool = False,
    switched: bool = False,
    order: Any = None,
    laid_out: bool = False,
) -> Any:
    """O[i] = sum over tiles t of (t + 1) (Q K_t^T), Q of 64 rows, which no step changes; `rewritten`: but for its first element,
    by itself. `key_last`: K is stored with k as the last dimension. `switched`: every other product is left out."""
    parts = tokens // block
    of_k = (tokens, dim) if key_last else (dim, tokens)
    tile = (block, dim) if key_last else (dim, block)
    result = "int32" if dtype == "int8" else "float32"

    @T.prim_func
    def main(
        Q: T.Tensor((rows, dim), dtype),  # type: ignore[valid-type]
        K: T.Tensor(of_k, dtype),  # type: ignore[valid-type]
        O: T.Tensor((rows, block), result),  # type: ignore[valid-type]
    ):
        with T.Kernel(1, threads=256):
            q = T.alloc_shared((rows, dim), dtype)
            k = T.alloc_shared(tile, dtype)
            s = T.alloc_fragment((rows, block), result)
            o = T.alloc_fragment((rows, block), result)
            if laid_out:
                T.annotate_layout({k: make_linear_layout(tile)})
            T.copy(Q, q)
            T.clear(o)
            for t in T.Pipelined(parts, num_stages=stages, **(order or {})):
                T.copy(K[t * block, 0] if key_last else K[0, t * block], k)
                T.clear(s)
                if switched:
                    if t % 2 == 0:
                        T.gemm(q, k, s, transpose_B=key_last, policy=policy)
                else:
                    T.gemm(q, k, s, transpose_B=key_last, policy=policy)
                for i, j in T.Parallel(rows, block):
                    o[i, j] += s[i, j] * (t + 1)
                if rewritten:
                    for i in T.Parallel(1):
                        q[i, 0] = q[i, 0]
            T.copy(o, O)

    return main


def run(func: Any, tokens: int, dim: int, dtype: str, block: int, key_last: bool = True, switched: bool = False) -> Any:
    """The kernel, after its result in the emulator was compared with float64."""
    rows = 64
    kernel = tilelang.compile(
        func, target=CUDA, execution="emulate", pass_configs={"tl.allow_tf32": True, "tl.disable_split_sums": True}
    )
    if dtype == "int8":
        q, k = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((rows, dim), (tokens, dim)))
    else:
        q, k = (torch.randn(shape).to(DTYPES[dtype]) for shape in ((rows, dim), (tokens, dim)))
    out = torch.full((rows, block), -77, dtype=torch.int32 if dtype == "int8" else torch.float32)
    kernel(q, k if key_last else k.T.contiguous(), out)
    parts = k.double().reshape(tokens // block, block, dim)
    factors = torch.tensor(
        [0.0 if switched and t % 2 else t + 1.0 for t in range(tokens // block)], dtype=torch.float64
    )
    want = torch.einsum("mk,tnk,t->mn", q.double(), parts, factors)
    tolerance = {"int8": 0.0, "float32": 2e-3}.get(dtype, 1e-5)  # tf32 rounds its operands; others are exact
    assert float((out.double() - want).norm() / want.norm()) <= tolerance
    return kernel


def said(kernel: Any) -> str:
    return "\n".join(
        note["text"] for note in kernel.report()["notes"] if "columns" in note["text"] or "held" in note["text"]
    )


@pytest.mark.parametrize(
    ("dtype", "dim", "block", "key_last"),
    [
        ("float16", 512, 64, True),
        ("bfloat16", 544, 48, True),
        ("float8_e4m3fn", 1024, 64, True),
        ("int8", 1024, 64, True),
        ("float32", 256, 64, True),
    ],
)
def test_operands_that_are_held_whole(dtype: str, dim: int, block: int, key_last: bool) -> None:
    func = weighted(4 * block, dim, dtype=dtype, block=block, key_last=key_last)
    kernel = run(func, 4 * block, dim, dtype, block, key_last)
    assert f"{dim} of {dim} columns of q stay in {dim * DTYPES[dtype].itemsize // 8} registers" in said(kernel)
    products = re.findall(r"tl::wgmma_m64\w+", kernel.get_kernel_source())
    assert {"_rs" in name for name in products} == {True}  # none reads q from shared memory


def test_a_product_under_a_condition() -> None:
    kernel = run(weighted(256, switched=True), 256, 512, "float16", 64, switched=True)
    assert "512 of 512 columns of q stay" in said(kernel)


@pytest.mark.parametrize(
    "changes",
    [
        {"rewritten": True},  # each step writes q
        {"dim": 128},  # two blocks fit on a multiprocessor
        {"block": 128, "dim": 256},  # instructions of 64 columns do not wait for shared memory
        {"block": 128, "dim": 256, "rows": 128, "policy": T.GemmWarpPolicy.FullRow},
        {"key_last": False},  # parts of 32 columns begin inside of a swizzled line: no wgmma
        {"order": {"order": [0, 1, 2], "stage": [0, 1, 1]}, "stages": 0},  # by hand
    ],
)
def test_operands_that_stay_where_they_are(changes: dict[str, Any]) -> None:
    kernel = tilelang.compile(weighted(512, **changes), target=CUDA, pass_configs={"tl.disable_split_sums": True})
    assert "_held" not in kernel.get_kernel_source()


def test_layouts_of_the_user() -> None:
    func = weighted(512, laid_out=True)
    kernel = tilelang.compile(func, target=CUDA, pass_configs={"tl.disable_split_sums": True})
    assert "_held" not in kernel.get_kernel_source()


def test_the_switch() -> None:
    kernel = tilelang.compile(weighted(256), target=CUDA, pass_configs={"tl.disable_held_operands": True})
    assert "_held" not in kernel.get_kernel_source()


def attended(tokens: int, dim: int = 512, block: int = 64, others: int = 0) -> Any:
    """O = sum over tiles t of (Q K_t^T / dim) K_t in tiles of 64 rows; `others`: so many columns of float32 beside these."""

    @T.prim_func
    def main(
        Q: T.Tensor((64, dim), "float16"),  # type: ignore[valid-type]
        K: T.Tensor((tokens, dim), "float16"),  # type: ignore[valid-type]
        O: T.Tensor((64, dim), "float32"),  # type: ignore[valid-type]
        X: T.Tensor((64, max(others, 2)), "float32"),  # type: ignore[valid-type]
    ):
        with T.Kernel(1, threads=256):
            q = T.alloc_shared((64, dim), "float16")
            k = T.alloc_shared((block, dim), "float16")
            weights = T.alloc_shared((64, block), "float16")
            s = T.alloc_fragment((64, block), "float32")
            o = T.alloc_fragment((64, dim), "float32")
            x = T.alloc_fragment((64, max(others, 2)), "float32")
            T.copy(Q, q)
            T.copy(X, x)
            T.clear(o)
            for t in T.Pipelined(T.ceildiv(tokens, block), num_stages=2):
                T.copy(K[t * block, 0], k)
                T.clear(s)
                T.gemm(q, k, s, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                for i, j in T.Parallel(64, block):
                    s[i, j] *= 1 / dim
                T.copy(s, weights)
                T.gemm(weights, k, o, policy=T.GemmWarpPolicy.FullCol)
                for i, j in T.Parallel(64, max(others, 2)):
                    x[i, j] += 1
            T.copy(o, O)
            T.copy(x, X)

    return main


def test_as_much_as_registers_are_left() -> None:
    """O takes 128 registers of a thread and S 16; 80 of the 224 are left, which are five chunks of 64 columns."""
    tokens = 200  # the last step has 8 of 64
    kernel = tilelang.compile(attended(tokens), target=CUDA, execution="emulate")
    assert "256 of 512 columns of q stay in 64 registers" in said(kernel)
    q, k = torch.randn(64, 512).half(), torch.randn(tokens, 512).half()
    out, x = torch.full((64, 512), -77.0), torch.zeros(64, 2)
    kernel(q, k, out, x)
    want = (q.double() @ k.double().T / 512).half().double() @ k.double()
    assert float((out.double() - want).norm() / want.norm()) <= 1e-3
    assert bool((x == 4).all())


def test_no_registers_are_left() -> None:
    kernel = tilelang.compile(attended(256, others=320), target=CUDA, pass_configs={"tl.disable_staying_blocks": True})
    assert "no registers are left to hold any of it" in "\n".join(n["text"] for n in kernel.report()["notes"])
    assert "_held" not in kernel.get_kernel_source()
