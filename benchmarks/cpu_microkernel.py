"""One-thread GEMM of the CPU target against numpy (OpenBLAS) and torch (MKL, oneDNN), for several block sizes.

    OPENBLAS_NUM_THREADS=1 python benchmarks/cpu_microkernel.py [--sizes 1024 2048 4096] [--types float32 bfloat16 int8]

The whole product: each block copies tiles of A and B to scratch, calls `emit_gemm` per step of K, writes C at the end.
All contenders take turns in one process; the figure is GFLOP/s from the median thread CPU time, so that other work on
the machine counts little. numpy and torch are given one thread.

On two cores of a Zen 5 server 256x256x256 and 256x256x128 win for every type and size.
"""
# ruff: noqa: E402

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy and torch are loaded

import numpy as np
from tvm import tirx as tir

from tile_compiler.targets.cpu.codegen import build_object
from tile_compiler.targets.cpu.counts import index, loop
from tile_compiler.targets.cpu.features import LEVELS, CpuFeatures, host_features
from tile_compiler.targets.cpu.flatten import storage_bytes
from tile_compiler.targets.cpu.gemm import GemmSpec, Operand, emit_gemm
from tile_compiler.targets.cpu.lowered import LoweredLaunch
from tile_runtime_cpu.elf import Image
from tilelang.ir.dtypes import dtype_of

