"""The model: what it reads off a kernel, what it refuses, and the order that it gives."""

import dataclasses

import pytest

import tilelang
import tilelang.language as T
from tilelang.autotuner import Space, model
from tilelang.autotuner.machine import machine_of
from tilelang.ir.tile_work import tile_work
from tilelang.target import parse

H200 = machine_of(parse("cuda -arch=sm_90a"))
A100 = machine_of(parse("cuda -arch=sm_80"))


def test_work_of_a_gemm(matmul):
    launch = tile_work(matmul(256, 192, 128, 64, 32, 16, num_stages=3, threads=64)).launches[0]
    assert (launch.blocks, launch.threads, launch.steps, launch.stages) == (24, 64, 8, 3)
    assert {n: (t.scope, t.bytes, t.versions) for n, t in launch.tiles.items()} == {
        "A_shared": ("shared", 3 * 64 * 16 * 2, 3),
        "B_shared": ("shared", 3 * 16 * 32 * 2, 3),
        "C_local": ("fragment", 64 * 32 * 4, 1),
    }
    assert sum(p.flops for p in launch.products) == 2 * 64 * 32 * 128
    assert launch.read_bytes == 8 * (64 * 16 + 16 * 32) * 2
    assert launch.written_bytes == 64 * 32 * 2
    assert tile_work(matmul(256, 192, 128)).tensor_bytes == 2 * (256 * 128 + 128 * 192 + 256 * 192)


def test_shared_bytes_are_those_of_the_compiler(matmul):
    for stages in (0, 2, 3):
        func = matmul(256, 256, 256, 64, 64, 32, stages)
        bound, _ = model.shared_lower_bound(tile_work(func).launches[0])
        made = tilelang.lower(func, "cuda -arch=sm_80").artifact.manifest.resources
        (used,) = [r["shared_bytes"] for r in made.values()]
        assert bound == used


def test_what_is_impossible_does_not_compile(matmul):
    func = matmul(512, 512, 512, 128, 128, 128, num_stages=4)
    assert "shared memory: 262144 bytes (A_shared 131072, B_shared 131072)" in model.impossible(tile_work(func), A100)
    with pytest.raises(ValueError, match="needs 262144 bytes of shared memory"):
        tilelang.lower(func, "cuda -arch=sm_80")


def test_accumulators_that_cannot_be_registers(matmul):
    func = matmul(512, 512, 512, 256, 256, 32, threads=128)
    assert "C_local alone takes 512 in each of 128 threads" in model.impossible(tile_work(func), H200)
    assert model.impossible(tile_work(matmul(512, 512, 512, 128, 256, 32, threads=256)), H200) is None


def test_tiles_that_no_pipeline_versions_count_once():
    @T.prim_func
    def main(A: T.Tensor((64, 256), "float16"), B: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64, 64), "float16")
            kept = T.alloc_shared((64, 64), "float16")
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[0, k * 64], tile)
                T.copy(A[0, k * 64], kept)
                for i, j in T.Parallel(64, 64):
                    tile[i, j] = tile[i, j] + kept[i, j]
            T.copy(kept, B)

    tiles = tile_work(main).launches[0].tiles
    assert tiles["kept"].versions == 1  # used after the loop


def test_work_under_a_causal_bound_is_that_of_the_middle():
    @T.prim_func
    def main(A: T.Tensor((1024, 64), "float16"), B: T.Tensor((1024, 64), "float16")):
        with T.Kernel(16, threads=128) as bx:
            tile = T.alloc_shared((64, 64), "float16")
            for k in T.serial(bx + 1):
                T.copy(A[k * 64, 0], tile)
            T.copy(tile, B[bx * 64, 0])

    assert tile_work(main).launches[0].read_bytes == 9 * 64 * 64 * 2


def test_dynamic_sizes_take_values_by_name(matmul):
    func = matmul(T.dynamic("m"), 256, 256)
    work = tile_work(func)
    assert work.launches[0].blocks is None
    assert work.tensor_bytes is None
    assert model.estimate(work, H200) is None
    assert tile_work(func, {"m": 128}).launches[0].blocks == 2 * 4


def test_warpgroups_read_an_operand_once(matmul):
    func = matmul(4096, 4096, 4096, 128, 256, 64, 3, 256)
    (product,) = tile_work(func).launches[0].products
    assert (H200.group, A100.group) == (128, 32)
    assert model.group_grid(product, 2) == (1, 2)  # two warpgroups: the longer side is split
    assert model.group_grid(product, 8) == (2, 4)
    assert model.estimate(tile_work(func), dataclasses.replace(H200, group=32)).by == "shared memory"
    assert model.estimate(tile_work(func), H200).by != "shared memory"


