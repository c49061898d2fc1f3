"""Matrix products of warpgroups: what they read of shared memory, and the registers that they keep busy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import is_call
from tile_compiler.simt.block_memory import BlockMemory, Memory
from tile_compiler.simt.checker.descriptors import Matrix, Product, places
from tile_compiler.simt.checker.engines import Batch, Engines
from tile_compiler.simt.checker.knowledge import WARP
from tile_compiler.simt.checker.refutations import busy_registers, no_fence, race, unfenced_registers
from tile_compiler.simt.shadow import MANY, Meeting
from tile_compiler.simt.thread_values import Array, Unknown
from tilelang.ir import tile_ir

WARPGROUP = 4 * WARP


class Products(BlockMemory):
    """A product reads in the name of an engine of its warps: who waits for it learns of that.

    `registers` are those that products of the kernel use; `mentioned`: which of them a statement (reads, writes).
    """

    registers: set[Any]
    mentioned: dict[Any, tuple[frozenset[Any], frozenset[Any]]]

    def _value_of(self, node: Any) -> Array:
        return np.broadcast_to(self.value(node), (self.threads,))

    def _value_at(self, node: Any, threads: list[int]) -> list[int]:
        """What an expression is for some threads."""
        value = self.value(node)
        return [int(value[0])] * len(threads) if len(value) == 1 else value[threads].tolist()

    def _warpgroups(self, threads: Array) -> list[int]:
        return [int(g) for g in np.flatnonzero(np.bincount(self.lane[threads] // WARPGROUP))]

    def _fetches(self, memory: Memory, place: Array, who: Array | int, stmt: Any, engines: Engines) -> None:
        """The asynchronous proxy of threads (or of a warpgroup) may read these places."""
        prints, knowledge = engines.footprints, engines.knowledge
        for kind in ("write", "atomic", "fill"):
            track = prints.tracks[kind]
            if isinstance(who, int):
                known = prints.known_to_warpgroup(kind, place, who, knowledge)
            else:
                known = prints.known(kind, place, who, knowledge)
            if not known.all():
                at = int(place[int(np.argmax(~known))])
                found = Meeting(at, kind, int(track.site[at]), int(track.agent[at]), -1)
                raise race(
                    self._named(memory, at), self.sites[found.before], found, self.sites[self._site(stmt)], "fetch"
                )
            if kind != "fill":
                visible = prints.visible(kind, place, who, knowledge, engines.fences)
                if not visible.all():
                    at = int(place[int(np.argmax(~visible))])
                    raise no_fence(
                        self._named(memory, at), self.sites[int(track.site[at])], self.sites[self._site(stmt)]
                    )

    def _product(self, name: str, node: Any, stmt: Any, threads: Array, engines: Engines) -> None:
        if name == "tl::wgmma_fence":
            engines.touched = {}
            return
        groups = self._warpgroups(threads)
        if not name.startswith(("tl::wgmma_commit", "tl::wgmma_wait<")):
            self._multiply(name, node, stmt, groups, engines)
            return
        for group in groups:
            queue = engines.queue(engines.products, group)
            if name == "tl::wgmma_commit":
                queue.commit()
            else:
                done = queue.wait(int(name[15:-1]))
                mine = threads & (self.lane // WARPGROUP == group)
                for warp in range(
                    group * 4, group * 4 + 4
                ):  # groups of products are the warpgroup's (PTX, commit_group)
                    engines.knowledge.learn(mine, engines.agents.products(warp), done)

    def _multiply(self, name: str, node: Any, stmt: Any, groups: list[int], engines: Engines) -> None:
        product = Product.of(name)
        accumulator = self._register(node.args[1])
        operand = self._register(node.args[2]) if product.from_registers else None
        sides = ((2, 64, product.k_major[0]), (3, product.n, product.k_major[1]))[product.from_registers :]
        matrices = [self._matrices(node.args[n], extent, product.k, k_major, groups) for n, extent, k_major in sides]
        for group, matrix in zip(groups, zip(*matrices)):
            self._multiply_by(product, accumulator, operand, matrix, stmt, group, engines)

    def _multiply_by(
        self,
        product: Product,
        accumulator: Any,
        operand: Any,
        matrices: Iterable[Matrix],
        stmt: Any,
        group: int,
        engines: Engines,
    ) -> None:
        site = self._site(stmt)
        queue = engines.queue(engines.products, group)
        shape = (product.n, product.k)
        for batch in queue.under_way():
            clashes = [s for r, other, s in batch.accumulators if r == accumulator and other != shape]
            clashes += [s for r, _, s in batch.accumulators if r == operand]
            clashes += [s for r, s in batch.operands if r == accumulator]
            if clashes:
                raise busy_registers(str(accumulator.name), self.sites[clashes[0]], self.sites[site])
        for held in (accumulator, operand):
            if held is not None and held in engines.touched:
                before = engines.touched[held]
                raise unfenced_registers(str(held.name), None if before < 0 else self.sites[before], self.sites[site])
        bits = 0b1111 << 4 * group
        for memory, place, number in matrices:
            self.trace.append(hash((site, group, number)))
            self._fetches(memory, place, group, stmt, engines)
            known = engines.footprints.known_to_warpgroup("fetch", place, group, engines.knowledge)
            engines.footprints.note("fetch", place, MANY, bits, self.now, site, known)
        engines.acted[engines.agents.products(np.arange(4 * group, 4 * group + 4))] = self.now
        busy = frozenset() if operand is None else frozenset({(operand, site)})
        queue.open |= Batch(self.now, frozenset({(accumulator, shape, site)}), busy)

    def _register(self, argument: Any) -> Any:
        buffer = argument.args[0].source
        return self.roots.get(buffer, buffer)

    def _matrices(self, node: Any, extent: int, k: int, k_major: bool, groups: list[int]) -> list[Matrix]:
        """For each warpgroup the matrix that a descriptor says; all of the buffer if it cannot be evaluated."""
        start, leading, stride = node.args[1:4]
        memory = self.memories[start.args[0].source]
        assert memory.base is not None
        swizzle = int(str(node.args[0].value).removeprefix("tl::wgmma_descriptor<").rstrip(">"))
        leaders = [group * WARPGROUP for group in groups]
        try:
            element = self._value_at(start.args[0].indices[0], leaders)
            advance = self._value_at(node.args[4], leaders) if len(node.args) > 4 else [0] * len(leaders)
            strides = (int(self.value(leading)[0]), int(self.value(stride)[0]))
        except Unknown:
            whole = memory.base + np.arange(memory.places)
            each = [whole + self.lanes.block[g * WARPGROUP] * self.span_places for g in groups]
            return [Matrix(memory, place, hash(place.tobytes())) for place in each]
        found = []
        for thread, number, further in zip(leaders, element, advance):
            base = memory.base + int(self.lanes.block[thread]) * self.span_places
            first = base * memory.unit + number * memory.bits // 8 + further
            form = (extent, k, k_major, swizzle, *strides)
            found.append(Matrix(memory, *places(form, first, memory.unit, self.shared_places)))
        return found

    # -- registers --------------------------------------------------------------------------------------------------

    def _use_registers(self, node: Any) -> None:
        """A statement other than a product touches registers; none of them may be in use by a product."""
        read, written = self._registers_in(node)
        if not (read | written) or self.state is None or self.state.engines is None:
            return
        engines, threads = self.state.engines, self.active
        for group in self._warpgroups(threads):
            for batch in engines.queue(engines.products, group).under_way():
                busy = [(r, s) for r, _, s in batch.accumulators if r in read | written]
                busy += [(r, s) for r, s in batch.operands if r in written]
                for register, site in busy:
                    raise busy_registers(str(register.name), self.sites[site], self.sites[self._site(node)])
        if threads.any():
            engines.touched |= dict.fromkeys(read | written, self._site(node))

    def _registers_in(self, node: Any) -> tuple[frozenset[Any], frozenset[Any]]:
        """The registers of products that a statement (reads, writes)."""
        if node not in self.mentioned:
            read: set[Any] = set()
            written: set[Any] = set()
            for n in tile_ir.walk(node, tir.BufferStore, ir.TensorLoad, ir.Call):
                if isinstance(n, tir.BufferStore):
                    written.add(self.roots.get(n.buffer, n.buffer))
                elif isinstance(n, ir.TensorLoad):
                    read.add(self.roots.get(n.source, n.source))
                elif is_call(n, "tirx.call_extern"):
                    if str(n.args[0].value).startswith("tl::wgmma"):
                        read, written = set(), set()
                        break
                    for argument in n.args[1:]:
                        if is_call(argument, "tirx.address_of") and isinstance(argument.args[0], ir.TensorLoad):
                            written.add(self._register(argument))
            self.mentioned[node] = (frozenset(read & self.registers), frozenset(written & self.registers))
        return self.mentioned[node]
