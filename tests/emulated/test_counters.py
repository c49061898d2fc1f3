"""What the compiler predicts of a launch is what the emulator counts: bytes, sectors, conflicts, instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T

Args = tuple[np.ndarray[Any, Any], ...]


def normal(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def integers(*shape: int, dtype: str = "int8", seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)


def product(m: int, n: int, k: int, stages: int, dtype: str = "float16", out: str = "float32", by_rows: bool = True):
    a_shape, b_shape = (m, k), (k, n) if by_rows else (n, k)

    @T.prim_func
    def main(A: T.Tensor(a_shape, dtype), B: T.Tensor(b_shape, dtype), C: T.Tensor((m, n), out)):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, 64), threads=128) as (bx, by):
            a = T.alloc_shared((64, 32), dtype)
            b = T.alloc_shared((32, 64) if by_rows else (64, 32), dtype)
            c = T.alloc_fragment((64, 64), out)
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, 32), num_stages=stages):
                T.copy(A[by * 64, step * 32], a)
                if by_rows:
                    T.copy(B[step * 32, bx * 64], b)
                else:
                    T.copy(B[bx * 64, step * 32], b)
                T.gemm(a, b, c, transpose_B=not by_rows)
            T.copy(c, C[by * 64, bx * 64])

    make = normal if dtype.startswith("float") else integers
    arguments = make(*a_shape, dtype=dtype), make(*b_shape, dtype=dtype, seed=1), np.zeros((m, n), out)
    return main, arguments


def softmax(rows: int, columns: int) -> tuple[Any, Args]:
    @T.prim_func
    def main(X: T.Tensor((rows, columns), "float32"), Y: T.Tensor((rows, columns), "float32")):
        with T.Kernel(T.ceildiv(rows, 16), threads=128) as bx:
            x = T.alloc_fragment((16, columns), "float32")
            top = T.alloc_fragment((16,), "float32")
            total = T.alloc_fragment((16,), "float32")
            T.copy(X[bx * 16, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(16, columns):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(16, columns):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[bx * 16, 0])

    return main, (normal(rows, columns), np.zeros((rows, columns), "f4"))


def transposed() -> tuple[Any, Args]:
    """Columns of a row-major tile of 32 floats: 32 lanes, one bank."""

    @T.prim_func
    def main(X: T.Tensor((64, 64), "float32"), Y: T.Tensor((64, 64), "float32")):
        with T.Kernel(2, 2, threads=64) as (bx, by):
            tile = T.alloc_shared((32, 32), "float32")
            T.annotate_layout({tile: T.Layout((32, 32), lambda i, j: i * 32 + j)})
            tx = T.get_thread_binding()
            T.copy(X[by * 32, bx * 32], tile)
            for r in T.serial(16):
                Y[bx * 32 + tx // 32 * 16 + r, by * 32 + tx % 32] = tile[tx % 32, tx // 32 * 16 + r]

    return main, (normal(64, 64), np.zeros((64, 64), "f4"))


def scanned() -> tuple[Any, Args]:
    @T.prim_func
    def main(X: T.Tensor((4, 128), "int32"), Y: T.Tensor((4, 128), "int32")):
        with T.Kernel(4, threads=128) as bx:
            row = T.alloc_shared((128,), "int32")
            T.copy(X[bx, 0], row)
            T.cumsum(row, dim=0)
            T.copy(row, Y[bx, 0])

    return main, (integers(4, 128, dtype="int32"), np.zeros((4, 128), "i4"))


def histogram() -> tuple[Any, Args]:
    @T.prim_func
    def main(X: T.Tensor((512,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(4, threads=128) as bx:
            for i in T.Parallel(128):
                T.atomic_add(Y[i % 64], X[bx * 128 + i])

    return main, (normal(512), np.zeros(64, "f4"))


def stencil() -> tuple[Any, Args]:
    """Neighbours through shared memory: unaligned reads of 4 bytes."""

    @T.prim_func
    def main(X: T.Tensor((256,), "float32"), Y: T.Tensor((256,), "float32")):
        with T.Kernel(2, threads=128) as bx:
            tile = T.alloc_shared((130,), "float32")
            tx = T.get_thread_binding()
            tile[tx + 1] = X[bx * 128 + tx]
            if tx == 0:
                tile[0] = X[T.max(bx * 128 - 1, 0)]
                tile[129] = X[T.min(bx * 128 + 128, 255)]
            T.sync_threads()
            Y[bx * 128 + tx] = tile[tx] + tile[tx + 1] + tile[tx + 2]

    return main, (normal(256), np.zeros(256, "f4"))


def triangle() -> tuple[Any, Args]:
    """A loop whose length is the block's: as in causal attention."""

    @T.prim_func
    def main(X: T.Tensor((4, 64), "float32"), Y: T.Tensor((4, 64), "float32")):
        with T.Kernel(4, threads=64) as bx:
            total = T.alloc_fragment((64,), "float32")
            row = T.alloc_fragment((64,), "float32")
            T.clear(total)
            for r in T.serial(bx + 1):
                T.copy(X[r, 0], row)
                for i in T.Parallel(64):
                    total[i] += row[i]
            T.copy(total, Y[bx, 0])

    return main, (normal(4, 64), np.zeros((4, 64), "f4"))


