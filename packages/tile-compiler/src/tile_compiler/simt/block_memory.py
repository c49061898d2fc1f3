"""The memory that the threads of a block share: which places an access touches, and whom it meets there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tvm import ir
from tvm import tirx as tir

from tile_compiler.passes.lower_tile_ops import alias_roots
from tile_compiler.rewrite import is_call
from tile_compiler.simt.checker.footprints import AGAINST, ORDINARY
from tile_compiler.simt.checker.granularity import TooCoarse, piece
from tile_compiler.simt.checker.knowledge import WARP
from tile_compiler.simt.checker.lanes import Lanes
from tile_compiler.simt.checker.refutations import Site, race
from tile_compiler.simt.checker.remote import REMOTE_SUM
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.shadow import MANY, Meeting, Shadow
from tile_compiler.simt.thread_values import Array, ThreadValues, Unknown, can_be_followed
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of

ROLE = "tl.role"  # of an attribute around statements that the producer alone executes
OFFSET = "tl.offset"
SWIZZLE = 1024  # bytes after which every swizzle begins again: where the memory of one more block may begin
ASYNCHRONOUS = ("tl::mbarrier", "tl::tma_", "tl::bulk_", "tl::wgmma_", "tl::fence_")  # of CUDA's asynchronous proxy
REGISTER_LIMIT = "tl::register_limit_"
ADDRESS = ("tirx.address_of", "tirx.buffer_data")


@dataclass(frozen=True)
class Memory:
    """Where a buffer lies among the places of the shadow: `unit` bytes each, `base` the first; None: global memory."""

    buffer: Any
    base: int | None
    unit: int

    @cached_property
    def bits(self) -> int:
        return dtype_of(tile_ir.dtype_name(self.buffer)).bits

    @cached_property
    def width(self) -> int:
        return max(1, self.bits // 8)

    @cached_property
    def elements(self) -> int:
        return int(math.prod(int(s) for s in self.buffer.ty.shape))

    @cached_property
    def places(self) -> int:
        """How many places it has."""
        return -(-self.elements * self.bits // 8 // self.unit)


class BlockMemory(ThreadValues):
    """Accesses of the active threads, recorded in `state`; each raises SharedMemoryRace for what it meets.

    `state` is None where no thread can be. `tracked`: global buffers that are looked at beside shared memory.

    Lanes are the kernel's threads; where some of its statements are for a producer alone, one lane more is that thread.
    It goes the way of all loops and conditions and computes all scalars, but of the rest executes its statements only.

    Blocks of a cluster that use each other's memory are walked together (`checker.lanes`): each has places of its own, one
    block's `span` after the other, then comes global memory.
    """

    def __init__(
        self,
        kernel: tile_ir.Kernel,
        ctx: SimtContext,
        tracked: set[Any],
        finely: bool = False,
        ranks: tuple[int, ...] | None = None,
    ) -> None:
        """`finely`: every element has places of its own; else accesses that are not of whole places raise TooCoarse. `ranks`:
        the blocks of the cluster that are walked, None: all."""
        self.finely = finely
        self.produces = any(is_role(n) for n in tile_ir.walk(kernel.body, tir.AttrStmt))
        self.lanes = Lanes.of(kernel, self.produces, ctx, ranks)
        self.count = self.lanes.count
        super().__init__(self.lanes.total)
        self._active: tuple[Array, Array, bool, Array] | None = None  # mask, lanes, `producing`, and `active` of these
        self.producing = False  # whether the statement at hand is the producer's
        self.kernel, self.ctx = kernel, ctx
        self.roots = alias_roots(kernel.body)
        self.memories: dict[Any, Memory] = {b: Memory(b, None, 1) for b in tracked}
        self.addresses: dict[tuple[Any, int], int] = {}  # places of global memory, in order of first touch
        self.span_places = self._place_shared()  # of one block
        self.shared_places = self.span_places * self.lanes.blocks
        self.state: Shadow | None = None
        self.sites: list[Site] = []
        self.span: Any = kernel.span  # of the innermost statement around here that has one
        self.site_of: dict[Any, int] = {}
        self.quiet: dict[int, tuple[Any, bool]] = {}  # by identity: == of expressions is slow
        self.readers: dict[Any, bool] = {}
        self.trace: list[int] = []
        self.now = 0  # counts what happens
        self.depth = self.nest = 0  # loops over registers around here; the number of the outermost such loop
        self.scattered: dict[int, int] = {}  # by site of a write to an unknown address: the nest in which it was last

    @property
    def consumers(self) -> Array:
        """Which lanes are threads of the kernel."""
        return np.asarray(self.lanes.consumers[self.lane])

    @property
    def active(self) -> Array:
        """The threads that execute the statement at hand, and not only its scalars."""
        # Masks and lanes are replaced, never changed.
        asked = self._active
        if asked is None or asked[0] is not self.mask or asked[1] is not self.lane or asked[2] != self.producing:
            found = self.mask & (self.consumers != self.producing) & ~self.lanes.nobody[self.lane]
            asked = self._active = self.mask, self.lane, self.producing, found
        return asked[3]

    def _place_shared(self) -> int:
        """Lay the shadow over the block's shared memory, so that buffers that share bytes meet; how many places."""
        allocated = list(tile_ir.walk(self.kernel.body, tir.AllocBuffer))
        found = [n for n in allocated if str(n.buffer.scope()) in tile_ir.SHARED]
        views = [n.buffer for n in tile_ir.walk(self.kernel.body, tir.DeclBuffer)]
        shared = {n.buffer for n in found}
        views = [v for v in views if self.roots.get(v) in shared]
        widths = [Memory(b, 0, 1).width for b in (*shared, *views)]
        unit = min(widths, default=1) if self.finely else piece(self.kernel.body, {*shared, *views})
        end = 0
        offsets: dict[Any, int] = {}
        for node in found:
            notes = {str(k): tile_ir.plain(v) for k, v in (node.annotations or {}).items()}
            offsets[node.buffer] = int(notes.get(OFFSET, end))
            size = Memory(node.buffer, 0, 1)
            end = max(end, offsets[node.buffer] + -(-size.elements * size.width // 16) * 16)
        unit = math.gcd(unit, *offsets.values())
        for buffer in (*shared, *views):
            base = offsets[self.roots.get(buffer, buffer)] // unit
            self.memories[buffer] = Memory(buffer, base, unit)
        alignment = SWIZZLE if self.lanes.blocks > 1 else unit
        return -(-end // alignment) * alignment // unit

    def _is_quiet(self, node: Any) -> bool:
        """Whether nothing below touches memory that threads share, synchronizes, or leaves a loop."""
        if hash(node) not in self.quiet:
            quiet = not any(
                (isinstance(n, ir.Var) and (n in self.memories or n in self.followed))
                or (is_call(n, "tirx.call_extern") and orders(str(n.args[0].value)))
                or is_call(n, "tirx.break_loop", "tirx.continue_loop")
                or (isinstance(n, tir.AllocBuffer) and _is_kept(n.buffer))
                for n in tile_ir.walk(node, ir.Var, ir.Call, tir.AllocBuffer)
            )
            self.quiet[hash(node)] = (node, quiet)
        return self.quiet[hash(node)][1]

    def _only_reads(self, node: Any) -> bool:
        """Whether all that happens below to memory that threads share, or to followed values, is that they are read."""
        if node not in self.readers:
            self.readers[node] = not any(
                (isinstance(n, tir.BufferStore) and (n.buffer in self.memories or n.buffer in self.followed))
                or isinstance(n, (tir.While, tir.AllocBuffer))
                or is_call(n, "tirx.break_loop", "tirx.continue_loop", "tl.atomic_elem")
                or (is_call(n, "tirx.call_extern") and not self._only_reads_by(n))
                for n in tile_ir.walk(node, tir.BufferStore, tir.While, tir.AllocBuffer, ir.Call)
            )
        return self.readers[node]

    def _in_any_order(self, node: Any) -> bool:
        """Whether all that happens below to memory that threads share are reads and writes between which nothing is ordered:
        whom they meet does not depend on which comes first. Conditions that memory has a part in say more than that."""
        name = "order", node
        if name not in self.readers:
            self.readers[name] = not any(
                (isinstance(n, tir.BufferStore) and n.buffer in self.followed)
                or (isinstance(n, tir.AllocBuffer) and _is_kept(n.buffer))
                or isinstance(n, tir.While)
                or (
                    isinstance(n, tir.IfThenElse)
                    and any(True for _ in tile_ir.walk(n.condition, ir.TensorLoad, ir.Call))
                )
                or is_call(n, "tirx.break_loop", "tirx.continue_loop", "tl.atomic_elem")
                or (is_call(n, "tirx.call_extern") and not self._moves(n))
                for n in tile_ir.walk(node, tir.BufferStore, tir.While, tir.AllocBuffer, tir.IfThenElse, ir.Call)
            )
        return self.readers[name]

    def _moves(self, call: Any) -> bool:
        """Whether a function is one of those that move matrices, or gets nothing of what threads share."""
        return self._only_reads_by(call) or str(call.args[0].value).startswith("tl::stmatrix_x")

    def _only_reads_by(self, call: Any) -> bool:
        """Whether a function gets no address by which it could change what threads share, and does not synchronize."""
        name = str(call.args[0].value)
        given = {buffer_at(a) for a in call.args[1:] if is_call(a, *ADDRESS)}
        kept = {b for b in given if b in self.memories or b in self.followed}
        return not orders(name) and (not kept or name.startswith("tl::ldmatrix_x"))

    def _asynchronous(self, name: str, node: Any, stmt: Any) -> bool:
        """Follow a call that synchronizes by mbarriers or concerns the asynchronous proxy; whether it is one."""
        raise NotImplementedError

    # -- accesses ---------------------------------------------------------------------------------------------

    def _reads(self, node: Any, stmt: Any) -> None:
        """Every access inside an expression; what a condition guards is taken where the condition holds."""
        if self._is_quiet(node):
            return
        if isinstance(node, ir.TensorLoad):
            for index in node.indices:
                self._reads(index, stmt)
            memory = self.memories.get(node.source)
            if memory is not None:
                self._touch("read", memory, node.indices, 1, stmt)
        elif is_call(node, "prim.if_then_else"):
            self._reads(node.args[0], stmt)
            outer = self.mask
            try:
                condition = np.broadcast_to(self.value(node.args[0]), (self.threads,)).astype(bool)
            except Unknown:
                condition = None
            for part, sign in ((node.args[1], True), (node.args[2], False)):
                self.mask = outer if condition is None else outer & (condition == sign)
                if self.mask.any():
                    self._reads(part, stmt)
            self.mask = outer
        elif is_call(node, "tl.atomic_elem"):
            target = node.args[0].args[0]
            memory = self.memories.get(target.source)
            if memory is not None:
                self._touch("atomic", memory, target.indices, 1, stmt)
            self._reads(node.args[1], stmt)
        elif is_call(node, "tirx.call_extern"):
            self._extern(node, stmt)
        elif isinstance(node, ir.Call):
            for part in node.args:
                self._reads(part, stmt)
        else:
            for name in ("a", "b", "value", "condition", "true_value", "false_value", "base", "stride"):
                part = getattr(node, name, None)
                if isinstance(part, ir.Expr):
                    self._reads(part, stmt)

    def _extern(self, node: Any, stmt: Any) -> None:
        name = str(node.args[0].value)
        if self._asynchronous(name, node, stmt):
            return
        for position, argument in enumerate(node.args[1:]):
            if not is_call(argument, *ADDRESS):
                self._reads(argument, stmt)
                continue
            buffer, target = buffer_at(argument), argument.args[0]
            if buffer in self.followed:
                self.unknown[buffer] = True
            memory = self.memories.get(buffer)
            if memory is None:
                continue
            indices = target.indices if isinstance(target, ir.TensorLoad) else None
            if name.startswith(REMOTE_SUM):
                self._reads_others(name, memory, indices, node.args[-1], stmt)
            elif name.startswith("tl::cp_async<"):
                kind = "read" if position else "async"
                self._touch(kind, memory, indices, int(name[13:-1]) * 8 // memory.bits, stmt)
            elif name.startswith("tl::load_to_lds<"):
                count = int(name[16:-1]) * 8 // memory.bits
                self._touch("read" if position else "async", memory, indices, count, stmt, by_wave=not position)
            elif name.startswith(("tl::ldmatrix_x", "tl::stmatrix_x")):
                outer = self.mask
                self.mask = outer & (self.lane % 32 < 8 * int(name[14]))
                moved = "write" if name.startswith("tl::st") else "read"
                self._touch(moved, memory, indices, 128 // memory.bits, stmt)
                self.mask = outer
            elif not name.startswith("tl::"):
                self.ctx.report.assume(
                    stmt.span, f"{name} accesses {memory.buffer.name} in step with the barriers around it"
                )

    def _reads_others(self, name: str, memory: Memory, indices: Any, rank: Any, stmt: Any) -> None:
        """Vectors of another block of the cluster: `tl::add_remote<count, stride, width>(.., &memory[indices], rank)`."""
        assert self.state is not None
        if self.lanes.blocks == 1 or self.state.engines is None:
            self.ctx.report.assume(
                stmt.span, "blocks of a cluster put their parts of a sum where the first one reads them"
            )
            return
        count, stride, width = (int(n) for n in name[len(REMOTE_SUM) : -1].split(","))
        block = self.lanes.number_of(np.broadcast_to(self.value(rank), (self.threads,)))
        outer, self.mask = self.mask, self.mask & (block >= 0)
        for vector in range(count // width):
            place = [*indices[:-1], indices[-1] + vector * stride]
            self._touch("read", memory, place, width, stmt, block=block)
        self.state.engines.remote.note(self.active, block, self.lanes.block, self.now, self._site(stmt))
        self.mask = outer

    def _touch(
        self,
        kind: str,
        memory: Memory,
        indices: Any,
        count: int,
        stmt: Any,
        same: Any | None = None,
        by_wave: bool = False,
        block: Array | None = None,
    ) -> None:
        """`same`: what tells the value that all threads write from others. `by_wave`: from an address that is one for a wave,
        lane by lane (loads to LDS). `block`: of the cluster, whose memory each thread means; None: its own."""
        assert self.state is not None
        site = self._site(stmt)
        place, thread, known = self._places(memory, indices, count, step=count if by_wave else 0, block=block)
        if not len(place):
            return
        self.trace.append(hash((kind, site, place.tobytes())))
        site = site if same is None else self._site(stmt, same)
        again = not known and self.depth > 0 and self.scattered.get(site) == self.nest  # one statement of the user
        engines, found = self.state.engines, None
        if engines is not None:
            found = self._meets_engines("write" if kind == "async" else kind, place, thread)
        if found is None and not self.producing:
            found = self.state.meets(kind, place, thread, site, same is not None or again)
        if found is None and kind in ("write", "async") and same is None:
            if known:
                found = _among_themselves(place, thread, site)
            else:
                self.scattered[site] = self.nest
                self.ctx.report.assume(stmt.span, f"threads write different elements of {memory.buffer.name}")
        if found is not None:
            self._refute(memory, found, stmt, kind, known)
        if by_wave:
            self.state.start_loads(place, thread, site, self.ctx.arch.warp)
            return
        if kind == "async":
            self.state.start(place, thread, site)
            return
        if not self.producing:
            self.state.record(kind, place, thread, site)
        if engines is not None:
            self.now += 1
            engines.record(kind, place, thread, self.now, site)

    def _meets_engines(self, kind: str, place: Array, thread: Array) -> Meeting | None:
        """The conflict of a thread's access with asynchronous ones, or with those of the producer."""
        assert self.state is not None
        assert self.state.engines is not None
        engines = self.state.engines
        for other in AGAINST[kind]:
            track = engines.footprints.tracks[other]
            if other in ORDINARY and not self.produces:
                continue
            unknown = ~engines.footprints.known(other, place, thread, engines.knowledge)
            if other in ORDINARY and not self.producing:
                block = np.minimum(place // max(1, self.span_places), self.lanes.blocks - 1)
                producer = self.lanes.producer(np.where(thread < 0, block, self.lanes.block[thread]))
                bit = np.uint64(1) << (producer // WARP).astype(np.uint64)
                held = track.agent[place]
                unknown &= (held == producer) | ((held == MANY) & (track.members[place] & bit != 0))
            if unknown.any():
                bad = int(np.argmax(unknown))
                at = int(place[bad])
                return Meeting(at, other, int(track.site[at]), int(track.agent[at]), int(thread[bad]))
        return None

    def _places(
        self, memory: Memory, indices: Any, count: int, step: int = 0, block: Array | None = None
    ) -> tuple[Array, Array, bool]:
        """(places, threads) of an access by the active threads; any thread anywhere if the address is not known, and
        whether it is. `step`: elements from one lane of a wave to the next, beyond what the index says."""
        known = True
        try:
            if indices is None:
                raise Unknown(True)
            start, count = self._linear(memory, list(indices), count)
            active = self.active
            start = (start + step * (self.lane % self.ctx.arch.warp))[active]
            thread = self.lane[active]
        except Unknown:
            known = False
        if memory.base is None:
            if not known:
                thread = np.asarray([MANY, MANY - 1])
                return self._global_places(memory, np.asarray([-1, -1]), thread), thread, known
            there = self._in_row(memory, list(indices), count)[active]
            each, thread = (start[:, None] + np.arange(count))[there], np.repeat(thread, count)[there.ravel()]
            return self._global_places(memory, each, thread), thread, known
        if not known:  # two threads stand for all
            thread = np.repeat(np.asarray([MANY, MANY - 1]), memory.places * self.lanes.blocks)
            block = np.tile(np.repeat(np.arange(self.lanes.blocks), memory.places), 2)
            place = np.tile(np.arange(memory.places), 2 * self.lanes.blocks)
        else:
            place, times = self._pieces(memory, start, count)
            thread = np.repeat(thread, times)
            block = (self.lanes.block if block is None else block)[thread]
        inside = (place >= 0) & (place < memory.places)
        return (memory.base + block * self.span_places + place)[inside], thread[inside], known

    def _pieces(self, memory: Memory, start: Array, count: int) -> tuple[Array, int]:
        """The places of `count` elements from each start, from the buffer's first place on, and how many each has. Of
        elements smaller than a byte, neighbours share one, which is what a thread writes."""
        if memory.bits < 8 and memory.unit == 1:
            return ((start[:, None] + np.arange(count)) * memory.bits // 8).ravel(), count
        first, size = start * memory.bits // 8, count * memory.bits // 8
        if size % memory.unit or (first % memory.unit).any():
            raise TooCoarse
        times = size // memory.unit
        return (first[:, None] // memory.unit + np.arange(times)).ravel(), times

    def _linear(self, memory: Memory, indices: list[Any], count: int) -> tuple[Array, int]:
        """(the number of the first element in the buffer's storage, how many neighbours)."""
        if isinstance(indices[-1], ir.prim.Ramp):
            count = int(indices[-1].lanes)
            indices = [*indices[:-1], indices[-1].base]
        if len(indices) == 1:
            return self.value(indices[0]), count
        shape, strides = list(memory.buffer.ty.shape), list(memory.buffer.ty.strides or ())
        # Elements of a tensor are different places. Strides that a caller chooses say so only beside the sizes that it chooses
        # with them, of which a walk takes others: then elements count as if they followed each other, but for those that
        # a stride of 0 makes one.
        static = [tile_ir.static(stride) for stride in strides]
        total, step = np.asarray([0]), np.asarray([1])
        for dim in reversed(range(len(indices))):
            pitch = self.value(strides[dim]) if strides and (None not in static or static[dim] == 0) else step
            total = total + self.value(indices[dim]) * pitch
            step = step * self.value(shape[dim])
        return total, count

    def _in_row(self, memory: Memory, indices: list[Any], count: int) -> Array:
        """Of each thread, which elements of a vector are in a tensor's last dimension. That all are is known elsewhere: with
        sizes for which they are not, as no multiples of a vector, this code is not launched."""
        last = indices[-1].base if isinstance(indices[-1], ir.prim.Ramp) else indices[-1]
        try:
            known = (self.value(last), self.value(memory.buffer.ty.shape[-1]))
        except Unknown:
            return np.ones((self.threads, count), bool)
        first, end = (np.broadcast_to(value, (self.threads,))[:, None] for value in known)
        return first + np.arange(count) < end

    def _global_places(self, memory: Memory, element: Array, thread: Array) -> Array:
        """Places of global memory, numbered as they are met; -1, an unknown address, has one of its own. Blocks that are
        walked together count as using different ones: what one does to the other's is not the question here."""
        assert self.state is not None
        root = self.roots.get(memory.buffer, memory.buffer)
        element = element * self.lanes.blocks + np.where(thread < 0, 0, self.lanes.block[thread])
        known, number = np.unique(element, return_inverse=True)
        first = self.shared_places
        ids = [self.addresses.setdefault((root, int(e)), first + len(self.addresses)) for e in known]
        self.state.grow(first + len(self.addresses))
        return np.asarray(ids, np.int64)[number]

    def _site(self, stmt: Any, value: Any = None) -> int:
        """The number of a statement; of one that stores a `value`, one for each."""
        name = stmt if value is None else (stmt, value)
        if name not in self.site_of:
            self.site_of[name] = len(self.sites)
            self.sites.append(Site(stmt, stmt.span or self.span))
        return self.site_of[name]

    def _refute(self, memory: Memory, found: Meeting, stmt: Any, kind: str, known: bool) -> None:
        here = self.sites[self._site(stmt)]
        raise race(self._named(memory, found.place), self.sites[found.before], found, here, kind, known)

    def _named(self, memory: Memory, place: int) -> str:
        if memory.base is None:
            return str(memory.buffer.name)
        return f"{memory.buffer.name}[{(place % self.span_places - memory.base) * memory.unit // memory.width}]"


def is_role(node: Any) -> bool:
    """Whether what stands below is the producer's."""
    return isinstance(node, tir.AttrStmt) and str(node.attr_key) == ROLE


def orders(name: str) -> bool:
    """Whether a function of the device header orders accesses, makes some that are not its caller's, or waits for others."""
    return "sync" in name or name.startswith(("tl::wait_loads", "tl::arrive_", REGISTER_LIMIT, *ASYNCHRONOUS))


def _is_kept(buffer: Any) -> bool:
    """Whether a walk keeps what a buffer has, or who touches it."""
    return can_be_followed(buffer) or str(buffer.scope()) not in tile_ir.PRIVATE


def buffer_at(address: Any) -> Any:
    """The buffer that an argument points into."""
    target = address.args[0]
    return target.source if isinstance(target, ir.TensorLoad) else target


def _among_themselves(place: Array, thread: Array, site: int) -> Meeting | None:
    """Two threads that write one place in the same statement."""
    order = np.argsort(place, kind="stable")
    p, t = place[order], thread[order]
    clash = (p[1:] == p[:-1]) & (t[1:] != t[:-1])
    if not clash.any():
        return None
    bad = int(np.argmax(clash))
    return Meeting(int(p[bad]), "write", site, int(t[bad]), int(t[bad + 1]))
