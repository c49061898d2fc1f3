"""What a block's asynchronous work does: bulk copies, mbarriers, matrix products of warpgroups, fences of the proxies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import is_call
from tile_compiler.signature import TENSOR_MAP
from tile_compiler.simt.block_memory import ASYNCHRONOUS, Memory, orders
from tile_compiler.simt.checker.engines import Batch, Engines
from tile_compiler.simt.checker.footprints import ORDINARY
from tile_compiler.simt.checker.knowledge import WARP, Agents, Knowledge
from tile_compiler.simt.checker.mbarriers import Mbarrier
from tile_compiler.simt.checker.products import Products
from tile_compiler.simt.checker.refutations import (
    at_exit,
    left_too_early,
    mismatch,
    no_fence_before_fill,
    not_ready,
    race,
    stuck_warps,
)
from tile_compiler.simt.checker.remote import is_remote
from tile_compiler.simt.checker.replay import CLUSTER, WITHOUT_PRODUCERS, Replay
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.shadow import Meeting
from tile_compiler.simt.thread_values import Array, Unknown
from tilelang.ir import tile_ir

WARPGROUP = 4 * WARP

_WAIT = "tl::mbarrier_wait"
_LOADS = ("tl::tma_load", "tl::bulk_load")
_STORES = ("tl::tma_store", "tl::tma_reduce", "tl::bulk_store", "tl::bulk_reduce")
_HARDWARE = ("tl::sync_barrier", "tl::arrive_barrier")
_IGNORED = ("tl::mbarrier_inval", "tl::fence")
_WITHOUT_EFFECT = ("tl::tma_prefetch", "tl::bulk_prefetch", "tl::wgmma_hold", "tl::wgmma_descriptor")
_NOT_FOLLOWED = (
    "tl::cluster_",
    "bulk_load_multicast",
    "bulk_copy_cluster",
    "arrive_expect_tx_cluster",
    "mbarrier_try_wait",
    "arrive_threads",
    "mbarrier_test_wait",
    "cp_async_mbarrier_arrive",
)


class Asynchronous(Products):
    """The calls that order accesses by mbarriers and fences, and those whose accesses are not their thread's own.

    A bulk copy is made at once, in the name of an agent that its mbarrier has: who has not waited for the phase of
    which its bytes are a part does not know of it. A product, and a bulk store, read in the name of an engine of their
    warp: who waits for them learns of it. In this way one sequence of events, in the order of the program, decides
    what every other order that the waits allow can do.
    """

    def __init__(
        self,
        kernel: tile_ir.Kernel,
        ctx: SimtContext,
        tracked: set[Any],
        finely: bool = False,
        ranks: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(kernel, ctx, tracked, finely, ranks)
        self.allocated: list[tuple[str, int]] = []  # name and arrivals of each mbarrier
        self.first_of: dict[Any, int] = {}  # the number of the first mbarrier of a buffer
        self.initializes = False
        calls: list[Any] = []
        for node in tile_ir.walk(kernel.body, tir.AllocBuffer, ir.Call):
            if isinstance(node, tir.AllocBuffer) and str(node.buffer.scope()) == tile_ir.BARRIER:
                self._allocate(node)
            elif is_call(node, "tirx.call_extern"):
                calls.append(node)
        names = [str(c.args[0].value) for c in calls]
        self.initializes = bool(self.allocated)
        together = self.lanes.blocks > 1
        self.is_asynchronous = self.produces or together or any(n.startswith(ASYNCHRONOUS) for n in names)
        products = [c for c, n in zip(calls, names) if n.startswith("tl::wgmma_m64")]
        held = [a.args[0].source for c in products for a in c.args[1:3] if is_call(a, "tirx.address_of")]
        self.registers = {self.roots.get(b, b) for b in held}
        self.mentioned: dict[Any, tuple[frozenset[Any], frozenset[Any]]] = {}
        self.box_bytes: dict[Any, int] = {}
        self.joint = _setup(kernel.body)
        self.replay = Replay()
        self.undecided = 0  # branches around here that memory decides
        self.trusted = False  # whether the kernel's barriers are assumed to order what they are meant to order

    def _allocate(self, node: tir.AllocBuffer) -> None:
        notes = {str(k): tile_ir.plain(v) for k, v in (node.annotations or {}).items()}
        size = int(node.buffer.ty.shape[0])
        counts = [int(n) for n in notes.get(tile_ir.ARRIVALS, [1] * size)]
        self.first_of[node.buffer] = len(self.allocated)
        self.allocated += [(f"{node.buffer.name}[{n}]", count) for n, count in enumerate(counts)]

    def _engines(self) -> Engines | None:
        """The state of asynchronous work at the kernel's start, if there is any."""
        self.trusted, self.replay, self.undecided = False, Replay(), 0
        if not self.is_asynchronous:
            return None
        allocated = self.allocated * self.lanes.blocks
        agents = Agents(np.flatnonzero(self.consumers), self.threads, len(allocated))
        empty = Knowledge.none(agents)
        barriers = [Mbarrier.fresh(name, count, n, empty) for n, (name, count) in enumerate(allocated)]
        engines = Engines(self.shared_places, agents, barriers, self.lanes.blocks)
        engines.touched = dict.fromkeys(self.registers, -1)
        return engines

    def _maps(self, host: list[Any]) -> None:
        """The bytes that one box of each tensor map has."""
        for stmt in host:
            if isinstance(stmt, tir.Bind) and is_call(stmt.value, TENSOR_MAP):
                tensor = stmt.value.args[0].args[0]
                box = [int(n) for n in tile_ir.attrs_of(stmt.value)["box"]]
                self.box_bytes[stmt.var] = int(np.prod(box)) * Memory(tensor, 0, 1).bits // 8

    # -- calls ------------------------------------------------------------------------------------------------------

    def _asynchronous(self, name: str, node: Any, stmt: Any) -> bool:
        if not orders(name) or name == "tl::sync_threads" or self.state is None or self.state.engines is None:
            return name.startswith("tl::wgmma_descriptor")
        threads, engines = self.active, self.state.engines
        if not threads.any() or name in _IGNORED or name.startswith(_WITHOUT_EFFECT):
            return True
        self.now += 1
        engines.acted[np.flatnonzero(threads)] = self.now
        self.trace.append(hash((name, self._site(stmt), threads.tobytes())))
        if name == "tl::cluster_sync":
            self._cluster_barrier(stmt, engines)
        elif any(word in name for word in _NOT_FOLLOWED) or (is_remote(name) and self.lanes.blocks == 1):
            self._trust(stmt)
        elif name == "tl::sync_warp":
            for warp in np.unique(self.lane[threads] // WARP):
                engines.knowledge.join(threads & (self.lane // WARP == warp), self.now)
        elif name in _HARDWARE:
            self._take_turns(node, stmt, threads, waits=name == _HARDWARE[0])
        elif name.startswith("tl::mbarrier"):
            if not self.trusted or name.startswith(_WAIT):
                self._at_barrier(name, node, stmt, threads, engines)
        elif name == "tl::fence_mbarrier_init":
            self._fence_initialized(threads, engines)
        elif name.startswith("tl::fence_proxy_async"):
            engines.footprints.fence(threads, self.now)
            engines.fences.remember(threads, engines.knowledge, self.now)
            self._fence_initialized(threads, engines)
        elif name.startswith(_LOADS):
            self._load(name, node, stmt, threads, engines)
        elif name.startswith(_STORES):
            self._stored(name, node, stmt, threads, engines)
        elif name.startswith("tl::bulk_"):
            self._groups_of_stores(name, threads, engines)
        elif name.startswith("tl::wgmma"):
            self._product(name, node, stmt, threads, engines)
        return True

    def _trust(self, stmt: Any) -> None:
        """The kernel synchronizes in a way that is not followed: from here on its barriers are taken to be right."""
        self.trusted = True
        self.ctx.report.assume(stmt.span, "barriers that the kernel manages itself order what they are meant to order")

    # -- mbarriers --------------------------------------------------------------------------------------------------

    def _cluster_barrier(self, stmt: Any, engines: Engines) -> None:
        """All threads of all blocks meet; at the kernel's beginning the producers too."""
        assert self.state is not None
        self._all_reach(stmt, together=True)
        self.state.barrier()
        engines.knowledge.join(self.consumers | (stmt in self.joint), self.now)
        site, size = self._site(stmt), -(-self.count // WARP) * WARP * self.lanes.blocks
        if stmt in self.joint or not self.produces:
            self.replay.hardware(self.consumers, self.lane, CLUSTER, size, True, site)
            return
        size += WARP * self.lanes.blocks
        self.replay.hardware(self.consumers, self.lane, WITHOUT_PRODUCERS, size, True, site)

    def _barriers(self, argument: Any, threads: Array, block: Array | None = None) -> Iterator[tuple[Mbarrier, Array]]:
        """The mbarriers that threads name, and which threads do: in their own blocks, or in `block` of the cluster."""
        assert self.state is not None
        assert self.state.engines is not None
        place = argument.args[0]
        index = self._value_of(place.indices[0]) + self.first_of[place.source]
        index = index + len(self.allocated) * (self.lanes.block if block is None else block)
        for number in distinct(index[threads]):
            yield self.state.engines.barriers[int(number)], threads & (index == number)

    def _all_reach(self, node: Any, together: bool = False) -> Array:
        """The threads that come to a barrier: all that are walked (`together`), or all of a block and none of another."""
        raise NotImplementedError

    def _at_barrier(self, name: str, node: Any, stmt: Any, threads: Array, engines: Engines) -> None:
        site, knowledge = self._site(stmt), engines.knowledge
        here = self.sites[site]
        arguments = list(node.args[1:])
        try:
            block = self._value_of(arguments.pop(1)) if is_remote(name) else None
            found = list(self._barriers(arguments[0], threads, block))
            given = self._value_of(arguments[1]) if len(arguments) > 1 else np.ones(self.threads, np.int64)
        except (Unknown, IndexError):  # a block that the cluster does not have
            self._trust(stmt)
            return
        if block is not None:
            engines.remote.note(threads, block, self.lanes.block, self.now, site)
        self.trace.append(hash((tuple(b.number for b, _ in found), given[threads].tobytes())))
        for barrier, who in found:

            def refute(problem: str, which: Mbarrier, **facts: Any) -> Exception:
                return mismatch(problem, which, self.sites, here, facts)

            amount = int(given[who][0])
            if name == "tl::mbarrier_init":
                self._initialize(barrier, int(np.argmax(who)), amount, stmt)
                continue
            if not self.trusted:
                self._usable(barrier, who, stmt, engines)
            if self.trusted or (barrier.ended is None):
                if name.startswith(_WAIT):
                    self._trust(stmt)
                    knowledge.acquire(who, np.full(engines.agents.count, self.now, np.int32))
                continue
            if name.startswith(_WAIT):
                self._wait(barrier, who, given, stmt, engines, refute)
                self.replay.mbarrier(who, self.lane, barrier.number, 0, barrier.ended * barrier.count, site)
                barrier.sites["wait"] = site
                continue
            if "expect_tx" in name:
                barrier.announce(amount * int(who.sum()))
                barrier.sites["expect"] = site
            if "arrive" in name:
                count = 1 if "expect_tx" in name else amount
                barrier.arrive(who, count, self.now, knowledge, refute)
                self.replay.mbarrier(who, self.lane, barrier.number, count, 0, site)
                barrier.sites["arrive"] = site

    def _wait(self, barrier: Mbarrier, who: Array, parity: Array, stmt: Any, engines: Engines, refute: Any) -> None:
        for value in distinct(parity[who]):
            these = who & (parity == value)
            assert barrier.ended is not None
            if barrier.ended % 2 == value and barrier.outstanding >= 0 and not self.produces and self._divided(these):
                # Threads with programs of their own: the order of the text is not one in which they can run.
                self._trust(stmt)
                engines.knowledge.acquire(these, np.full(engines.agents.count, self.now, np.int32))
                continue
            barrier.wait(these, int(value), self.now, engines.knowledge, refute)

    def _take_turns(self, node: Any, stmt: Any, threads: Array, waits: bool) -> None:
        """A barrier of the hardware, by which some warps wait for others."""
        try:
            number, size = self._value_of(node.args[1]), int(self.value(node.args[2])[0])
        except Unknown:
            self._trust(stmt)
            return
        if self.undecided:
            self._trust(stmt)
        for which in distinct(number[threads]):
            self.trace.append(hash((int(which), size, waits)))
            for block in range(self.lanes.blocks):
                here = threads & (number == which) & (self.lanes.block == block)
                self.replay.hardware(here, self.lane, int(which), size, waits, self._site(stmt), block)

    def _divided(self, threads: Array) -> bool:
        return not bool((threads | ~self.consumers).all())

    def _initialize(self, barrier: Mbarrier, thread: int, count: int, stmt: Any) -> None:
        if count != barrier.count:
            raise mismatch("arrivals", barrier, self.sites, self.sites[self._site(stmt)], {"came": count})
        barrier.initialized = (thread, self.now, self._site(stmt))

    def _fence_initialized(self, threads: Array, engines: Engines) -> None:
        for barrier in engines.barriers:
            if barrier.initialized is not None and threads[barrier.initialized[0]] and not barrier.init_fence:
                barrier.init_fence = self.now

    def _usable(self, barrier: Mbarrier, who: Array, stmt: Any, engines: Engines, copies: bool = False) -> None:
        """The initialization is visible to threads, and for copies to the asynchronous proxy too."""
        if not self.initializes:
            return
        here = self.sites[self._site(stmt)]
        if barrier.initialized is None:
            raise not_ready(barrier, None, here, "")
        thread, time, site = barrier.initialized
        known = engines.knowledge.known[who, thread]
        others = self.lane[who] != thread
        if (others & (known < time)).any():
            raise not_ready(barrier, self.sites[site], here, " to all threads")
        if copies and (not barrier.init_fence or (others & (known < barrier.init_fence)).any()):
            raise not_ready(barrier, self.sites[site], here, " to asynchronous copies")

    # -- bulk copies ------------------------------------------------------------------------------------------------

    def _load(self, name: str, node: Any, stmt: Any, threads: Array, engines: Engines) -> None:
        if self.trusted:
            return
        by_map = name.startswith("tl::tma_load")
        target, barrier = node.args[1], node.args[3 if by_map else 4]
        site = self._site(stmt)
        here = self.sites[site]
        own = self.lanes.block
        found: list[tuple[Mbarrier, Array, Array]] = []  # barrier, threads, the blocks that their copies go to
        try:
            sizes = np.full(self.threads, self.box_bytes[node.args[2]]) if by_map else self._value_of(node.args[3])
            if not is_remote(name):
                found = [(*pair, own) for pair in self._barriers(barrier, threads)]
            else:
                mask = self._value_of(node.args[4])
                for block in map(np.full_like, [own] * self.lanes.blocks, range(self.lanes.blocks)):
                    told = threads & (mask >> block & 1 != 0)
                    found += [(*pair, block) for pair in self._barriers(barrier, told, block)]
                    engines.remote.note(told, block, own, self.now, site)
        except (Unknown, KeyError):
            self._trust(stmt)
            return
        for signal, who, block in found:
            self._usable(signal, who, stmt, engines, copies=True)
            for thread in np.flatnonzero(who):
                memory, place = self._bytes(target, int(thread), int(sizes[thread]), int(block[thread]))
                self.trace.append(hash((site, signal.number, place.tobytes())))
                self._overwrites(memory, place, int(thread), stmt, engines)
                agent = engines.agents.copies(signal.number)
                every = np.ones(len(place), bool)
                bit = 1 << signal.number % 64
                engines.footprints.note("fill", place, agent, bit, self.now, site, every)
                engines.acted[agent] = self.now

            def refute(problem: str, which: Mbarrier, **facts: Any) -> Exception:
                return mismatch(problem, which, self.sites, here, facts)

            engines.copies[signal.number] = (self.now, site)
            if signal.ended is not None:
                signal.copied(who, int(sizes[who][0]), self.now, engines.knowledge, refute)
            signal.sites["copy"] = site

    def _bytes(self, target: Any, thread: int, size: int, block: int) -> tuple[Memory, Array]:
        """The places of `size` bytes from the address that a thread names, in a block's memory."""
        place = target.args[0]
        is_load = isinstance(place, ir.TensorLoad)
        memory = self.memories[place.source if is_load else place]
        assert memory.base is not None
        base = memory.base + block * self.span_places
        try:
            start = int(self._value_of(place.indices[0])[thread]) if is_load else 0
        except Unknown:
            return memory, base + np.arange(memory.places)
        first = start * memory.bits // 8
        end = base - (-(first + size) // memory.unit)
        return memory, np.arange(base + first // memory.unit, min(end, (block + 1) * self.span_places))

    def _overwrites(self, memory: Memory, place: Array, thread: int, stmt: Any, engines: Engines) -> None:
        who = np.asarray([thread])
        for kind, track in engines.footprints.tracks.items():
            unknown = ~engines.footprints.known(kind, place, who, engines.knowledge)
            if unknown.any():
                at = int(place[int(np.argmax(unknown))])
                found = Meeting(at, kind, int(track.site[at]), int(track.agent[at]), thread)
                raise race(
                    self._named(memory, at), self.sites[found.before], found, self.sites[self._site(stmt)], "fill"
                )
            if kind in ORDINARY:
                held = ~engines.footprints.let_go(kind, place, who, engines.knowledge)
                if held.any():
                    at = int(place[int(np.argmax(held))])
                    first = self.sites[int(track.site[at])]
                    raise no_fence_before_fill(self._named(memory, at), kind, first, self.sites[self._site(stmt)])

    def _stored(self, name: str, node: Any, stmt: Any, threads: Array, engines: Engines) -> None:
        if self.trusted:
            return
        by_map = name.startswith("tl::tma")
        try:
            size = np.full(self.threads, self.box_bytes[node.args[1]]) if by_map else self._value_of(node.args[3])
        except (Unknown, KeyError):
            self._trust(stmt)
            return
        site = self._site(stmt)
        for thread in np.flatnonzero(threads):
            block = int(self.lanes.block[thread])
            memory, place = self._bytes(node.args[2], int(thread), int(size[thread]), block)
            self.trace.append(hash((site, int(thread), place.tobytes())))
            self._fetches(memory, place, np.asarray([thread]), stmt, engines)
            warp = int(thread) // WARP
            known = engines.footprints.known("fetch", place, np.asarray([thread]), engines.knowledge)
            bits = 1 << (engines.agents.warps + warp)
            engines.footprints.note("fetch", place, engines.agents.stores(warp), bits, self.now, site, known)
            engines.acted[engines.agents.stores(warp)] = self.now
            queue = engines.queue(engines.stores, int(thread))
            queue.open |= Batch(self.now, operands=frozenset({("stores", site)}))

    def _groups_of_stores(self, name: str, threads: Array, engines: Engines) -> None:
        for thread in (t for t in engines.stores if threads[t]):  # others have nothing to wait for
            queue = engines.stores[thread]
            if name == "tl::bulk_commit":
                queue.commit()
            elif name.startswith(("tl::bulk_wait_read<", "tl::bulk_wait<")):
                done = queue.wait(int(name[name.index("<") + 1 : -1]))
                warp = thread // WARP  # its lanes share an engine: of their stores the oldest counts
                others = [b.time for t, q in engines.stores.items() if t // WARP == warp for b in q.under_way()]
                done = min([done, *(t - 1 for t in others)])
                engines.knowledge.learn(self.lane == thread, engines.agents.stores(warp), done)

    # -- the end ----------------------------------------------------------------------------------------------------

    def _at_exit(self) -> None:
        """Nothing asynchronous may outlive the block."""
        engines = None if self.state is None else self.state.engines
        if engines is None or self.trusted:
            return
        for told in self.replay.left_to_consumers():
            self.replay.hardware(self.lanes.producers, self.lane, WITHOUT_PRODUCERS, told.amount, False, told.site)
        stuck = self.replay.stuck() if self.replay.turns else []
        if stuck:
            raise stuck_warps([self.sites[event.site] for event in stuck])
        for queue in engines.products.values():
            for batch in queue.under_way():
                site = min(s for _, _, s in batch.accumulators)
                raise at_exit("a product", self.sites[site], self.kernel, "tl::wgmma_wait<0>() before the kernel's end")
        for queue in engines.stores.values():
            for batch in queue.under_way():
                (_, site), *_ = sorted(batch.operands)
                raise at_exit("a bulk store", self.sites[site], self.kernel, "T.tma_store_wait() by the same thread")
        block = self.lanes.block
        for number, (time, site) in engines.copies.items():
            mine = block == number // len(self.allocated)
            if engines.knowledge.known[mine, engines.agents.copies(number)].max() < time:
                repair = "T.mbarrier_wait_parity(barrier, parity) before the kernel's end"
                raise at_exit("a bulk copy", self.sites[site], self.kernel, repair)
        unseen = engines.remote.unseen(engines.knowledge, block)
        if unseen is not None:
            raise left_too_early(self.sites[unseen], self.kernel)


def distinct(values: Array) -> list[int]:
    """The few different numbers that threads have."""
    return sorted(set(values.tolist()))


def _setup(body: Any) -> set[Any]:
    """The barriers that a producer takes part in: those that directly follow the initialization of mbarriers."""
    stmts = tile_ir.statements(body)
    made = [n for n, s in enumerate(stmts) if _calls(s, "tl::mbarrier_init", "tl::fence_mbarrier_init")]
    found = set()
    for stmt in stmts[made[-1] + 1 :] if made else ():
        if not (isinstance(stmt, tir.Evaluate) and is_call(stmt.value, "tirx.call_extern")):
            break
        if str(stmt.value.args[0].value) not in ("tl::sync_threads", "tl::cluster_sync"):
            break
        found.add(stmt)
    return found


def _calls(stmt: Any, *names: str) -> bool:
    return any(is_call(n, "tirx.call_extern") and str(n.args[0].value) in names for n in tile_ir.walk(stmt, ir.Call))
