"""What `kernel.report()` says of one kernel for a GPU: instructions, layouts, traffic, the bound that follows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.cfamily.launches import KernelLaunch
from tile_compiler.context import CompileContext
from tile_compiler.errors import where
from tile_compiler.rewrite import is_call
from tile_compiler.simt.count_traffic import count_traffic
from tile_compiler.simt.traffic import Traffic
from tile_compiler.targets.chip import Chip
from tilelang.ir import tile_ir

ORIGIN = "tl.origin"


def kernel_report(
    func: tir.PrimFunc,
    kernel: tile_ir.Kernel,
    launch: KernelLaunch,
    ctx: CompileContext,
    chip: Chip | None,
    warp: int = 32,
) -> dict[str, Any]:
    """Plain data; docs/internals/report.md describes the fields."""
    cluster = getattr(ctx, "clusters", {}).get(kernel.index)
    traffic = count_traffic(func, kernel, warp, 1 if cluster is None else math.prod(cluster.dims))
    layouts = getattr(ctx, "layouts", {}).get(kernel.index)
    return {
        "threads": launch.kernel.num_threads,
        "operators": operators(kernel, ctx, traffic),
        "layouts": {} if layouts is None else dict(line.split(": ", 1) for line in layouts.text().splitlines()),
        "shared_bytes": launch.shared_bytes,
        "accesses": [a.to_json() for a in traffic.accesses],
        "counters": traffic.counters(warp),
        "exact": traffic.exact,
        "tensor_flops": traffic.tensor_flops,
        "flops": traffic.flops,
        "bound": None if chip is None else bound(traffic, chip),
    }


def operators(kernel: tile_ir.Kernel, ctx: CompileContext, traffic: Traffic) -> list[dict[str, Any]]:
    """Each tile operator with the instructions that it became, the widths of its accesses, and why no better ones."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for node in tile_ir.walk(kernel.body, tir.AttrStmt):
        if str(node.attr_key) != ORIGIN:
            continue
        what = str(getattr(node.value, "value", node.value)).partition(" (")[0]
        at = where(node.span)
        entry = found.setdefault((at, what), {"at": at, "operator": what, "instructions": [], "why": []})
        for name in _instructions(node.body):
            if name not in entry["instructions"]:
                entry["instructions"].append(name)
    for entry in found.values():
        mine = [a for a in traffic.accesses if a.at == entry["at"]]
        entry["widths"] = {a.buffer: a.width for a in mine}
        entry["why"] = [text for at, text in ctx.report.notes if at == entry["at"]] + _why(entry, mine)
    return list(found.values())


def _instructions(body: Any) -> list[str]:
    """Functions of the device header without those for scalars, in the order of the text."""
    names = [str(n.args[0].value) for n in tile_ir.walk(body, ir.Call) if is_call(n, "tirx.call_extern")]
    return list(dict.fromkeys(n.removeprefix("tl::") for n in names if not n.startswith(("tl::sync_", "tl::fast"))))


def _why(entry: Mapping[str, Any], accesses: list[Any]) -> list[str]:
    """What keeps a copy from cp.async and vectors of 16 bytes, where the passes left no note of it."""
    reasons = []
    copied = entry["operator"] == "T.copy"
    into_shared = any(a.space == "global" and a.kind == "read" for a in accesses) and any(
        a.space == "shared" and a.kind == "write" for a in accesses
    )
    if copied and into_shared:
        reasons.append("through registers: no loop of T.Pipelined lets this copy run ahead")
    for access in accesses:
        if copied and access.space == "global" and access.width < 16:
            reasons.append(
                f"{access.buffer} in pieces of {access.width} bytes: more is not proven to be aligned and in bounds "
                "at once, or a thread holds no more neighbours"
            )
    return list(dict.fromkeys(reasons))


def bound(traffic: Traffic, chip: Chip) -> dict[str, Any]:
    """The least time on a chip, in seconds, by what it would take: every byte of the tensors moved once, arithmetic at
    the peak, one wavefront of shared memory a clock on each multiprocessor. The largest is the bound."""
    seconds: dict[str, float] = {
        "memory": compulsory_bytes(traffic) / chip.bandwidth,
        "arithmetic": traffic.flops / chip.flops,
        "shared memory": _wavefronts(traffic) / (chip.multiprocessors * chip.clock),
    }
    try:
        seconds["matrix instructions"] = chip.tensor_seconds(traffic.tensor_flops)
    except KeyError as missing:
        return {"chip": chip.name, "seconds": None, "by": f"no figure for matrices of {missing}"}
    limit = max(seconds, key=lambda name: seconds[name])
    return {"chip": chip.name, "seconds": seconds[limit], "by": limit, "each": seconds}


def _wavefronts(traffic: Traffic) -> int:
    return sum(a.wavefronts for a in traffic.accesses if a.space == "shared")


def compulsory_bytes(traffic: Traffic) -> int:
    """Bytes that must come from and go to global memory: of each tensor what is asked for, once at most."""
    total = 0
    for name in {a.buffer for a in traffic.accesses if a.space == "global"}:
        for kinds in (("read",), ("write", "atomic")):
            found = [a for a in traffic.accesses if a.space == "global" and a.buffer == name and a.kind in kinds]
            asked = sum(a.bytes for a in found)
            total += min([asked, *(a.tensor_bytes for a in found if a.tensor_bytes)])
    return total
