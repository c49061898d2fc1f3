"""What the checker says of what it refutes: both lines, and one repair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tile_compiler.errors import CompileError, where
from tile_compiler.simt.checker.mbarriers import Mbarrier
from tile_compiler.simt.errors import BarrierMismatch, ProductUnderWay, SharedMemoryRace
from tile_compiler.simt.shadow import Meeting
from tilelang.ir import tile_ir

_DONE = {
    "read": "reads it",
    "write": "writes it",
    "atomic": "updates it",
    "async": "starts a copy to it",
    "fetch": "reads it",
    "fill": "starts a copy to it",
}


@dataclass(frozen=True)
class Site:
    """A statement, and where the user wrote it or what it is a part of."""

    stmt: Any
    span: Any


def line(stmt: Site | None, otherwise: str = "a statement") -> str:
    return where(stmt.span) or otherwise if stmt is not None else otherwise


def done(kind: str, stmt: Site) -> str:
    """What a statement does to a place, in words."""
    if kind == "fetch":
        return "has a product read it" if _calls(stmt, "tl::wgmma") else "has a bulk store read it"
    return _DONE[kind]


def _calls(site: Site, prefix: str) -> bool:
    return any(
        hasattr(n, "op") and getattr(n.op, "name", "") == "tirx.call_extern" and str(n.args[0].value).startswith(prefix)
        for n in tile_ir.walk(site.stmt)
    )


def race(place: str, first: Site, found: Meeting, stmt: Site, kind: str, known: bool = True) -> CompileError:
    """Two accesses of one place; `found` is about the earlier one, of statement `first`. `known`: the later's address."""
    before = found.kind
    who = f" (thread {found.partner})" if found.partner >= 0 and before in ("read", "write", "atomic") else ""
    me = f" (thread {found.thread})" if found.thread >= 0 and kind != "fetch" else ""
    problem, lacking, expected, repair = _told(place, before, kind, first)
    if not known:
        repair = (
            "memory says where, so nothing shows that threads keep apart: write it in a loop of its own, which gets a "
            "barrier, or by T.atomic_add and the like"
        )
    text = f"{line(first)} {done(before, first)}{who}; {line(stmt, 'a later one')} {done(kind, stmt)}{me}"
    return SharedMemoryRace(
        problem, at=stmt.span, found=f"{text}, with no {lacking} between them", expected=expected, repair=repair
    )


def _told(place: str, before: str, kind: str, first: Site) -> tuple[str, str, str, str]:
    """(problem, what is missing, expected, repair)."""
    if before == "fill":
        return (
            f"{place} is still being copied to",
            "wait for the copy's barrier",
            "who uses a tile that a bulk copy brings waits for its barrier, in the phase of that copy",
            "T.mbarrier_wait_parity(barrier, parity) before the use",
        )
    if kind == "fill":
        ends = "wait for the product, then " if _calls(first, "tl::wgmma") else ""
        return (
            f"{place} is copied to while it may still be in use",
            "mbarrier or barrier",
            "a bulk copy begins when all threads have let go of the bytes that it overwrites",
            f"{ends}T.mbarrier_arrive(empty) after the last use, T.mbarrier_wait_parity(empty, parity) before the copy",
        )
    if before == "fetch" and _calls(first, "tl::wgmma"):
        return (
            f"{place} is written while a product may still read it",
            "wait for the product",
            "what a product reads stays as it is until the product has been waited for",
            "tl::wgmma_wait<0>() by every warp that takes part, then T.sync_threads()",
        )
    if before == "fetch":
        return (
            f"{place} is written while a bulk store may still read it",
            "wait for the store",
            "what a bulk store reads stays as it is until the thread that started it has waited for it",
            "T.tma_store_wait() by that thread, then T.sync_threads()",
        )
    if before == "async":
        return (
            f"{place} is still being copied to",
            "wait",
            "threads that meet in one place have a barrier between them",
            "T.sync_threads() between the two, where all threads of the block come by",
        )
    return (
        f"a race on {place}",
        "barrier",
        "threads that meet in one place have a barrier between them",
        "T.sync_threads() between the two, where all threads of the block come by",
    )


