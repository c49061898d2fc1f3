"""On Hopper the kernels of a call, but its first one, are launched before the one in front has ended, and wait for it."""

from __future__ import annotations

import pytest
import torch

import tile_ops
from tile_ops.kernel import Target
from tile_ops.kernel.kernels import compile_kernel


def halves(*shape):
    return torch.randn(shape, dtype=torch.float16)


def of_attention(tokens, keys):
    q, k = halves(1, tokens, 1, 64), halves(1, keys, 1, 64)
    return tile_ops.flash_attention, (q, k, k)


def of_its_gradients():
    q, k, lse = halves(1, 700, 1, 64), halves(1, 700, 1, 64), torch.zeros(1, 1, 700)
    return tile_ops.flash_attention_backward, (q, q, k, k, q, lse)


@pytest.mark.parametrize(
    ("call", "roles"),
    [
        (of_attention(1, 600), ["split", "combine"]),
        (of_attention(5, 1200), ["forward", "join"]),
        (of_its_gradients(), ["prepare", "queries", "keys", "add_queries", "add_keys"]),
        ((tile_ops.matmul, (halves(1, 8192), halves(8192, 33))), ["parts", "combine"]),
    ],
    ids=["one query", "few queries", "gradients", "one row"],
)
def test_each_kernel_waits_but_the_first_one(run_as, call, roles):
    function, operands = call
    run_as("cuda -arch=sm_90a")
    kernels = {kernel.role: kernel.spec for kernel in tile_ops.explain(function, *operands).kernels}
    assert [role for role in kernels if role != "sinks"] == roles
    for role in roles[1:]:
        manifest = compile_kernel(kernels[role], Target("cuda", "sm_90a", "emulate")).artifact.manifest
        assert all(launch.pdl for variant in manifest.variants for launch in variant.launches), role
