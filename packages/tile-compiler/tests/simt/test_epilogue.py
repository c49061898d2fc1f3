"""From accumulators to memory: `stmatrix`, vectors, and shared tiles without bank conflicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import threads as simt

import tilelang.language as T
from tile_compiler.cfamily.dialect import CUDA as DIALECT
from tile_compiler.cfamily.launches import kernel_launches
from tile_compiler.cfamily.printer import print_source
from tile_compiler.signature import signature_of
from tilelang import interpreter
from tilelang.ir import tile_ir
from tilelang.layout import make_linear_layout

emulator = pytest.importorskip("tile_runtime_cpu.emulator")

ROWS, COLUMNS = 100, 120  # of C: not whole tiles


def through_shared(tile: tuple[int, int], threads: int, out: str, transposed: bool = False, scale: float = 1.0) -> Any:
    """C = (A @ B) * scale by way of a shared tile, which may be stored transposed."""
    m, n = tile
    shape_c = (COLUMNS, ROWS) if transposed else (ROWS, COLUMNS)

    @T.prim_func
    def product(A: T.Tensor((ROWS, 32), "float16"), B: T.Tensor((32, COLUMNS), "float16"), C: T.Tensor(shape_c, out)):
        with T.Kernel(T.ceildiv(COLUMNS, n), T.ceildiv(ROWS, m), threads=threads) as (bx, by):
            a = T.alloc_shared((m, 32), "float16")
            b = T.alloc_shared((32, n), "float16")
            c = T.alloc_fragment((m, n), "float32")
            s = T.alloc_shared((n, m) if transposed else (m, n), out)
            T.copy(A[by * m, 0], a)
            T.copy(B[0, bx * n], b)
            T.gemm(a, b, c, clear_accum=True)
            if transposed:
                for i, j in T.Parallel(m, n):
                    s[j, i] = c[i, j] * scale
                T.copy(s, C[bx * n, by * m])
            else:
                for i, j in T.Parallel(m, n):
                    s[i, j] = c[i, j] * scale
                T.copy(s, C[by * m, bx * n])

    return product


def operands(rng: Any, out: str, transposed: bool = False) -> list[Any]:
    a, b = (rng.standard_normal(s).astype("float16") for s in ((ROWS, 32), (32, COLUMNS)))
    shape_c = (COLUMNS, ROWS) if transposed else (ROWS, COLUMNS)
    return [a, b, np.zeros(shape_c, T.dtype(out).as_numpy())]


def stores(trace: Any) -> set[str]:
    return {str(c.args[0].value) for c in simt.calls(trace.steps[-1].after, "tl::stmatrix")}


KINDS = [
    ("sm_90", "float16", False, {"tl::stmatrix_x4"}),
    ("sm_90", "bfloat16", False, {"tl::stmatrix_x4"}),
    ("sm_90", "float16", True, {"tl::stmatrix_x4_trans"}),
    ("sm_90", "float32", False, set()),  # a lane's two floats are no 16-bit pair
    ("sm_80", "float16", False, set()),
    ("gfx942", "float16", False, set()),
]
TILES = [((64, 64), 128), ((16, 8), 32), ((32, 48), 64)]


@pytest.mark.parametrize(
    ("tile", "threads", "arch", "out", "transposed", "expected"),
    [
        pytest.param(
            *tile, *kind, marks=() if tile == TILES[0] or (tile, kind) == (TILES[1], KINDS[0]) else pytest.mark.full
        )
        for tile in TILES
        for kind in KINDS
    ],
)
def test_fragment_to_shared(
    rng: Any,
    check: Any,
    tile: tuple[int, int],
    threads: int,
    arch: str,
    out: str,
    transposed: bool,
    expected: set[str],
) -> None:
    loose = {"float16": 4e-3, "bfloat16": 3e-2}.get(out, 1e-4)
    func, args = through_shared(tile, threads, out, transposed, 0.5), operands(rng, out, transposed)
    trace, _ = check(func, args, rtol=loose, atol=loose, arch=arch, passes=False)
    small = tile == (16, 8)  # two registers of a lane, two matrices
    assert stores(trace) == {s.replace("x4", "x2") if small else s for s in expected}


def test_part_of_a_shared_tile_that_may_lie_outside_is_stored_element_by_element(rng: Any, check: Any) -> None:
    """`stmatrix` has no predicate."""

    @T.prim_func
    def shifted(A: T.Tensor((32, 32), "float16"), n: T.int32, C: T.Tensor((32, 32), "float16")):
        with T.Kernel(1, threads=32) as bx:
            a = T.alloc_shared((32, 32), "float16")
            s = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.copy(A, a)
            T.clear(s)
            T.gemm(a, a, c, clear_accum=True)
            T.copy(c[0:32, 0:32], s[n : n + 32, 0:32])
            T.copy(s, C)

    args = [rng.standard_normal((32, 32)).astype("float16"), 5, np.zeros((32, 32), "float16")]
    trace, _ = check(shifted, args, rtol=4e-3, atol=4e-3, arch="sm_90", passes=False)
    assert not stores(trace)


@pytest.mark.parametrize(
    ("arch", "out", "turns"), [("sm_80", "float16", 2), ("sm_80", "float32", 4), ("sm_90", "float16", 4)]
)
def test_shared_tile_of_an_epilogue_has_few_bank_conflicts(
    rng: Any, lower: Any, arch: str, out: str, turns: int
) -> None:
    """Average turns of an access as the emulator counts them: 16 bytes a lane take 4, 4 bytes 1, 8 bytes 2 (of floats two
    rows still meet: 4). In row-major order each store of the fragment would take 8.
    """
    func, args = through_shared((64, 64), 128, out), operands(rng, out)
    trace, ctx = lower(func, arch)
    (layout,) = (
        v for b, u in ctx.layouts[0].buffers.items() if b.name == "s" for v in [ctx.layouts[0].solution.values[u]]
    )
    assert layout != make_linear_layout(64, 64)
    final = trace.steps[-1].after
    (launch,) = kernel_launches(final, signature_of(func, final))
    module = emulator.compile(print_source([launch.kernel], DIALECT))
    work = [a.copy() for a in args]
    report = module.launch(launch.kernel.symbol, (2, 2, 1), (128, 1, 1), launch.shared_bytes, work)
    report.check()
    interpreter.run(func, args)
    np.testing.assert_allclose(work[2].astype("f8"), args[2].astype("f8"), rtol=4e-3, atol=4e-3)
    counters = report.counters
    if arch == "sm_90":
        assert counters["stmatrix_wavefronts"] == 4 * counters["stmatrix"] > 0
    assert counters["shared_wavefronts"] <= turns * counters["shared_requests"]


def test_table_that_codes_index_stays_row_major(lower: Any) -> None:
    """Which banks its readers meet in is not known before the codes are."""

    @T.prim_func
    def looked_up(A: T.Tensor((64, 32), "uint8"), values: T.Tensor((256, 32), "float32"), C: T.Tensor((64, 32))):  # type: ignore[no-untyped-def]
        with T.Kernel(1, threads=128):
            codes, table = T.alloc_shared((64, 32), "uint8"), T.alloc_shared((256, 32), "float32")
            c = T.alloc_fragment((64, 32), "float32")
            T.copy(A, codes)
            T.copy(values, table)
            for i, j in T.Parallel(64, 32):
                c[i, j] = table[T.cast(codes[i, j], "int32"), i % 8 * 4 + j % 4]
            T.copy(c, C)

    _, ctx = lower(looked_up, "sm_80")
    (unknown,) = (u for b, u in ctx.layouts[0].buffers.items() if b.name == "table")
    assert ctx.layouts[0].solution.values[unknown] == make_linear_layout(256, 32)


def test_shared_tile_whose_address_a_user_function_gets_stays_row_major(lower: Any) -> None:
    @T.prim_func
    def given(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128) as bx:
            T.import_source('extern "C" __device__ void mine(void* s) {}')
            a = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            s = T.alloc_shared((64, 64), "float16")
            T.copy(A, a)
            T.gemm(a, a, c, clear_accum=True)
            T.copy(c, s)
            T.call_extern("int32", "mine", T.address_of(s[0, 0]))
            T.copy(s, C)

    _, ctx = lower(given, "sm_90")
    layouts = {b.name: ctx.layouts[0].solution.values[u] for b, u in ctx.layouts[0].buffers.items()}
    assert layouts["s"] == make_linear_layout(64, 64)
    assert layouts["a"] != make_linear_layout(64, 64)


@pytest.mark.parametrize(
    ("arch", "out", "lanes"), [("sm_80", "float16", 8), ("sm_80", "float32", 2), ("gfx942", "float16", 4)]
)
def test_fragment_to_global_stores_vectors(rng: Any, check: Any, arch: str, out: str, lanes: int) -> None:
    @T.prim_func
    def product(A: T.Tensor((64, 32), "float16"), B: T.Tensor((32, 64), "float16"), C: T.Tensor((64, 64), out)):
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)

    args = [rng.standard_normal(s).astype("float16") for s in ((64, 32), (32, 64))]
    trace, _ = check(product, [*args, np.zeros((64, 64), out)], rtol=4e-3, atol=4e-3, arch=arch, passes=False)
    final = trace.steps[-1].after
    last = [n for n in tile_ir.walk(final.body) if type(n).__name__ == "BufferStore" and n.buffer.name == "C"]
    assert {int(n.indices[-1].lanes) for n in last} == {lanes}


@pytest.mark.parametrize("columns", [120, 116, 117])
@pytest.mark.parametrize("out", ["float16", "bfloat16"])
def test_lanes_exchange_words_for_wide_stores(rng: Any, lower: Any, out: str, columns: int) -> None:
    """Where rows are whole vectors of 16 bytes; edges inside a tile too. The emulated text agrees."""

    @T.prim_func
    def product(
        A: T.Tensor((100, 32), "float16"), B: T.Tensor((32, columns), "float16"), C: T.Tensor((100, columns), out)
    ):
        with T.Kernel(T.ceildiv(columns, 64), 2, threads=128) as (bx, by):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A[by * 64, 0], a)
            T.copy(B[0, bx * 64], b)
            T.gemm(a, b, c, clear_accum=True)
            for i, j in T.Parallel(64, 64):
                C[by * 64 + i, bx * 64 + j] = c[i, j] * 0.5

    trace, _ = lower(product)
    final = trace.steps[-1].after
    assert bool(simt.calls(final, "tl::transpose_quad")) == (columns == 120)
    args = [rng.standard_normal(s).astype("float16") for s in ((100, 32), (32, columns))]
    args.append(np.zeros((100, columns), T.dtype(out).as_numpy()))
    want = [x.copy() for x in args]
    interpreter.run(product, want)
    (launch,) = kernel_launches(final, signature_of(product, final))
    module = emulator.compile(print_source([launch.kernel], DIALECT))
    module.launch(launch.kernel.symbol, (2, 2, 1), (128, 1, 1), launch.shared_bytes, args).check()
    np.testing.assert_allclose(args[2].astype("f8"), want[2].astype("f8"), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(("along", "together"), [("rows", True), ("columns", False)])
def test_lanes_exchange_words_for_the_rows_that_a_condition_leaves(
    rng: Any, lower: Any, along: str, together: bool
) -> None:
    """Where it is the same for all of a vector; what it leaves out keeps its value."""

    @T.prim_func
    def product(
        A: T.Tensor((64, 32), "float16"),
        B: T.Tensor((32, 64), "float16"),
        bounds: T.Tensor((4,), "int32"),
        C: T.Tensor((64, 64), "float16"),
    ):
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            end = bounds[bx]
            for i, j in T.Parallel(64, 64):
                if (i if along == "rows" else j) < end:
                    C[i, j] = c[i, j]

    trace, _ = lower(product)
    final = trace.steps[-1].after
    assert bool(simt.calls(final, "tl::transpose_quad")) == together
    args = [rng.standard_normal(s).astype("float16") for s in ((64, 32), (32, 64))]
    args += [np.full(4, 37, "int32"), rng.standard_normal((64, 64)).astype("float16")]
    want = [x.copy() for x in args]
    interpreter.run(product, want)
    (launch,) = kernel_launches(final, signature_of(product, final))
    module = emulator.compile(print_source([launch.kernel], DIALECT))
    module.launch(launch.kernel.symbol, (1, 1, 1), (128, 1, 1), launch.shared_bytes, args).check()
    np.testing.assert_allclose(args[3].astype("f8"), want[3].astype("f8"), rtol=1e-2, atol=1e-2)


def test_an_index_with_a_name_is_loaded_as_a_vector(rng: Any, check: Any) -> None:
    """`row = first + i` in the nest, then `A[row, j]`."""

    @T.prim_func
    def rows(A: T.Tensor((100, 64), "float16"), n: T.int32, C: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((64, 64), "float16")
            for i, j in T.Parallel(64, 64):
                row = n * 8 + i
                s[i, j] = T.if_then_else(row < 90, A[row, j], T.cast(0, "float16"))
            T.copy(s, C)

    args = [rng.standard_normal((100, 64)).astype("float16"), 5, np.zeros((64, 64), "float16")]
    trace, _ = check(rows, args, arch="sm_80", passes=False)
    loads = [n for n in tile_ir.walk(trace.steps[-1].after.body) if type(n).__name__ == "TensorLoad"]
    assert {getattr(n.indices[-1], "lanes", 1) for n in loads if n.source.name == "A"} == {8}
