"""Hints from templates: they come from the model, fit the device, and the function that they describe is a product."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

import tilelang
from tile_runtime import registry
from tilelang import carver
from tilelang.autotuner.model import estimate, impossible
from tilelang.carver.arch import CDNA, CUDA, auto_infer_current_arch, driver
from tilelang.carver.roller.rasterization import NoRasterization, Rasterization2DRow
from tilelang.carver.template import MatmulTemplate
from tilelang.errors import InvalidArgument, UnknownTarget
from tilelang.ir.tile_work import tile_work

HOPPER = CUDA("cuda -arch=sm_90a")


def test_devices():
    assert (HOPPER.compute_max_core, HOPPER.warp_size, HOPPER.smem_cap) == (132, 32, 227 << 10)
    assert CUDA("cuda -arch=sm_80").compute_max_core == 108
    amd = CDNA("hip -mcpu=gfx942")
    assert (amd.compute_max_core, amd.warp_size) == (304, 64)
    assert auto_infer_current_arch().target.kind in ("cuda", "hip")
    for make, wrong in ((CUDA, "hip -mcpu=gfx942"), (CDNA, "cuda -arch=sm_80"), (CUDA, "cpu")):
        with pytest.raises(UnknownTarget, match=r"no (cuda|hip) device to carve tiles for"):
            make(wrong)


def test_multiprocessors_of_the_device_or_of_the_chip_that_is_compiled_for(monkeypatch):
    device: Any = registry.device("cuda")
    monkeypatch.setattr(type(device), "is_available", lambda self: False)
    assert driver.get_num_sms() == CUDA().compute_max_core
    monkeypatch.setattr(type(device), "is_available", lambda self: True)
    monkeypatch.setattr(type(device), "multiprocessors", lambda self, ordinal: 7 + ordinal)
    assert driver.get_num_sms(2) == 9


@pytest.mark.parametrize(
    "arch", [HOPPER, CUDA("cuda -arch=sm_80"), CDNA("hip -mcpu=gfx942")], ids=["hopper", "ampere", "cdna"]
)
def test_hints_are_ordered_and_fit(arch):
    template = MatmulTemplate(M=4096, N=4096, K=4096).with_arch(arch)
    hints = template.recommend_hints(topk=20)
    assert len(set(hints)) == len(hints) == 20
    assert [h.seconds for h in hints] == sorted(h.seconds for h in hints)
    assert template.recommend_hints(topk=5) == hints[:5]
    for hint in hints:
        assert hint.block[0] % hint.warp[0] == hint.block[1] % hint.warp[1] == 0
        warps = hint.block[0] // hint.warp[0] * (hint.block[1] // hint.warp[1])
        assert warps * arch.warp_size == hint.threads in (128, 256)
        operands = sum(hint.block) * hint.rstep[0] * 2 * hint.pipeline_stage
        assert operands <= arch.smem_cap
        assert isinstance(hint.rasterization_plan, Rasterization2DRow)
    assert math.prod(hints[0].block) >= 128 * 128


def test_small_products_get_small_tiles():
    """A block for each multiprocessor matters more than the reuse of operands."""
    few = MatmulTemplate(M=256, N=256, K=4096).with_arch(HOPPER).recommend_hints(1)[0]
    many = MatmulTemplate(M=8192, N=8192, K=4096).with_arch(HOPPER).recommend_hints(1)[0]
    assert math.prod(few.block) < math.prod(many.block)
    assert few.rasterization_plan is NoRasterization


@pytest.mark.parametrize("transposed", [(False, True), (True, False)])
def test_the_model_is_asked_about_the_kernel_that_the_function_is(transposed):
    """What hints are ordered by is what is read off the traced function."""
    template = MatmulTemplate(512, 768, 256, "bfloat16", "float32", "float32", *transposed).with_arch(HOPPER)
    for hint in template.recommend_hints(3):
        work = template.work(hint.block, hint.rstep[0], hint.pipeline_stage, hint.threads)
        read = tile_work(template.function(hint))
        assert read.tensor_bytes == work.tensor_bytes
        assert [dataclasses.asdict(a) for a in read.launches] == [dataclasses.asdict(a) for a in work.launches]
        assert impossible(read, HOPPER.machine) is None
        guess = estimate(read, HOPPER.machine)
        assert guess is not None
        assert guess.seconds == hint.seconds


@pytest.mark.parametrize("transposed", [(False, True), (True, False)])
def test_the_function_is_the_product(transposed):
    """At sizes that no tile divides."""
    template = carver.MatmulTemplate(70, 50, 90, "float16", "float32", "float32", *transposed).with_arch(HOPPER)
    func = template.equivalent_function()
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((70, 90), (90, 50)))
    given = [a.T.copy() if transposed[0] else a, b.T.copy() if transposed[1] else b]
    c = np.full((70, 50), np.nan, np.float32)
    tilelang.compile(func, target="cpu")(*given, c)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-3, atol=1e-3)


def test_what_cannot_be_tiled():
    with pytest.raises(InvalidArgument, match="impossible sizes"):
        MatmulTemplate(0, 64, 64).with_arch(HOPPER).recommend_hints()
    with pytest.raises(InvalidArgument, match=r"(?s)no tiles for this product.*float64"):
        MatmulTemplate(64, 64, 64, in_dtype="float64").with_arch(HOPPER).recommend_hints()