def test_the_estimate_puts_the_tiles_first_that_the_device_did(matmul):
    """TFLOP/s of generated kernels on an H200, 4096^3, f16, mma.sync: 128x256x64 460, 128x128x32 394, 64x64x32 less."""
    order = [
        {"block_M": 128, "block_N": 256, "block_K": 64, "num_stages": 3, "threads": 256},
        {"block_M": 128, "block_N": 128, "block_K": 32, "num_stages": 3, "threads": 128},
        {"block_M": 64, "block_N": 64, "block_K": 32, "num_stages": 3, "threads": 128},
        {"block_M": 64, "block_N": 64, "block_K": 32, "num_stages": 0, "threads": 128},
        {"block_M": 16, "block_N": 16, "block_K": 32, "num_stages": 2, "threads": 128},
    ]
    times = [model.estimate(tile_work(matmul(4096, 4096, 4096, **c)), H200).seconds for c in order]
    assert times == sorted(times)
    assert times[0] >= 2 * 4096**3 / H200.tensor["float16"]


def test_few_blocks_leave_multiprocessors_idle(matmul):
    config = {"block_K": 64, "num_stages": 3, "threads": 256}
    large = model.estimate(tile_work(matmul(1024, 1024, 8192, 128, 256, **config)), H200)
    small = model.estimate(tile_work(matmul(1024, 1024, 8192, 64, 128, **config)), H200)
    assert large.blocks == 32
    assert large.waves == pytest.approx(32 / 132)
    assert "32 blocks use 24% of 132 multiprocessors" in large.words(H200)
    assert small.seconds < large.seconds


def test_no_time_is_below_that_of_the_bytes(matmul):
    starved = dataclasses.replace(H200, bandwidth=1e9)
    work = tile_work(matmul(512, 512, 512))
    found = model.estimate(work, starved)
    assert found.by == "global memory"
    assert found.seconds >= work.tensor_bytes / 1e9


def test_types_without_a_rate_have_no_estimate(matmul):
    work = tile_work(matmul(256, 256, 256, dtype="float64"))
    assert model.estimate(work, H200) is None


def test_targets_without_a_description():
    assert machine_of(parse("cpu")) is None
    assert machine_of(parse("cuda -arch=sm_100a")) is None  # no chip with figures
    assert machine_of(parse("hip -mcpu=gfx942")).group == 64


def test_a_sweep_says_why_each_configuration_is_pruned(matmul):
    tuned = tilelang.autotune(configs=Space(keep=5), verbose=False)(tilelang.jit(target="cuda -arch=sm_80")(matmul))
    request = tuned.request(2048, 2048, 2048, block_K=64, threads=128)
    configs, keep = tuned.tuner.candidates(request)
    sweep = tuned.tuner.sweep(request, parse("cuda -arch=sm_80"), configs, keep)
    kept = [c for c in sweep.candidates if c.open]
    assert len(kept) == 5
    reasons = {c.pruned.partition(":")[0] for c in sweep.candidates if not c.open}
    assert reasons == {"registers", "shared memory", "model"}
    assert all(c.pruned for c in sweep.candidates if not c.open)
    worst = max(c.estimate_ms for c in kept)
    assert all(c.estimate_ms >= worst for c in sweep.candidates if "not among the best 5" in c.pruned)
    assert all(c.estimate_ms > 3 * min(k.estimate_ms for k in kept) for c in sweep.candidates if " times " in c.pruned)


def test_calls_that_are_no_tile_operators_count_by_their_elements():
    @T.prim_func
    def main(values: T.Tensor((256,), "int32"), counts: T.Tensor((16,), "int32")):
        with T.Kernel(2, threads=128) as bx:
            local = T.alloc_shared((16,), "int32")
            T.clear(local)
            for i in T.Parallel(128):
                if values[bx * 128 + i] >= 0:
                    T.atomic_add(local[values[bx * 128 + i]], 1)
            T.sync_threads()
            T.atomic_add(counts[bx], local[0])

    launch = tile_work(main).launches[0]
    assert launch.blocks == 2
    assert launch.read_bytes > 0
    artifact = tilelang.lower(main, "cuda -arch=sm_90a").artifact  # the compiler reads it to choose whether blocks stay
    assert artifact.manifest.name == "main"
