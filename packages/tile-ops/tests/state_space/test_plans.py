"""Which kernels a scan takes, and how they are compiled."""

from __future__ import annotations

import pytest

from tile_ops.kernel import Target
from tile_ops.state_space.configs import plan_scan
from tile_ops.state_space.problem import Model, ScanProblem
from tile_ops.state_space_backward.configs import plan as plan_gradients

PRODUCTS = {"products", "chunk_state", "chunk_scan", "chunk_gradient", "inputs", "c_factors", "b_factors"}


@pytest.mark.cpu("plans")
@pytest.mark.parametrize("make", [plan_scan, plan_gradients], ids=["forward", "gradients"])
@pytest.mark.parametrize(
    ("kind", "arch"), [("cuda", "sm_90a"), ("cuda", "sm_80"), ("hip", "gfx942"), ("cpu", "x86-64-v3")]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_of_float32_are_three_of_tf32_on_nvidia(make, kind, arch, dtype):
    problem = ScanProblem(Model(dtype, 256, 64, 128, heads_per_group=24), dtype, True, True, False, False, False)
    kernels = dict(make(problem, Target(kind, arch)).kernels)
    found = {role for role, spec in kernels.items() if dict(spec.pass_configs or ()).get("tl.allow_tf32x3")}
    assert found == (PRODUCTS & set(kernels) if kind == "cuda" and dtype == "float32" else set())
