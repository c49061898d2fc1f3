"""`tl.enable_fast_math`: float32 functions and quotients become the device header's approximations, on request only."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilelang
import tilelang.language as T


@T.prim_func
def mixed(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
    with T.Kernel(1, threads=128):
        for i in T.Parallel(256):
            B[i] = T.exp2(A[i]) / (A[i] + 3.0) + T.sigmoid(A[i]) * T.log(A[i] + 1.0)


@pytest.mark.parametrize("target", ["cuda -arch=sm_90a", "hip -arch=gfx942"])
@pytest.mark.parametrize(
    ("options", "fast"),
    [
        ({}, False),
        ({"tl.enable_fast_math": True}, True),
        ({"tl.enable_fast_math": True, "tl.disable_fast_math": True}, False),
    ],
)
def test_approximations_on_request(target: str, options: dict[str, Any], fast: bool) -> None:
    kernel = tilelang.compile(mixed, target=target, execution="emulate", pass_configs=options)
    source = kernel.get_kernel_source()
    for name in ("exp2", "divide", "reciprocal", "exp", "log"):
        assert (f"tl::fast::{name}(" in source) == fast
    a, b = torch.rand(256), torch.zeros(256)
    kernel(a, b)
    x = a.double()
    expected = torch.exp2(x) / (x + 3) + torch.sigmoid(x) * torch.log(x + 1)
    torch.testing.assert_close(b.double(), expected, rtol=1e-5, atol=1e-6)


def test_the_approximations_compile() -> None:
    kernel = tilelang.compile(mixed, target="cuda -arch=sm_90a", pass_configs={"tl.enable_fast_math": True})
    assert "kernel.cubin" in {b.file for b in kernel.artifact.manifest.binaries}