def converted() -> tuple[Any, Args]:
    @T.prim_func
    def main(X: T.Tensor((64, 96), "float32"), Y: T.Tensor((64, 96), "float16")):
        with T.Kernel(2, threads=96) as bx:
            tile = T.alloc_shared((32, 96), "float16")
            T.copy(X[bx * 32, 0], tile)
            T.copy(tile, Y[bx * 32, 0])

    return main, (normal(64, 96), np.zeros((64, 96), "f2"))


def sums() -> tuple[Any, Args]:
    """Rows and columns of one tile."""

    @T.prim_func
    def main(X: T.Tensor((64, 64), "float32"), R: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64, 64), "float32")
            x = T.alloc_fragment((64, 64), "float32")
            r = T.alloc_fragment((64,), "float32")
            c = T.alloc_fragment((64,), "float32")
            T.copy(X, tile)
            T.copy(tile, x)
            T.reduce_sum(x, r, dim=1)
            T.reduce_sum(x, c, dim=0)
            T.copy(r, R)
            T.copy(c, C)

    return main, (normal(64, 64), np.zeros(64, "f4"), np.zeros(64, "f4"))


KERNELS: dict[str, Callable[[], tuple[Any, Args]]] = {
    "product": lambda: product(128, 128, 96, 0),
    "product, three stages": lambda: product(128, 64, 128, 3),
    "product, parts of tiles": lambda: product(100, 72, 80, 2),
    "product, transposed": lambda: product(64, 64, 64, 2, by_rows=False),
    "product of integers": lambda: product(64, 64, 64, 2, dtype="int8", out="int32", by_rows=False),
    "softmax": lambda: softmax(32, 128),
    "softmax, parts of tiles": lambda: softmax(40, 100),
    "transposed": transposed,
    "histogram": histogram,
    "stencil": stencil,
    "triangle": triangle,
    "converted": converted,
    "sums": sums,
}


def turns() -> tuple[Any, Args]:
    """Two warpgroups that take turns at the tensor cores, and rows that each of them sums over."""

    @T.prim_func
    def main(Q: T.Tensor((128, 64), "float16"), K: T.Tensor((100, 64), "float16"), O: T.Tensor((128, 64), "float16")):
        with T.Kernel(1, threads=256):
            q = T.alloc_shared((128, 64), "float16")
            k = T.alloc_shared((64, 64), "float16")
            scores = T.alloc_fragment((128, 64), "float32")
            weights = T.alloc_fragment((128, 64), "float16")
            out = T.alloc_fragment((128, 64), "float32")
            top = T.alloc_fragment((128,), "float32")
            T.copy(Q, q)
            T.clear(out)
            for n in T.Pipelined(2, num_stages=2):
                T.copy(K[n * 64, 0], k)
                T.clear(scores)
                T.gemm(q, k, scores, transpose_B=True)
                T.reduce_max(scores, top, dim=1)
                for i, j in T.Parallel(128, 64):
                    weights[i, j] = scores[i, j] - top[i]
                T.gemm(weights, k, out)
            T.copy(out, O)

    return main, (normal(128, 64, dtype="float16"), normal(100, 64, dtype="float16"), np.zeros((128, 64), "f2"))


