"""Waits and fences of products by warpgroups: as late as they may be, and none of them to spare."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from device_texts import launch_text, lowered, printed
from test_attention import attention
from test_wgmma import MODES, agree, exact

import tilelang
import tilelang.language as T

HALF, WIDE = "float16", "float32"
BY_THREADS = {"tl.disable_warp_specialized": True}  # who copies is not the question here
SYNC = re.compile(
    r"tl::(wgmma_(?!descriptor|hold|m64)\w+(?:<\d+>)?|fence_proxy_async_shared|sync_threads|cp_async_wait<\d>)"
)


def printed_text(func: Any) -> Any:
    trace, ctx = lowered(func, "sm_90a", BY_THREADS)
    return printed(func, trace.steps[-1].after, ctx)


def order(func: Any, more: str = "") -> list[str]:
    """The synchronization of the printed text and the products (`product`), and lines that begin with `more`."""
    found = []
    for line in printed_text(func).source.splitlines():
        call = SYNC.search(line)
        if call:
            found.append(call[1])
        elif "tl::wgmma_m64" in line:
            found.append("product")
        elif more and line.strip().startswith(more):
            found.append(more)
    return found


def chain(stages: int, steps: int) -> Any:
    @T.prim_func
    def product(A: T.Tensor((64, 64 * steps), HALF), B: T.Tensor((64 * steps, 64), HALF), C: T.Tensor((64, 64), WIDE)):
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_shared((64, 64), HALF)
            b = T.alloc_shared((64, 64), HALF)
            c = T.alloc_fragment((64, 64), WIDE)
            T.clear(c)
            for step in T.Pipelined(steps, num_stages=stages):
                T.copy(A[0, step * 64], a)
                T.copy(B[step * 64, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    return product


def halves(rng: Any, *shapes: tuple[int, int]) -> list[Any]:
    return [rng.standard_normal(s).astype(HALF) for s in shapes]


def test_a_tile_is_overwritten_after_its_product() -> None:
    """One wait and two barriers in each iteration; the fence is in front of the barrier that products wait for."""
    assert order(chain(0, 4), "for (int step") == [
        "for (int step",
        *("wgmma_wait<0>", "sync_threads", "fence_proxy_async_shared", "sync_threads"),
        *("wgmma_fence", "product", "wgmma_commit"),
        "wgmma_wait<0>",
    ]


def test_products_end_in_their_iteration_where_threads_load_elements() -> None:
    """Rows of 513 elements start nowhere in particular. With products under way from one iteration to the next, ptxas moved
    accumulators and ran all products one by one (C7515)."""

    @T.prim_func
    def product(A: T.Tensor((64, 513), HALF), B: T.Tensor((512, 64), HALF), C: T.Tensor((64, 64), WIDE)):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 64), HALF), T.alloc_shared((64, 64), HALF)
            c = T.alloc_fragment((64, 64), WIDE)
            T.clear(c)
            for step in T.Pipelined(8, num_stages=3):
                T.copy(A[0, step * 64], a)
                T.copy(B[step * 64, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    loop = order(product, "for (int step")
    assert loop[loop.index("product") :][:3] == ["product", "wgmma_commit", "wgmma_wait<0>"]
    assert loop.count("wgmma_wait<0>") == 1


def test_a_pipeline_waits_before_the_barrier_that_it_has() -> None:
    assert order(chain(3, 8), "for (int step") == [
        "for (int step",
        *("cp_async_wait<1>", "wgmma_wait<0>", "fence_proxy_async_shared", "sync_threads"),
        *("wgmma_fence", "product", "wgmma_commit"),
        "wgmma_wait<0>",
    ]


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("stages", [0, 1, 2, 4])
def test_any_number_of_iterations(rng: Any, stages: int, steps: int) -> None:
    args = [*halves(rng, (64, 64 * steps), (64 * steps, 64)), np.zeros((64, 64), WIDE)]
    agree(chain(stages, steps), args, exact(args, (False, False)), 1e-4, MODES[:2], BY_THREADS)


def test_a_condition_on_shared_memory_behind_a_product(rng: Any) -> None:
    @T.prim_func
    def main(
        A: T.Tensor((64, 64), HALF),
        B: T.Tensor((64, 64), HALF),
        F: T.Tensor((1,), "int32"),
        C: T.Tensor((64, 64), WIDE),
    ):
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_shared((64, 64), HALF)
            b = T.alloc_shared((64, 64), HALF)
            flag = T.alloc_shared((1,), "int32")
            c = T.alloc_fragment((64, 64), WIDE)
            T.copy(A, a)
            T.copy(B, b)
            T.copy(F, flag)
            T.gemm(a, b, c, clear_accum=True)
            if flag[0] > 0:
                T.copy(c, C)

    a, b = halves(rng, (64, 64), (64, 64))
    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution="emulate")
    for flag in (0, 1):
        c = np.zeros((64, 64), WIDE)
        kernel(a, b, np.array([flag], np.int32), c)
        np.testing.assert_allclose(c, flag * (a.astype(np.float64) @ b), atol=1e-3)


def test_products_of_a_loop_need_no_wait_between_them(rng: Any) -> None:
    @T.prim_func
    def product(A: T.Tensor((64, 256), HALF), B: T.Tensor((256, 64), HALF), C: T.Tensor((64, 64), WIDE)):
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_shared((64, 256), HALF)
            b = T.alloc_shared((256, 64), HALF)
            c = T.alloc_fragment((64, 64), WIDE)
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            for step in T.serial(4):
                T.gemm(a[0:64, step * 64 : step * 64 + 64], b[step * 64 : step * 64 + 64, 0:64], c)
            T.copy(c, C)

    found = order(product, "for (int step")
    assert found[found.index("wgmma_fence") :] == ["wgmma_fence", "product", "wgmma_commit", "wgmma_wait<0>"]
    assert "wgmma_wait<0>" not in found[:-1]
    args = [*halves(rng, (64, 256), (256, 64)), np.zeros((64, 64), WIDE)]
    agree(product, args, exact(args, (False, False)), 1e-4)


def test_the_older_of_two_products_is_waited_for_alone(rng: Any) -> None:
    @T.prim_func
    def both(A: T.Tensor((64, 64), HALF), B: T.Tensor((64, 64), HALF), C: T.Tensor((128, 64), WIDE)):
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_shared((64, 64), HALF)
            b = T.alloc_shared((64, 64), HALF)
            one = T.alloc_fragment((64, 64), WIDE)
            other = T.alloc_fragment((64, 64), WIDE)
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, one, clear_accum=True)
            T.gemm(b, a, other, clear_accum=True)
            T.copy(one, C[0, 0])
            T.copy(other, C[64, 0])

    found = order(both, "// T.copy")
    assert found[-4:] == ["wgmma_wait<1>", "// T.copy", "wgmma_wait<0>", "// T.copy"]
    args = [*halves(rng, (64, 64), (64, 64)), np.zeros((128, 64), WIDE)]
    a, b = (x.astype("f8") for x in args[:2])
    agree(both, args, np.concatenate([a @ b, b @ a]), 1e-4)


def test_registers_of_a_are_written_after_their_product(rng: Any) -> None:
    @T.prim_func
    def product(A: T.Tensor((128, 64), HALF), B: T.Tensor((64, 64), HALF), C: T.Tensor((64, 64), WIDE)):
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_fragment((64, 64), HALF)
            b = T.alloc_shared((64, 64), HALF)
            c = T.alloc_fragment((64, 64), WIDE)
            T.copy(B, b)
            T.clear(c)
            for half in T.serial(2):
                T.copy(A[half * 64, 0], a)
                T.gemm(a, b, c)
            T.copy(c, C)

    found = order(product, "for (int half")
    assert found[found.index("for (int half") + 1] == "wgmma_wait<0>"
    args = [*halves(rng, (128, 64), (64, 64)), np.zeros((64, 64), WIDE)]
    a, b = (x.astype("f8") for x in args[:2])
    agree(product, args, (a[:64] + a[64:]) @ b, 1e-4)


@pytest.mark.parametrize("many", [0, 3])
def test_a_product_under_a_condition_is_waited_for_behind_it(rng: Any, many: int) -> None:
    @T.prim_func
    def product(A: T.Tensor((64, 64), HALF), B: T.Tensor((64, 64), HALF), n: T.int32, C: T.Tensor((64, 64), WIDE)):
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_shared((64, 64), HALF)
            b = T.alloc_shared((64, 64), HALF)
            c = T.alloc_fragment((64, 64), WIDE)
            T.copy(A, a)
            T.copy(B, b)
            T.fill(c, 2)
            for step in T.serial(n):
                if step % 2 == 0:
                    T.gemm(a, b, c)
            T.copy(c, C)

    args = [*halves(rng, (64, 64), (64, 64)), many, np.zeros((64, 64), WIDE)]
    agree(product, args, 2 + (many + 1) // 2 * exact(args[:2], (False, False)), 1e-4)


@pytest.mark.parametrize("clear", [False, True])
def test_whether_to_clear_may_be_decided_at_run_time(rng: Any, clear: bool) -> None:
    @T.prim_func
    def product(A: T.Tensor((64, 64), HALF), B: T.Tensor((64, 64), HALF), n: T.int32, C: T.Tensor((64, 64), WIDE)):
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_shared((64, 64), HALF)
            b = T.alloc_shared((64, 64), HALF)
            c = T.alloc_fragment((64, 64), WIDE)
            T.copy(A, a)
            T.copy(B, b)
            T.fill(c, 2)
            T.gemm(a, b, c, clear_accum=n > 0)
            T.copy(c, C)

    args = [*halves(rng, (64, 64), (64, 64)), int(clear), np.zeros((64, 64), WIDE)]
    agree(product, args, (0 if clear else 2) + exact(args[:2], (False, False)), 1e-4)


def faults(text: Any, func: Any, args: list[Any]) -> set[str]:
    """What the emulator finds in a text, products as early and as late as they may be."""
    found: set[str] = set()
    for mode in ("early", "late"):
        reports, _ = launch_text(text, func, args, mode, 0)
        found |= {f.kind for r in reports for f in r.errors}
    return found


@pytest.mark.parametrize("kernel", ["pipeline", "in order", "attention"])
def test_every_wait_and_fence_is_needed(rng: Any, kernel: str) -> None:
    if kernel == "attention":
        func = attention(64, 192, 64, 64, 64, False, 2)
        args = [*halves(rng, (64, 64), (192, 64), (192, 64)), np.zeros((64, 64), HALF)]
    else:
        func = chain(3 if kernel == "pipeline" else 0, 5)
        args = [*halves(rng, (64, 320), (320, 64)), np.zeros((64, 64), WIDE)]
    text = printed_text(func)
    source = text.source
    assert not faults(text, func, args)
    places = list(re.finditer(r" *tl::(wgmma_wait<0>|wgmma_fence|fence_proxy_async_shared)\(\);\n", source))
    assert {m[1] for m in places} == {"wgmma_wait<0>", "wgmma_fence", "fence_proxy_async_shared"}
    for place in places:
        found = faults(text._replace(source=source[: place.start()] + source[place.end() :]), func, args)
        expected = {
            "wgmma_fence": {"missing-wgmma-fence"},
            "fence_proxy_async_shared": {"missing-proxy-fence"},
            "wgmma_wait<0>": {"register-in-flight", "write-under-asynchronous-read"},
        }[place[1]]
        assert found & expected, f"{place[1]} at {source[: place.start()].count(chr(10)) + 1}: {found}"


@pytest.mark.parametrize("clearing", [True, False])
def test_a_cleared_accumulator_is_not_set_to_zero(rng: Any, clearing: bool) -> None:
    """The first step writes it; where something else names the accumulator between, it is set to 0 as before."""

    @T.prim_func
    def product(A: T.Tensor((192, 64), HALF), B: T.Tensor((64, 64), HALF), C: T.Tensor((192, 64), WIDE)):
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_shared((64, 64), HALF)
            b = T.alloc_shared((64, 64), HALF)
            c = T.alloc_fragment((64, 64), WIDE)
            T.copy(B, b)
            for part in T.serial(3):
                T.clear(c)
                T.copy(A[part * 64, 0], a)
                if not clearing:
                    for i, j in T.Parallel(64, 64):
                        c[i, j] += 1
                T.gemm(a, b, c)
                T.copy(c, C[part * 64, 0])

    source = printed_text(product).source
    assert ("T.fill" in source) != clearing
    assert ("ki > 0" in source) == clearing
    args = [*halves(rng, (192, 64), (64, 64)), np.zeros((192, 64), WIDE)]
    agree(product, args, (0 if clearing else 1) + exact(args, (False, False)), 1e-4, MODES[:2])


@pytest.mark.parametrize("told", [True, False])
def test_an_arrival_waits_for_products_unless_the_users_wait_stands_before_it(rng: Any, told: bool) -> None:
    """What he lets go of is the first product's; the second one may go on."""

    @T.prim_func
    def products(A: T.Tensor((64, 64), HALF), B: T.Tensor((64, 64), HALF), C: T.Tensor((64, 64), WIDE)):
        with T.Kernel(1, threads=256):
            a, b = T.alloc_shared((64, 64), HALF), T.alloc_shared((64, 64), HALF)
            free = T.alloc_barrier(128)
            T.copy(A, a)
            T.copy(B, b)
            with T.ws(0):
                c, d = T.alloc_fragment((64, 64), WIDE), T.alloc_fragment((64, 64), WIDE)
                T.wgmma_gemm(a, a, c, clear_accum=True)
                T.wgmma_gemm(b, b, d, clear_accum=True)
                if told:
                    T.wait_wgmma(1)
                T.mbarrier_arrive(free)
                for i, j in T.Parallel(64, 64):
                    C[i, j] = c[i, j] + d[i, j]
            with T.ws(1):
                T.mbarrier_wait_parity(free, 0)
                for i, j in T.Parallel(64, 64):
                    a[i, j] = 0

    found = order(products, "tl::mbarrier_arrive(")
    assert found[found.index("tl::mbarrier_arrive(") - 1] == f"wgmma_wait<{int(told)}>"
    a, b = halves(rng, (64, 64), (64, 64))
    want = sum(x.astype(np.float64) @ x.astype(np.float64) for x in (a, b))
    agree(products, [a, b, np.zeros((64, 64), WIDE)], want, 1e-4, MODES[:2])
