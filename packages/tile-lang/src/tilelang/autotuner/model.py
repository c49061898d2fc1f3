"""The model: from a traced kernel and a machine to what it cannot do, and to the time it should take.

Two questions, apart. `impossible` is certain: such a kernel would not compile, not launch, or keep its accumulators in
memory. `estimate` is an ordering: bounds of matrix units, shared memory, L2, global memory and latency, times the waves
that the blocks make on the multiprocessors. Within a kernel family it ranks; its seconds are not a promise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilelang.autotuner.machine import Machine

if TYPE_CHECKING:  # it brings TVM, which a machine that only measures lacks
    from tilelang.ir.tile_work import LaunchWork, Product, TileWork

SHARED_BYTES_PER_CLOCK = 128  # of a multiprocessor (CUDA programming guide: 32 banks of 4 bytes)
L2_BYTES_PER_CLOCK = 46  # of a multiprocessor: 64 at most, about 6150 for all 132 of an H100 (DeepGEMM's heuristics)
MEMORY_CLOCKS = 800  # from a load of global memory to its use
STEP_CLOCKS = 120  # wait, barrier and addresses of one step of a pipeline
LAUNCH_SECONDS = 2e-6
UNHIDDEN = 0.15  # of the work besides the slowest: kernels overlap most of it, and it decides between equal bounds
OTHER_REGISTERS = 40  # addresses, loop counters and operands on their way, beside the fragments
DEFAULT_THREADS = 128


@dataclass(frozen=True)
class Estimate:
    """`seconds`, what they are bounded `by`, and `waves`: the share of multiprocessors that the last wave leaves busy."""

    seconds: float
    by: str
    waves: float
    blocks: int

    def words(self, machine: Machine) -> str:
        """For a reason: what the time consists of."""
        busy = f"{self.blocks} blocks use {100 * self.waves:.0f}% of {machine.multiprocessors} multiprocessors"
        return f"{1e6 * self.seconds:.1f} us by {self.by}, {busy}"


def impossible(work: TileWork, machine: Machine) -> str | None:
    """Why no compiler can make this run well on the machine, or None."""
    for launch in work.launches:
        needed, names = shared_lower_bound(launch)
        if needed > machine.shared_per_block:
            each = ", ".join(f"{n} {launch.tiles[n].bytes}" for n in names)
            return f"shared memory: {needed} bytes ({each}) at once, a block has at most {machine.shared_per_block}"
        threads = launch.threads or DEFAULT_THREADS
        for product in launch.products:
            tile = launch.tiles.get(product.operands[2])
            if tile is None or tile.scope != "fragment":
                continue
            registers = -(-tile.bytes // (4 * threads))
            if registers >= machine.registers_per_thread:
                return (
                    f"registers: {tile.name} alone takes {registers} in each of {threads} threads, "
                    f"a thread has {machine.registers_per_thread}"
                )
    return None


def shared_lower_bound(launch: LaunchWork) -> tuple[int, tuple[str, ...]]:
    """Bytes of shared tiles that are certainly alive at once, and their names: those of one pipelined loop."""
    most: tuple[int, tuple[str, ...]] = (0, ())
    single = [(name,) for name, tile in launch.tiles.items() if tile.scope == "shared"]
    for names in (*launch.together, *single):
        most = max(most, (sum(launch.tiles[n].bytes for n in names), names))
    return most


def estimate(work: TileWork, machine: Machine) -> Estimate | None:
    """The time of one call; None where sizes or rates are not known."""
    parts = [_launch_estimate(launch, machine) for launch in work.launches]
    known = [p for p in parts if p is not None]
    if len(known) != len(parts) or not known:
        return None
    longest = max(known, key=lambda p: p.seconds)
    seconds = sum(p.seconds for p in known)
    dram = (work.tensor_bytes or 0) / machine.bandwidth
    by = longest.by
    if dram > seconds:
        seconds, by = dram, "global memory"
    return Estimate(seconds + LAUNCH_SECONDS * len(known), by, longest.waves, longest.blocks)


def _launch_estimate(launch: LaunchWork, machine: Machine) -> Estimate | None:
    if launch.blocks is None or not launch.blocks:
        return None
    if any(p.dtype not in machine.tensor for p in launch.products):
        return None
    threads = launch.threads or DEFAULT_THREADS
    resident = max(1, blocks_per_multiprocessor(launch, machine))
    clocks = {
        "matrix units": _tensor_clocks(launch, machine),
        "shared memory": _shared_bytes(launch, threads // machine.group) / SHARED_BYTES_PER_CLOCK,
        "L2": (launch.read_bytes + launch.written_bytes) / L2_BYTES_PER_CLOCK,
    }
    by = max(clocks, key=lambda name: clocks[name])
    # Work that shares a multiprocessor is bounded by its rates; a block alone by the latency of its own steps.
    rounds = math.ceil(launch.blocks / machine.multiprocessors)
    waits = launch.steps * (STEP_CLOCKS + _exposed_clocks(launch, clocks[by] / max(1, launch.steps))) / resident
    shared_rate = rounds * (clocks[by] + UNHIDDEN * (sum(clocks.values()) - clocks[by] + waits))
    turns = math.ceil(launch.blocks / (machine.multiprocessors * resident))
    alone = turns * (_latency_clocks(launch, clocks["matrix units"]) + 2 * MEMORY_CLOCKS)
    if alone > shared_rate:
        by = "latency of its steps"
    waves = launch.blocks / (rounds * machine.multiprocessors)
    return Estimate(max(shared_rate, alone) / machine.clock, by, waves, launch.blocks)


def fragment_registers(launch: LaunchWork) -> int:
    """Registers of a thread if all fragments live at once and spread over the threads."""
    threads = launch.threads or DEFAULT_THREADS
    return sum(-(-t.bytes // (4 * threads)) for t in launch.tiles.values() if t.scope == "fragment")


def blocks_per_multiprocessor(launch: LaunchWork, machine: Machine) -> int:
    """Blocks that should fit on a multiprocessor at once."""
    threads = launch.threads or DEFAULT_THREADS
    registers = min(machine.registers_per_thread, fragment_registers(launch) + OTHER_REGISTERS)
    return min(machine.occupancy(threads, registers, shared_lower_bound(launch)[0]).values())


def _tensor_clocks(launch: LaunchWork, machine: Machine) -> float:
    """Clocks of one multiprocessor's matrix units for a block."""
    per_clock = machine.multiprocessors * machine.clock
    return sum(p.flops * per_clock / machine.tensor[p.dtype] for p in launch.products)


