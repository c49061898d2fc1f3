"""Elements of fragments that threads read by themselves: the same answer as the interpreter's, or an error with its line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang.language as T
from tile_compiler.errors import UnsupportedOnTarget


def test_a_serial_loop_over_a_fragment(rng: Any, proved: Any) -> None:
    @T.prim_func
    def prefix(A: T.Tensor((16,), "float32"), B: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((16,), "float32")
            total = T.alloc_var("float32", init=0.0)
            T.copy(A, f)
            for i in T.serial(16):
                total = total + f[i]
                B[i] = total

    trace, ctx = proved(prefix, [rng.standard_normal(16).astype("float32"), np.zeros(16, "float32")])
    assert any("f goes through shared memory, as all threads read it" in text for _, text in ctx.report.notes)
    assert ctx.shared_bytes == {0: 64}


@pytest.mark.parametrize("arch", ["sm_80", "gfx942"])
def test_a_reduced_value_decides_for_the_block(rng: Any, proved: Any, arch: str) -> None:
    @T.prim_func
    def decided(A: T.Tensor((4, 32), "float32"), B: T.Tensor((4, 32), "float32")):
        with T.Kernel(1, threads=64):
            f, most = T.alloc_fragment((4, 32), "float32"), T.alloc_fragment((4,), "float32")
            T.copy(A, f)
            T.reduce_max(f, most, dim=1)
            for r in T.serial(4):
                if most[r] > 1.5:
                    for j in T.Parallel(32):
                        B[r, j] = f[r, j] / most[r]

    proved(decided, [rng.standard_normal((4, 32)).astype("float32"), np.zeros((4, 32), "float32")], arch=arch)


def test_a_fragment_that_the_loop_changes_is_copied_in_every_iteration(rng: Any, proved: Any) -> None:
    @T.prim_func
    def halved(A: T.Tensor((32,), "float32"), B: T.Tensor((5,), "float32")):
        with T.Kernel(1, threads=32):
            f = T.alloc_fragment((32,), "float32")
            T.copy(A, f)
            for k in T.serial(5):
                B[k] = f[3] + f[31 - k]
                for i in T.Parallel(32):
                    f[i] = f[i] * 0.5

    proved(halved, [rng.standard_normal(32).astype("float32"), np.zeros(5, "float32")])


def test_threads_of_a_part_of_the_block_read_what_was_copied_before(rng: Any, proved: Any) -> None:
    @T.prim_func
    def some(A: T.Tensor((32,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((32,), "float32")
            tx = T.get_thread_binding()
            T.copy(A, f)
            if tx < 40:
                B[tx] = f[(tx * 7) % 32]

    proved(some, [rng.standard_normal(32).astype("float32"), np.zeros(64, "float32")])


def test_a_condition_that_its_own_loop_changes_is_an_error(lower: Any) -> None:
    @T.prim_func
    def shrinking(A: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            f = T.alloc_fragment((32,), "float32")
            T.copy(A, f)
            while f[0] > 1:
                for i in T.Parallel(32):
                    f[i] = f[i] * 0.5
            T.copy(f, A)

    with pytest.raises(UnsupportedOnTarget) as caught:
        lower(shrinking)
    text = str(caught.value)
    assert "an element of the fragment f is read by threads that do not hold it" in text
    assert "while f[0] > 1" in text
    assert "T.copy f to a shared buffer" in text


def test_an_element_that_each_thread_chooses_to_write_is_an_error(lower: Any) -> None:
    @T.prim_func
    def scalar(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((64,), "float32")
            T.copy(A, f)
            f[T.get_thread_binding()] = 1

    with pytest.raises(UnsupportedOnTarget) as caught:
        lower(scalar)
    assert "f[T.get_thread_binding()] = 1" in str(caught.value)
    assert "write f in a loop of T.Parallel" in str(caught.value)
