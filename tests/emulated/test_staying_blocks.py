"""Grids of more tiles than multiprocessors: blocks that stay compute what a block for each tile does, and the report says why
blocks stay or leave. The chip has three multiprocessors here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilelang
import tilelang.language as T
from tile_compiler.simt.keep_blocks import keep_blocks
from tile_compiler.simt.materialize_threads import materialize_threads
from tile_compiler.targets.cuda import plugin
from tilelang.ir import tile_ir
from tilelang.target import parse

CUDA = "cuda -arch=sm_90a"
LEAVE = {"tl.disable_staying_blocks": True}
m_dynamic, n_dynamic = T.dynamic("m"), T.dynamic("n")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    chip = dataclasses.replace(plugin.CHIPS["sm_90a"], multiprocessors=3)
    monkeypatch.setitem(plugin.CHIPS, "sm_90a", chip)


def emulated(func: Any, **options: Any) -> Any:
    return tilelang.compile(func, target=CUDA, execution="emulate", **options)


def said(kernel: Any) -> str:
    """What the report says of blocks and grids."""
    return "\n".join(note["text"] for note in kernel.report()["notes"] if "block" in note["text"])


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).half()


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert torch.allclose(
        found.double(), expected, rtol=0, atol=2e-3 * float(expected.abs().amax() if expected.numel() else 1)
    )


def product(
    m: Any,
    n: Any,
    k: Any,
    stages: int = 8,
    hint: Callable[[], None] = lambda: None,
    dims: Any = None,
    depth: int = 64,
) -> Any:
    """C = A B by tiles of 64 x 64 x depth; with 8 stages of 64, or 2 of 256, one block fills a multiprocessor."""

    @T.prim_func
    def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, 64), threads=128, cluster_dims=dims) as (bx, by):
            a = T.alloc_shared((64, depth), "float16")
            b = T.alloc_shared((depth, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            hint()
            T.clear(c)
            for i in T.Pipelined(T.ceildiv(k, depth), num_stages=stages):
                T.copy(A[by * 64, i * depth], a)
                T.copy(B[i * depth, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 64, bx * 64])

    return main


@pytest.mark.parametrize(("m", "n", "k"), [(128, 192, 128), (136, 200, 72), (320, 72, 64)])
def test_products_of_blocks_that_stay(m: int, n: int, k: int) -> None:
    a, b, c = normal(m, k), normal(k, n), torch.full((m, n), torch.nan)
    kernel = emulated(product(m, n, k))
    kernel(a, b, c)
    close(c, a.double() @ b.double())
    tiles = -(-m // 64) * -(-n // 64)
    assert kernel.report()["kernels"][0]["grid"] == ["3"]
    assert f"blocks stay: 3, one for each multiprocessor of H200 SXM, take {tiles} tiles by turns" in said(kernel)


def test_a_call_decides_how_many_tiles_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code for any m, and any n whose rows begin at 16 bytes."""
    k = 768
    kernel = emulated(product(m_dynamic, n_dynamic, k, stages=2, depth=256), pass_configs={"tl.variant": 1})
    assert "blocks stay: 3, one for each multiprocessor of H200 SXM, take the tiles of a call by turns" in said(kernel)
    assert kernel.report()["kernels"][0]["grid"] == ["T.min((n + 63) // 64 * ((m + 63) // 64), 3)"]
    for seed, mode, shapes in (
        ("0", "early", [(64, 64), (136, 200)]),
        ("1", "late", [(200, 128)]),
        ("2", "late", [(8, 328)]),
    ):
        monkeypatch.setenv("TILELANG_EMULATE_SEED", seed)
        monkeypatch.setenv("TILELANG_EMULATE_MODE", mode)
        for m, n in shapes:
            a, b, c = normal(m, k), normal(k, n), torch.full((m, n), torch.nan)
            kernel(a, b, c)
            close(c, a.double() @ b.double())


