"""Writes to places that memory decides: barriers around them, and what is left to the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mutants import mutants, refuted

import tilelang
import tilelang.language as T
from tile_compiler.simt.errors import SharedMemoryRace
from tile_compiler.simt.repetition import Repetition
from tile_runtime_cpu.emulator.report import EmulationError


@T.prim_func
def rounds(P: T.Tensor((3, 256), "int32"), A: T.Tensor((3, 256), "float32"), B: T.Tensor((256,), "float32")):
    with T.Kernel(1, threads=128):
        S = T.alloc_shared((256,), "float32")
        T.clear(S)
        for t in T.serial(3):
            for i in T.Parallel(256):
                S[P[t, i]] = A[t, i]
        for i in T.Parallel(256):
            B[i] = S[i]


def permutations(rng: np.random.Generator) -> list[Any]:
    order = np.stack([rng.permutation(256) for _ in range(3)]).astype("int32")
    return [order, rng.standard_normal((3, 256)).astype("float32"), np.zeros(256, "float32")]


def test_scatter_through_a_permutation_compiles_with_its_barriers(rng: Any, proved: Any) -> None:
    trace, ctx = proved(rounds, permutations(rng))
    assert "threads write different elements of S" in " ".join(ctx.report.assumed)
    found = [refuted(mutant) for mutant, _ in mutants(trace.steps[-1].after)]
    assert len(found) == 2  # between rounds, and before the reads
    assert all(found)


@pytest.mark.parametrize("target", ["cuda -arch=sm_80", "hip -mcpu=gfx942"])
def test_emulator_finds_two_threads_in_one_element(rng: Any, target: str) -> None:
    args = permutations(rng)
    args[0][1, 200] = args[0][1, 3]
    kernel = tilelang.compile(rounds, target=target, execution="emulate")
    with pytest.raises(EmulationError, match="race"):
        kernel(*args)


def test_two_scatters_in_one_statement_name_the_repair(lower: Any) -> None:
    @T.prim_func
    def twice(P: T.Tensor((256,), "int32"), B: T.Tensor((512,), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((512,), "float32")
            for i in T.Parallel(256):
                S[P[i]] = 1
                S[P[i] + 1] = 2
            T.copy(S, B)

    with pytest.raises(SharedMemoryRace, match=r"write it in a loop of its own, which gets a barrier, or by T\.atomic"):
        lower(twice)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_long_loop_that_loads_registers_from_versions_is_not_walked_to_its_end(
    lower: Any, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """What a register gets from memory is unknown in any iteration: it keeps no loop from repeating."""
    loops: list[Repetition] = []
    plain = Repetition.__init__

    def noted(self: Repetition, *args: Any) -> None:
        plain(self, *args)
        loops.append(self)

    @T.prim_func
    def sums(A: T.Tensor((400 * 32, 64), dtype), B: T.Tensor((32, 64), dtype)):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((32, 64), dtype)
            total = T.alloc_fragment((32, 64), dtype)
            T.clear(total)
            for k in T.Pipelined(400, num_stages=3):
                T.copy(A[k * 32, 0], a)
                for i, j in T.Parallel(32, 64):
                    total[i, j] += a[i, j]
            T.copy(total, B)

    monkeypatch.setattr(Repetition, "__init__", noted)
    lower(sums)
    assert [(loop.regular, loop.period) for loop in loops] == [(True, 3)]