def staged() -> tuple[Any, Args]:
    """A product that leaves through a shared tile, 16 columns of which lie outside of the tensor."""

    @T.prim_func
    def main(A: T.Tensor((128, 64), "float16"), B: T.Tensor((64, 112), "float16"), C: T.Tensor((128, 112), "float16")):
        with T.Kernel(2, 2, threads=128) as (bx, by):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c_tile = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for step in T.Pipelined(2, num_stages=2):
                T.copy(A[by * 64, step * 32], a)
                T.copy(B[step * 32, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(c, c_tile)
            T.copy(c_tile, C[by * 64, bx * 64])

    return main, (normal(128, 64, dtype="float16"), normal(64, 112, dtype="float16"), np.zeros((128, 112), "f2"))


def clustered() -> tuple[Any, Args]:
    """Two blocks, each of which brings half of the tile that both multiply."""

    @T.prim_func
    def main(A: T.Tensor((128, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((128, 64), "float32")):
        with T.Kernel(1, 2, threads=128, cluster_dims=(1, 2)) as (bx, by):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for step in T.Pipelined(2, num_stages=2):
                T.copy(A[by * 64, step * 32], a)
                T.copy(B[step * 32, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 64, bx * 64])

    return main, (normal(128, 64, dtype="float16"), normal(64, 64, dtype="float16"), np.zeros((128, 64), "f4"))


#: What only one architecture has: loads to LDS and MFMA; bulk copies, products of warpgroups, clusters.
MORE: dict[str, Callable[[], tuple[Any, Args]]] = {"turns": turns, "staged": staged, "clustered": clustered}
POINTS = [("cuda -arch=sm_80", name) for name in KERNELS]
POINTS += [("hip -arch=gfx942", name) for name in KERNELS if name.startswith(("product", "soft", "trans", "sums"))]
POINTS += [("cuda -arch=sm_90a", name) for name in (*KERNELS, *MORE) if name.startswith("product") or name in MORE]
#: For each architecture a kernel in which these are more than nothing.
SHOWN = {
    "cuda -arch=sm_80": ("product, three stages", ("cp_async_bytes", "ldmatrix_wavefronts", "mma", "barriers")),
    "hip -arch=gfx942": ("product, three stages", ("direct_loads", "shared_wavefronts", "mma", "barriers")),
    "cuda -arch=sm_90a": ("staged", ("tma_loads", "tma_stores", "tma_bytes", "stmatrix_wavefronts", "wgmma")),
}


@pytest.mark.parametrize(("target", "name"), POINTS)
def test_prediction_is_what_is_counted(target: str, name: str) -> None:
    func, args = (KERNELS | MORE)[name]()
    kernel = tilelang.compile(func, target=target, execution="emulate")
    kernel(*args)
    report = kernel.report()
    (facts,) = report["kernels"]
    assert facts["exact"]
    counted = report["emulated"][facts["symbol"]]
    predicted = facts["counters"]
    assert predicted == {name: counted[name] for name in predicted}
    assert predicted["global_read_bytes"] > 0
    assert predicted["global_written_bytes"] > 0
    example, shown = SHOWN[target]
    assert name != example or all(predicted[counter] > 0 for counter in shown)


@pytest.mark.parametrize("name", ["product in threads", "scanned"])
def test_what_a_host_compiler_leaves_out_is_counted_less(name: str) -> None:
    """A thread reads one element for several of its sums: the text does so each time, a compiler once. A copy between
    tiles that share their memory: the text stores what is there, a compiler nothing."""
    kernels = {"scanned": scanned, "product in threads": lambda: product(64, 64, 32, 0, "float64", "float64")}
    func, args = kernels[name]()
    kernel = tilelang.compile(func, target="cuda -arch=sm_80", execution="emulate")
    kernel(*args)
    report = kernel.report()
    (facts,) = report["kernels"]
    counted, predicted = report["emulated"][facts["symbol"]], facts["counters"]
    differing = {name for name in predicted if predicted[name] != counted[name]}
    assert differing <= {"shared_requests", "shared_wavefronts"}
    assert counted["shared_requests"] <= predicted["shared_requests"]


def test_conflicts_are_found_where_they_are() -> None:
    func, _ = transposed()
    (facts,) = tilelang.compile(func, target="cuda -arch=sm_80", execution="emulate").report()["kernels"]
    reads = [a for a in facts["accesses"] if a["space"] == "shared" and a["kind"] == "read"]
    assert len(reads) == 1
    assert reads[0]["wavefronts"] == 32 * reads[0]["conflict_free"]
    assert "32 turns for 1" in str(tilelang.compile(func, target="cuda -arch=sm_80", execution="emulate").report())


def test_products_have_no_conflicts() -> None:
    for stages in (0, 2):
        func, _ = product(128, 128, 64, stages)
        (facts,) = tilelang.compile(func, target="cuda -arch=sm_80", execution="emulate").report()["kernels"]
        shared = [a for a in facts["accesses"] if a["space"] == "shared"]
        assert shared
        assert all(a["wavefronts"] == a["conflict_free"] for a in shared if a["kind"] == "ldmatrix")


def test_flops_and_bytes_of_a_product() -> None:
    m, n, k = 256, 192, 128
    func, _ = product(m, n, k, 2)
    kernel = tilelang.compile(func, target="cuda -arch=sm_80", execution="emulate")
    (facts,) = kernel.report()["kernels"]
    assert facts["tensor_flops"] == {"f16": 2 * m * n * k}
    moved = 2 * m * k + 2 * k * n + 4 * m * n
    bound = facts["bound"]
    assert bound["chip"] == "A100 SXM 80GB"
    assert bound["each"]["memory"] == pytest.approx(moved / 2.039e12)
    assert bound["each"]["matrix instructions"] == pytest.approx(2 * m * n * k / 312e12)
    assert bound["seconds"] == max(bound["each"].values())
    assert facts["counters"]["global_read_bytes"] == 2 * m * k * (n // 64) + 2 * k * n * (m // 64)


def test_large_grids_are_sampled_and_exact_all_the_same() -> None:
    """Every block does the same; no condition asks which one it is."""
    func, _ = product(4096, 4096, 4096, 3)
    (facts,) = tilelang.compile(func, target="cuda -arch=sm_80", execution="emulate").report()["kernels"]
    assert facts["exact"]
    assert facts["tensor_flops"] == {"f16": 2 * 4096**3}
    assert facts["counters"]["global_read_bytes"] == 2 * 2 * 4096**2 * 64
    (facts,) = tilelang.compile(
        product(4096, 4096, 4096, 3)[0], target="cuda -arch=sm_90a", execution="emulate"
    ).report()["kernels"]
    assert facts["exact"]
    assert facts["counters"]["global_read_bytes"] == facts["counters"]["tma_bytes"] == 2 * 2 * 4096**2 * 64
    assert facts["bound"]["each"]["memory"] == pytest.approx((2 * 2 + 4) * 4096**2 / 4.8e12)
    func, _ = product(4100, 4096, 64, 3)
    (facts,) = tilelang.compile(func, target="cuda -arch=sm_80", execution="emulate").report()["kernels"]
    assert not facts["exact"]


def test_iterations_that_only_a_call_knows_are_sampled() -> None:
    """Four unknown sizes are taken to be 1024 each: as many iterations have no array, the first and the last stand for all."""
    a, b, c, d = T.dynamic("a, b, c, d")

    @T.prim_func
    def main(X: T.Tensor((a, b, c, d), "float32"), Y: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=32):
            total = T.alloc_fragment((1,), "float32")
            T.clear(total)
            for i in T.serial(a * b * c * d):
                total[0] += X[0, 0, 0, i % d]
            T.copy(total, Y)

    (facts,) = tilelang.compile(main, target="cuda -arch=sm_80", execution="emulate").report()["kernels"]
    assert not facts["exact"]
    assert facts["counters"]["global_read_bytes"] >= 4 * 1024**4


def test_report_tells_instructions_and_reasons() -> None:
    func, _ = product(128, 128, 96, 0)
    report = tilelang.compile(func, target="cuda -arch=sm_80", execution="device").report()
    (facts,) = report["kernels"]
    by_name = {(o["operator"], tuple(o["instructions"])): o for o in facts["operators"]}
    assert any("mma_m16n8k16_f32_f16" in made for _, made in by_name)
    copies = [o for o in facts["operators"] if o["operator"] == "T.copy" and "a" in o["widths"]]
    assert any("no loop of T.Pipelined" in reason for reason in copies[0]["why"])
    assert facts["registers"] > 0
    assert facts["occupancy"]["limited_by"] in ("threads", "registers", "shared memory", "blocks")
    assert set(facts["layouts"]) == {"a", "b", "c"}
    assert report["passes"]["infer_layouts"] > 0
    assert report["device_compiler"]["seconds"] > 0
    text = str(report)
    for part in ("main_kernel: grid 2 x 2, 128 threads", "T.gemm: ", "layouts:", "passes: ", "on A100 SXM 80GB, by"):
        assert part in text, text


def test_manifest_has_the_resources() -> None:
    func, _ = softmax(32, 128)
    kernel = tilelang.compile(func, target="cuda -arch=sm_80", execution="device")
    used = kernel.manifest.resources["main_kernel"]
    assert used["threads"] == 128
    assert used["registers"] > 0
    assert used["spills"] == 0
    assert used["occupancy"]["blocks"] >= 1


def test_report_of_the_cpu_has_passes() -> None:
    func, _ = softmax(32, 128)
    report = tilelang.compile(func, target="cpu").report()
    assert isinstance(report.data, dict)
    assert report["passes"]["lower_tile_ops"] > 0
    assert "passes: " in str(report)
