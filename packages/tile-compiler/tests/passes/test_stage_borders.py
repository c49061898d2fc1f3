"""A pass that leaves behind what it promises to remove is found where it ran."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tvm import ir
from tvm import tirx as tir

import tilelang.language as T
from tile_compiler import pipeline
from tile_compiler.compile import lower
from tile_compiler.inspect import run_passes
from tile_compiler.rewrite import map_kernels
from tile_compiler.simt import pipeline as simt_pipeline
from tile_compiler.stage_borders import GONE
from tile_compiler.targets.cpu.codegen import BuiltObject
from tile_compiler.targets.cpu.plugin import TARGET
from tilelang.ir import tile_ir


@T.prim_func
def kernel(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32"), H: T.Tensor((4,), "int32")):
    with T.Kernel(2, threads=32) as bx:
        tile = T.alloc_shared((32, 64), "float32")
        T.use_swizzle(4)
        for k in T.Pipelined(2, num_stages=2):
            T.copy(A[k * 32, 0], tile)
            for i, j in T.Parallel(32, 64):
                B[k * 32 + i, j] = tile[i, j] * 2
        for _ in T.unroll(2):
            T.atomic_add(H[bx], 1)


def test_the_whole_pipeline_keeps_its_promises():
    run_passes(kernel, pipeline.CPU, TARGET.context("cpu", None))


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("plan_pipeline", "a pipelined loop"),
        ("drop_hints", "a call of tl.hint"),
        ("unroll_loops", "an unrolled loop"),
        ("serialize_threads", "a thread axis"),
        ("lower_tile_ops", "tl.copy|a region of"),
        ("lower_parallel", "a T.Parallel loop"),
        ("plan_scratch", "tile without an offset"),
    ],
)
def test_a_pass_that_does_nothing_is_named(name, left):
    idle = [(n, (lambda func, ctx: func) if n == name else p) for n, p in pipeline.CPU]
    upto = next(i for i, (n, _) in enumerate(idle) if n == name)
    with pytest.raises(AssertionError, match=f"after the pass {name} .*({left})"):
        run_passes(kernel, idle[: upto + 1], TARGET.context("cpu", None))


def test_every_promise_belongs_to_a_pass():
    assert set(GONE) <= {n for n, _ in (*pipeline.CPU, *simt_pipeline.CUDA)}


@pytest.mark.parametrize("kinds", [(ir.Var,), (ir.Call, ir.Var), (tir.BufferStore, ir.TensorLoad), (tir.IntImm,)])
def test_a_walk_of_some_classes_meets_what_a_whole_walk_meets(kinds):
    found = list(tile_ir.walk(kernel.body, *kinds))
    whole = [n for n in tile_ir.walk(kernel.body) if isinstance(n, kinds)]
    assert whole
    assert [hash(n) for n in found] == [hash(n) for n in whole]


def test_kernels_that_a_rule_leaves_alone_are_the_same_function():
    """So that nothing is checked or compared again."""
    assert map_kernels(kernel, lambda k: k) is kernel
    assert map_kernels(kernel, lambda k: replace(k, body=tile_ir.sequence([]))) is not kernel


def test_assembly_is_written_when_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(BuiltObject, "asm", property(lambda built: asked.append(built) or "text"))
    module = lower(kernel, "cpu")
    assert module.built().binaries
    assert not asked
    assert module.asm() == "text"
    assert len(asked) == 1