BLOCKS = [
    (256, 256, 256),
    (128, 256, 256),
    (256, 256, 128),
    (256, 128, 512),
    (128, 128, 128),
    (128, 128, 32),
    (64, 64, 64),
]
TYPES = {
    "float32": ("float32", "float32"),
    "float64": ("float64", "float64"),
    "float16": ("float16", "float32"),
    "bfloat16": ("bfloat16", "float32"),
    "float8_e4m3fn": ("float8_e4m3fn", "float32"),
    "int8": ("int8", "int32"),
}
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def gemm_launch(n: int, block: tuple[int, int, int], dtype: str, out: str, features: CpuFeatures) -> LoweredLaunch:
    """C[n, n] = A @ B for n divisible by the block (BM, BN, BK)."""
    bm, bn, bk = block
    placed: list[tuple[Any, int]] = []
    used = 0

    def scratch(kind: str, shape: Any) -> Any:
        nonlocal used
        buffer = tir.decl_buffer([index(int(s)) for s in shape], kind, f"s{len(placed)}", scope="shared", layout=None)
        placed.append((buffer, used))
        used += -(-int(np.prod(shape)) * storage_bytes(kind) // 64) * 64
        return buffer

    a, b = (tir.decl_buffer((index(n), index(n)), dtype, name) for name in "AB")
    c = tir.decl_buffer((index(n), index(n)), out, "C")
    a_tile, b_tile, c_tile = scratch(dtype, (bm, bk)), scratch(dtype, (bk, bn)), scratch(out, (bm, bn))
    x, y, step = (tir.Var(v, "int64") for v in ("x", "y", "step"))
    zero = index(0)

    def copy(to: Any, to_at: Any, source: Any, at: Any, shape: tuple[int, int]) -> Any:
        def row(i: Any) -> Any:
            def element(j: Any) -> Any:
                value = tir.BufferLoad(source, [at[0] + i, at[1] + j])
                return tir.BufferStore(to, value, [to_at[0] + i, to_at[1] + j])

            return loop(shape[1], element, tir.ForKind.VECTORIZED)

        return loop(shape[0], row)

    operands = [Operand(t, (zero, zero), 0, 1) for t in (a_tile, b_tile, c_tile)]
    gemm = emit_gemm(GemmSpec(bm, bn, bk, *operands, features, scratch, tir.EQ(step, zero)))
    load_a = copy(a_tile, (zero, zero), a, (y * bm, step * bk), (bm, bk))
    load_b = copy(b_tile, (zero, zero), b, (step * bk, x * bn), (bk, bn))
    steps = tir.For(step, zero, index(n // bk), tir.ForKind.SERIAL, tir.SeqStmt([load_a, load_b, gemm]))
    body = tir.SeqStmt([steps, copy(c, (y * bm, x * bn), c_tile, (zero, zero), (bm, bn))])
    return LoweredLaunch("gemm", (a, b, c), (), tuple(placed), used, (x, y), (index(n // bn), index(n // bm)), body)


def contender(
    n: int, block: tuple[int, int, int], arrays: list[Any], dtype: str, out: str, features: CpuFeatures
) -> Any:
    """(call, seconds to build, bytes of the object)"""
    launch = gemm_launch(n, block, dtype, out, features)
    start = time.perf_counter()
    data = build_object([launch], features).object
    seconds = time.perf_counter() - start
    image = Image([("gemm", data)])
    entry = _ENTRY(image.address("gemm"))
    scratch = np.zeros(launch.scratch_bytes + 64, np.uint8)
    pointers = (ctypes.c_void_p * 4)(*(x.ctypes.data for x in arrays), (scratch.ctypes.data + 63) // 64 * 64)
    blocks = (n // block[0]) * (n // block[1])

    def call(_keep: Any = (image, scratch)) -> None:
        entry(pointers, None, 0, blocks)

    return call, seconds, len(data)


def peers(arrays: list[Any], dtype: str) -> dict[str, Callable[[], Any]]:
    import torch

    torch.set_num_threads(1)
    a, b, c = arrays
    if dtype in ("float32", "float64"):
        ta, tb, tc = (torch.from_numpy(x) for x in (a, b, np.empty_like(c)))
        into = np.empty_like(c)
        return {"numpy": lambda: np.matmul(a, b, out=into), "torch": lambda: torch.mm(ta, tb, out=tc)}
    if dtype == "bfloat16":
        ta, tb = (torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) for x in (a, b))
        return {"torch": lambda: ta @ tb}
    if dtype == "int8":
        ta, tb = torch.from_numpy(a), torch.from_numpy(b)
        return {"torch._int_mm": lambda: torch._int_mm(ta, tb)}
    return {}  # torch's float16 product on the CPU takes minutes


def measure(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median thread CPU seconds of each."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.thread_time()
            call()
            times[name].append(time.thread_time() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1024, 2048])
    parser.add_argument("--types", nargs="*", default=["float32", "bfloat16", "int8"], choices=list(TYPES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--level", type=int, default=LEVELS.index(host_features()), help="0: v3, 1: v4, 2: v4 + bf16 + vnni, 3: amx too"
    )
    args = parser.parse_args()
    features = LEVELS[args.level]
    print(f"{features.level} {' '.join(features.extra)}, one thread, load {os.getloadavg()[0]:.1f}")
    for dtype in args.types:
        out = TYPES[dtype][1]
        for n in args.sizes:
            rng = np.random.default_rng(0)
            a, b = (rng.integers(-4, 5, (n, n)).astype(dtype_of(dtype).as_numpy()) for _ in range(2))
            c = np.zeros((n, n), dtype_of(out).as_numpy())
            calls: dict[str, Callable[[], Any]] = dict(peers([a, b, c], dtype))
            notes = {}
            for block in BLOCKS:
                if any(n % size for size in block):
                    continue
                name = "ours " + "x".join(map(str, block))
                calls[name], seconds, size = contender(n, block, [a, b, c], dtype, out, features)
                calls[name]()
                rows = slice(0, 8)
                assert np.array_equal(c[rows], (a[rows].astype("f8") @ b.astype("f8")).astype(c.dtype)), name
                notes[name] = f"   built in {seconds * 1e3:.0f} ms, {size} bytes"
            print(f"{dtype} {n}^3")
            for name, seconds in sorted(measure(calls, args.rounds).items(), key=lambda item: item[1]):
                print(f"  {2 * n**3 / seconds / 1e9:7.1f} GFLOP/s  {name}{notes.get(name, '')}", flush=True)


if __name__ == "__main__":
    main()