def apart(where: str, at: Any) -> CompileError:
    """A barrier at which some threads would wait for others that do not come: `where` it stands."""
    return SharedMemoryRace(
        f"a barrier {where}",
        at=at,
        found="threads that may go another way than others",
        expected="all threads of the block come to a barrier, the same number of times",
        repair="T.sync_threads() behind, where all threads come by; or a condition that is the same for all of them",
    )


def no_fence(place: str, first: Site, stmt: Site) -> CompileError:
    """Written by ordinary stores, then read by the asynchronous proxy."""
    return SharedMemoryRace(
        f"{place} is written by ordinary stores, which asynchronous reads need not see",
        at=stmt.span,
        found=f"{line(first)} writes it; {line(stmt)} {done('fetch', stmt)}, with no fence of the proxies between them",
        expected="each thread that writes makes a fence after its stores and before the barrier",
        repair="T.fence_proxy_async() after the stores, before T.sync_threads()",
    )


def no_fence_before_fill(place: str, kind: str, first: Site, stmt: Site) -> CompileError:
    """Read or written by ordinary accesses, then overwritten by the asynchronous proxy."""
    return SharedMemoryRace(
        f"{place} is copied to while ordinary accesses may still be on their way",
        at=stmt.span,
        found=f"{line(first)} {done(kind, first)}; {line(stmt)} {done('fill', stmt)}, with no fence of the proxies between "
        "them: a barrier alone does not order the two",
        expected="each thread makes a fence after its last use of the tile and before it arrives at the barrier",
        repair="T.fence_proxy_async() after the last use, before T.mbarrier_arrive(empty) or T.sync_threads()",
    )


def at_exit(what: str, first: Site, kernel: Any, repair: str) -> CompileError:
    """The block ends while something still uses its shared memory."""
    return SharedMemoryRace(
        f"the block ends while {what} is under way",
        at=first.span,
        found=f"{line(first)} starts it, and nothing waits for it before the end of the kernel of {line(kernel)}",
        expected="shared memory belongs to the block until its last thread has ended, not longer",
        repair=repair,
    )


def left_too_early(first: Site, kernel: Any) -> CompileError:
    """A block ends while another one of its cluster may still use its shared memory."""
    return SharedMemoryRace(
        "a block may end while another block of its cluster still uses its shared memory",
        at=first.span,
        found=f"{line(first)} uses it, and the kernel of {line(kernel)} ends with nothing that waits for it",
        expected="a block stays until all that others do to its shared memory is done",
        repair="a wait for the barrier that others arrive at, or tl::cluster_sync() by all threads at the kernel's end",
    )