def _shared_bytes(launch: LaunchWork, groups: int) -> float:
    """Bytes through shared memory: tiles written once, each group's operands read for its part of the product."""
    moved = float(launch.read_bytes)
    for product in launch.products:
        rows, columns = group_grid(product, max(1, groups))
        a, b = (launch.tiles.get(name) for name in product.operands[:2])
        for tile, reads, extent in ((a, columns, product.m), (b, rows, product.n)):
            if tile is not None and tile.scope == "shared":
                moved += product.times * reads * extent * product.k * product.bits / 8
    return moved


def group_grid(product: Product, groups: int) -> tuple[int, int]:
    """How the groups share a product: rows and columns of them, by its policy; square tiles where it is free."""
    if product.policy == 1:
        return groups, 1
    if product.policy == 2:
        return 1, groups
    shapes = [(r, groups // r) for r in range(1, groups + 1) if groups % r == 0]
    return min(shapes, key=lambda s: s[1] * product.m + s[0] * product.n)


def _exposed_clocks(launch: LaunchWork, work: float) -> float:
    """Clocks that one step waits for its tiles, if it has `work` clocks and the pipeline runs `stages - 1` steps ahead."""
    return max(0.0, MEMORY_CLOCKS - max(0, launch.stages - 1) * work)


def _latency_clocks(launch: LaunchWork, work: float) -> float:
    """Clocks of a block that has a multiprocessor to itself: its steps one after the other, of `work` clocks in all."""
    if not launch.steps:
        return work + MEMORY_CLOCKS
    return work + launch.steps * (STEP_CLOCKS + _exposed_clocks(launch, work / launch.steps))