def test_coordinates_in_grids_that_a_call_decides() -> None:
    """Of three axes, each of which may be the one of a single block."""
    planes, rows, columns = (T.dynamic(name) for name in ("planes", "rows", "columns"))

    @T.prim_func
    def main(A: T.Tensor((64, 512), "float16"), C: T.Tensor((planes, rows, columns), "int32")):
        with T.Kernel(columns, rows, planes, threads=128) as (x, y, z):
            a = T.alloc_shared((64, 512), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.use_swizzle(2)
            T.clear(c)
            for _ in T.Pipelined(1, num_stages=2):
                T.copy(A, a)
                T.gemm(a, a, c, transpose_B=True)
            for i in T.Parallel(1):
                C[z, y, x + i] = x + 100 * (y + 100 * z)

    kernel = emulated(main)
    assert "take the tiles of a call by turns" in said(kernel)
    for p, m, n in ((1, 1, 1), (1, 5, 1), (2, 3, 5), (3, 1, 4), (0, 2, 2)):
        a, c = normal(64, 512), torch.full((p, m, n), -1, dtype=torch.int32)
        kernel(a, c)
        z, y, x = torch.meshgrid(torch.arange(p), torch.arange(m), torch.arange(n), indexing="ij")
        assert (c == x + 100 * (y + 100 * z)).all()


def test_panels_are_those_of_the_user() -> None:
    a, b, c = normal(264, 64), normal(64, 136), torch.full((264, 136), torch.nan)
    kernel = emulated(product(264, 136, 64, hint=lambda: T.use_swizzle(2)))
    kernel(a, b, c)
    close(c, a.double() @ b.double())
    assert "panels of 2, by row, as T.use_swizzle wishes" in said(kernel)


def test_a_gate_between_two_products_and_a_tile_of_its_own() -> None:
    """What nobody tuned for: a tile that each turn brings once, two products, a gate, a result stored through shared memory."""

    @T.prim_func
    def main(
        X: T.Tensor((64, 320), "float16"),
        A: T.Tensor((320, 128), "float16"),
        B: T.Tensor((128, 64), "float16"),
        C: T.Tensor((320, 64), "float16"),
    ):
        with T.Kernel(5, threads=128) as row:
            gate = T.alloc_shared((64, 64), "float16")
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            out = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            steps = T.alloc_var("int32", init=0)
            T.copy(X[0, row * 64], gate)
            T.clear(c)
            for i in T.Pipelined(2, num_stages=8):
                steps += 1
                T.copy(A[row * 64, i * 64], a)
                T.copy(B[i * 64, 0], b)
                T.gemm(a, b, c)
            for i, j in T.Parallel(64, 64):
                c[i, j] = c[i, j] * gate[j, i] * steps
            T.copy(c, out)
            T.copy(out, C[row * 64, 0])

    x, a, b, c = normal(64, 320), normal(320, 128), normal(128, 64), torch.full((320, 64), torch.nan).half()
    kernel = emulated(main)
    kernel(x, a, b, c)
    close(c, a.double() @ b.double() * x.double().T * 2)
    assert "blocks stay: 3" in said(kernel)
    assert "gate by TMA from a producer warp" in str(kernel.report())


def uneven(count: Callable[[Any], Any]) -> Any:
    """Tiles of 64 rows, of which tile b sums count(b) tiles of 64 columns."""

    @T.prim_func
    def main(A: T.Tensor((320, 320), "float16"), B: T.Tensor((320, 64), "float16"), C: T.Tensor((320, 64), "float32")):
        with T.Kernel(5, threads=128) as row:
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            last = count(row)
            T.clear(c)
            for i in T.Pipelined(last, num_stages=8):
                T.copy(A[row * 64, i * 64], a)
                T.copy(B[i * 64, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C[row * 64, 0])

    return main


REASONS = {
    "equal": (lambda: uneven(lambda row: 5), "blocks stay: 3"),
    "few tiles": (lambda: product(64, 192, 64), "3 tiles, at most one for each of 3 multiprocessors (100% busy)"),
    "little memory": (lambda: product(256, 64, 64, stages=2), "shared memory holds 6 blocks of a multiprocessor"),
    "triangle": (lambda: uneven(lambda row: row + 1), "tiles of unequal work, as the loop over i hangs on the block"),
    "long": (lambda: product(256, 64, 64 * 4000), "a tile takes "),
    "odd rows": (lambda: product(256, 65, 65), "no copy by TMA, as "),
    "cluster": (lambda: product(256, 128, 64, dims=2), "clusters keep their grid"),
}


@pytest.mark.parametrize("name", REASONS)
def test_the_report_says_why(name: str) -> None:
    make, text = REASONS[name]
    assert text in said(emulated(make()))


def test_the_report_says_what_clusters_would_share() -> None:
    assert "two blocks along x have 8192 of the 16384 bytes of a step in common" in said(emulated(product(64, 192, 64)))
    assert "in common" not in said(emulated(product(64, 192, 64, dims=3)))


@pytest.mark.parametrize("switch", [LEAVE, {"tl.disable_warp_specialized": True}])
def test_blocks_leave_where_a_switch_asks_for_it(switch: dict[str, Any]) -> None:
    kernel = emulated(product(256, 64, 64), pass_configs=switch)
    assert kernel.report()["kernels"][0]["grid"] == ["1", "4"]


def meet() -> None:
    done = T.alloc_barrier(128)
    T.barrier_arrive(done)
    T.barrier_wait(done, 0)


BY_HAND = {
    "barrier": meet,
    "print": lambda: T.print(T.get_block_binding(0)),
    "text": lambda: T.import_source("__device__ void mine() {}") or T.call_extern("handle", "mine"),
    "warps": lambda: T.no_set_max_nreg(),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_what_the_user_does_by_hand_is_left_alone(name: str) -> None:
    """But for a hint on registers."""
    func = product(256, 64, 64, hint=BY_HAND[name])
    context = plugin.TARGET.context(parse(CUDA), {})
    (kernel,) = tile_ir.kernels(keep_blocks(materialize_threads(func, context), context))
    assert [int(e) for _, e in kernel.grid] == ([3] if name == "warps" else [1, 4])


def test_variables_begin_anew_with_each_tile() -> None:
    m, n, k = 128, 192, 128

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float32"),
        Steps: T.Tensor((m // 64, n // 64), "int32"),
    ):
        with T.Kernel(n // 64, m // 64, threads=128) as (bx, by):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            steps = T.alloc_var("int32", init=0)
            T.clear(c)
            for i in T.Pipelined(k // 64, num_stages=8):
                T.copy(A[by * 64, i * 64], a)
                T.copy(B[i * 64, bx * 64], b)
                T.gemm(a, b, c)
                steps = steps + 1
            T.copy(c, C[by * 64, bx * 64])
            Steps[by, bx] = steps

    a, b, c = normal(m, k), normal(k, n), torch.full((m, n), torch.nan)
    steps = torch.full((m // 64, n // 64), -1, dtype=torch.int32)
    kernel = emulated(main)
    kernel(a, b, c, steps)
    assert "blocks stay: 3" in said(kernel)
    close(c, a.double() @ b.double())
    assert (steps == k // 64).all()


def test_a_wait_for_earlier_launches_comes_once_before_all_tiles() -> None:
    """In front of all else; elsewhere the user decides what it stands between, and blocks leave."""
    a, b = normal(200, 256), normal(256, 320)
    first = emulated(product(200, 320, 256, hint=T.pdl_sync), out_idx=[2])
    assert "blocks stay: 3" in said(first)
    (launch,) = first.artifact.manifest.variants[0].launches
    assert launch.pdl
    for part in first.get_kernel_source().split("for (int turn")[1:]:
        assert "grid_dependency_wait" not in part.partition("} else")[0]
    close(first(a, b), a.double() @ b.double())

    def squares(waits: bool) -> Any:
        @T.prim_func
        def squares(A: T.Tensor((384, 256), "float16"), C: T.Tensor((384, 64), "float32")):
            with T.Kernel(6, threads=128) as bx:
                tile = T.alloc_shared((64, 64), "float16")
                other = T.alloc_shared((64, 64), "float16")
                c = T.alloc_fragment((64, 64), "float32")
                T.clear(c)
                if waits:
                    T.pdl_sync()
                for i in T.Pipelined(4, num_stages=8):
                    T.copy(A[bx * 64, i * 64], tile)
                    T.copy(A[bx * 64, i * 64], other)
                    T.gemm(tile, other, c, transpose_B=True)
                T.copy(c, C[bx * 64, 0])

        return squares

    assert "blocks stay: 3" in said(emulated(squares(False)))
    assert "blocks stay" not in said(emulated(squares(True)))
