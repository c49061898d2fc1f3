"""Products of tiles that lie in tensors: without copies where they fit, the same where they leave the tensor."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tile_compiler.compile import lower
from tilelang.target import Target

AMX = Target("cpu", "x86-64-v4+bf16+vnni+amx")
BLOCK_M, BLOCK_N, BLOCK_K = 20, 32, 48


def by_panels(dtype: str = "float32"):
    """C = A @ B for B in panels (steps, panels, BLOCK_K, BLOCK_N), C with a pitch of its own."""
    m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")
    steps, panels, pitch = T.dynamic("steps"), T.dynamic("panels"), T.dynamic("pitch")

    @T.prim_func
    def main(
        A: T.Tensor((m, k), dtype),
        P: T.Tensor((steps, panels, BLOCK_K, BLOCK_N), dtype),
        C: T.StridedTensor((m, n), (pitch, 1), "float32"),
    ):
        with T.Kernel(T.ceildiv(m, BLOCK_M)) as block:
            a = T.alloc_shared((BLOCK_M, BLOCK_K), dtype)
            row = block * BLOCK_M
            for step in T.serial(steps):
                T.copy(A[row, step * BLOCK_K], a)
                for panel in T.serial(panels):
                    at = panel * BLOCK_N
                    if (row + BLOCK_M <= m) & (at + BLOCK_N <= n):
                        T.gemm(
                            a,
                            P[step, panel, 0:BLOCK_K, 0:BLOCK_N],
                            C[row : row + BLOCK_M, at : at + BLOCK_N],
                            clear_accum=step == 0,
                        )
                    else:
                        T.gemm(
                            a,
                            P[step, panel, 0:BLOCK_K, 0:BLOCK_N],
                            C[row : row + BLOCK_M, at : at + BLOCK_N],
                            clear_accum=step == 0,
                        )

    return main


@pytest.fixture(scope="module")
def kernel():
    return tilelang.compile(by_panels(), target="cpu")


@pytest.mark.parametrize(("m", "n", "k"), [(40, 64, 96), (41, 65, 97), (19, 31, 1), (60, 32, 480)])
def test_blocks_that_fit_and_blocks_that_do_not(kernel, m, n, k):
    rng = np.random.default_rng(m)
    a, b = rng.standard_normal((m, k), "float32"), rng.standard_normal((k, n), "float32")
    steps, panels = -(-k // BLOCK_K), -(-n // BLOCK_N)
    padded = np.zeros((steps * BLOCK_K, panels * BLOCK_N), "float32")
    padded[:k, :n] = b
    packed = np.ascontiguousarray(padded.reshape(steps, BLOCK_K, panels, BLOCK_N).transpose(0, 2, 1, 3))
    whole = np.full((m, n + 3), 7, "float32")
    kernel(a, packed, whole[:, :n])
    exact = a.astype("float64") @ b.astype("float64")
    np.testing.assert_allclose(whole[:, :n], exact, rtol=0, atol=1e-5 * k**0.5)
    assert (whole[:, n:] == 7).all()


def calls(dtype: str) -> list[str]:
    return re.findall(r"tl\.(gemm|tiles|interleave)\.[^\"]+\", (.+)\)", lower(by_panels(dtype), AMX).trace.text())


@pytest.fixture(scope="module")
def inside() -> list[str]:
    """The arguments of the kernels of blocks that fit."""
    found = [args for what, args in calls("float32") if what == "gemm" and "T.address_of(C[" in args]
    assert found
    return found


def test_nothing_of_a_block_that_fits_is_copied(inside):
    assert all("T.address_of(P[" in args for args in inside)


def test_the_next_panel_and_the_lines_of_c_are_fetched(inside):
    assert all(args.count("T.address_of(C[") == 2 and "panel + 1" in args for args in inside)


def test_operands_that_are_interleaved_are_copied():
    assert all("T.address_of(C[" not in args for what, args in calls("bfloat16") if what == "tiles")
