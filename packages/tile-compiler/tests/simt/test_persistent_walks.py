"""Tiles whose coordinates are no longer affine in the loop's variable: the checker finds where they repeat."""

from __future__ import annotations

from typing import Any

import pytest
from device_texts import lowered
from mutants import all_needed

import tilelang.language as T
from tile_compiler.simt.repetition import Repetition
from tile_compiler.simt.scenarios import scenarios
from tilelang.ir import tile_ir

NAMES = ("m", "n", "times", "blocks", "block")


def turned_tiles() -> Any:
    """Tiles of matrices of any size, in groups, each turned by way of shared memory; those inside it without masks."""
    m, n, times = T.dynamic("m"), T.dynamic("n"), T.dynamic("times")

    @T.prim_func
    def turned_tiles(A: T.Tensor((times, m, n), "float32"), C: T.Tensor((times, m, n), "float32"), blocks: T.int32):
        with T.Kernel(blocks, threads=128) as block:
            tile = T.alloc_shared((32, 32), "float32")
            for by, strip in T.Persistent([T.ceildiv(m, 32), T.ceildiv(n, 32) * times], blocks, block, 4):
                bx, time = strip % T.ceildiv(n, 32), strip // T.ceildiv(n, 32)
                T.copy(A[time, by * 32, bx * 32], tile)
                for i, j in T.Parallel(32, 32):
                    C[time, by * 32 + i, bx * 32 + j] = tile[31 - i, 31 - j]

    return turned_tiles


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The iterations that the checker walks, of loops that may repeat."""
    found: list[Any] = []
    skip = Repetition.skip

    def skipped(self: Repetition, seen: Any, number: int, *args: Any) -> int:
        found.append(number)
        return skip(self, seen, number, *args)

    monkeypatch.setattr(Repetition, "skip", skipped)
    return found


def test_tiles_of_a_block_that_stays_repeat(lower: Any, walked: list[Any]) -> None:
    lower(turned_tiles())
    assert 0 < len(walked) < 500  # of the 512 that are walked at most for each of two dozen sizes


def test_sizes_that_are_drawn_lead_to_few_turns() -> None:
    """Where the loops inside vary from turn to turn, all of them may have to be walked."""
    func = next(s.after for s in lowered(turned_tiles())[0].steps if s.name == "check_synchronization")
    (kernel,) = tile_ir.kernels(func)
    chosen, _ = scenarios(func, kernel, set(), {})
    turns = []
    for one in chosen:
        m, n, times, blocks, block = ({str(v.name): int(s[0]) for v, s in one.items()}[name] for name in NAMES)
        turns.append(-(-(-(-m // 32) * -(-n // 32) * times - block) // blocks))
    assert 6 <= max(turns) <= 64


def test_every_barrier_of_such_a_loop_is_needed(lower: Any) -> None:
    trace, _ = lower(turned_tiles())
    # Before a tile is read, with masks and without, and before the next one is written.
    assert all_needed(trace.steps[-1].after) == 3