def mismatch(problem: str, barrier: Mbarrier, sites: list[Site], stmt: Site, facts: dict[str, Any]) -> CompileError:
    """Arrivals, bytes or parities of an mbarrier that do not fit each other."""
    name = barrier.name

    def at(what: str) -> str:
        number = barrier.sites.get(what)
        return line(sites[number]) if number is not None else "nothing"

    came = barrier.count - barrier.pending
    if problem == "never" and barrier.pending:
        other = barrier.sites.get("arrive", barrier.sites.get("expect"))
        start = line(None if barrier.initialized is None else sites[barrier.initialized[2]], "the kernel's beginning")
        last = f"the last arrival is at {line(sites[other])}" if other is not None else f"none has since {start}"
        return BarrierMismatch(
            f"the wait for {name} never ends",
            at=stmt.span,
            found=f"{line(stmt)} waits for phase {barrier.ended}, of which {came} of {barrier.count} arrivals have "
            f"come; {last}",
            expected=f"{barrier.count} arrivals before the phase of this parity is waited for",
            repair="wait for the parity of the phase that has ended (number of the use // versions % 2), or let every "
            f"arrival that {name} expects come",
        )
    if problem in ("never", "more bytes"):
        missing = barrier.outstanding
        found = f"{missing} bytes less" if missing > 0 else f"{-missing} bytes more"
        return BarrierMismatch(
            f"the wait for {name} {'never ends' if missing > 0 else 'ends too early'}",
            at=stmt.span,
            found=f"{at('expect')} announces bytes; the copies to it, the last at {at('copy')}, bring {found}",
            expected="the bytes of all copies of a phase are announced, and no others",
            repair="T.mbarrier_expect_tx(barrier, bytes of the tiles that are copied)",
        )
    if problem == "arrivals":
        return BarrierMismatch(
            f"more threads arrive at {name} than it expects",
            at=stmt.span,
            found=f"{facts['came']} arrivals in phase {barrier.ended}, with those of {line(stmt)}; the one before is at "
            f"{at('arrive')}",
            expected=f"{barrier.count} arrivals in a phase",
            repair="T.alloc_barrier(number of threads that arrive), or one thread that arrives for all",
        )
    if problem == "phase before" and facts["what"] == "copy" and "expect" in barrier.sites:
        return BarrierMismatch(
            f"the phase of {name} ends before all copies to it are made",
            at=stmt.span,
            found=f"{at('expect')} announces bytes, which all have come with the copy of {at('copy')}; {line(stmt)} copies "
            "more",
            expected="the bytes of all copies of a phase are announced, and no others",
            repair="T.mbarrier_expect_tx(barrier, bytes of the tiles that are copied)",
        )
    if problem in ("too early", "phase before"):
        what = facts.get("what", "wait")
        seen = f"the last wait is at {at('wait')}" if "wait" in barrier.sites else "nobody has waited so far"
        return BarrierMismatch(
            f"the {what} for {name} may be one of an earlier phase",
            at=stmt.span,
            found=f"{line(stmt)} comes in phase {barrier.ended}, but its thread does not wait for the phase before; "
            f"{seen}",
            expected="a thread knows that a phase is over before it acts in the next",
            repair=f"T.mbarrier_wait_parity({name}, parity) in every phase, before the {what}",
        )
    return BarrierMismatch(
        f"{name} may go two phases ahead of a thread that waits for it",
        at=stmt.span,
        found=f"{at('wait')} waits (thread {facts['thread']}); {line(stmt)} ends the next phase, perhaps before that",
        expected="a phase ends after all who wait for the one before have seen it",
        repair="let an arrival of the next phase come after the wait",
    )


def not_ready(barrier: Mbarrier, first: Site | None, stmt: Site, visible: str) -> CompileError:
    """An mbarrier is used before its initialization can be seen."""
    return BarrierMismatch(
        f"{barrier.name} is used before its initialization is visible{visible}",
        at=stmt.span,
        found=f"{line(first, 'nothing')} initializes it; {line(stmt)} uses it",
        expected="mbarrier_init, fence_mbarrier_init by the same thread, then a barrier of the block",
        repair="T.alloc_barrier, which does all of that",
    )


def stuck_warps(waits: list[Site]) -> CompileError:
    """Warps that wait for ever, each at one of these statements."""
    lines = list(dict.fromkeys(line(w) for w in waits))
    return BarrierMismatch(
        "warps wait for each other and never go on",
        at=waits[0].span,
        found=f"waits at {', '.join(lines)} when nothing else can happen",
        expected="every wait at a barrier has its arrivals, which do not wait for what comes after it",
        repair="as many arrivals as waits, in an order in which one warp can always go on",
    )


def busy_registers(name: str, first: Site, stmt: Site) -> CompileError:
    """Registers of a product that has not been waited for."""
    return ProductUnderWay(
        f"{name} is in use by a product that may still be under way",
        at=stmt.span,
        found=f"{line(first)} starts the product; {line(stmt)} uses {name}, with no wait for the product between them",
        expected="a product's result, and its operand in registers, are left alone until it has been waited for",
        repair="tl::wgmma_wait<0>() between the two",
    )


def unfenced_registers(name: str, first: Site | None, stmt: Site) -> CompileError:
    """Registers that ordinary statements touched, and no `wgmma_fence` since."""
    before = f"{line(first)} touches {name}" if first is not None else f"{name} is as the kernel's beginning left it"
    return ProductUnderWay(
        f"a product may miss what was done to {name}",
        at=stmt.span,
        found=f"{before}; {line(stmt)} starts a product with it, with no fence of its registers between them",
        expected="wgmma_fence after other statements have touched the registers of a product",
        repair="tl::wgmma_fence() before the product",
    )
