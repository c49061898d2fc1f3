"""Warnings about what ptxas made of a kernel: registers in memory, matrix instructions one by one."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.cfamily.launches import KernelLaunch
from tile_compiler.context import CompileContext
from tile_compiler.errors import SlowDeviceCode, where
from tile_compiler.rewrite import is_call
from tilelang.ir import tile_ir

REPAIR = {
    "spills": "smaller tiles, more threads, or fewer fragments that live at once",
    "stack": "indices of local arrays that are constant once loops are unrolled",
    "C7504": "a number of threads and registers that the whole block can have",
    "C7508": "a number of threads and registers that the whole block can have",
    "C7510": "no function calls between the products of a pipeline: no printing, assertions or external functions",
    "C7511": "smaller tiles, or more threads for one tile",
}
OTHER = "statements that leave accumulators alone from a product to its wait"


def warn_of_slow_code(
    func: tir.PrimFunc, launches: Sequence[KernelLaunch], cubin: Any, debug: bytes, ctx: CompileContext
) -> None:
    """One `SlowDeviceCode` for each fault of each kernel, with the user's line, in the report as well.

    `cubin` is what the device compiler made (`notes`, `resources`), `debug` the artifact's table of lines.
    """
    places = {kernel.index: where(kernel.span) for kernel in tile_ir.kernels(func)}
    for launch in launches:
        for place, text, repair in _faults(launch, cubin, debug):
            at = place or places[launch.index]
            ctx.report.add(at, text)
            found = f"[{SlowDeviceCode.code}] {launch.kernel.symbol}: {text}"
            warnings.warn(f"{found}\n  --> {at}\n  try:      {repair}", SlowDeviceCode, stacklevel=2)


def _faults(launch: KernelLaunch, cubin: Any, debug: bytes) -> Iterator[tuple[str, str, str]]:
    """(the user's line or "", what is slow, what would help)."""
    symbol = launch.kernel.symbol
    used = cubin.resources.get(symbol, {})
    if used.get("spills"):
        yield "", f"ptxas spills {used['spills']} bytes of registers to memory", REPAIR["spills"]
    elif in_memory(launch, used):
        yield "", f"ptxas keeps {used['stack']} bytes of local arrays in memory", REPAIR["stack"]
    for note in cubin.notes:
        if note.symbol in ("", symbol):
            yield _users_line(debug, note.line), f"ptxas ({note.code}): {note.text}", REPAIR.get(note.code, OTHER)


def in_memory(launch: KernelLaunch, used: Mapping[str, int]) -> int:
    """Bytes of a thread's values that ptxas has in memory: spilled registers, else its stack frame."""
    spills, stack = used.get("spills", 0), used.get("stack", 0)
    return spills or (stack if stack and not _prints(launch) else 0)


def _prints(launch: KernelLaunch) -> bool:
    """Whether a kernel prints: the arguments of printf lie in memory."""
    calls = (n for n in tile_ir.walk(launch.kernel.body, ir.Call) if is_call(n, "tirx.call_extern"))
    return any(str(call.args[0].value) == "tl::print" for call in calls)


def _users_line(debug: bytes, line: int) -> str:
    """`file:line` of the statement that a line of the printed text belongs to; "" for none."""
    table = json.loads(debug)
    before = [entry for entry in table["lines"] if entry[0] <= line]
    if not before or before[-1][1] < 0:
        return ""
    _, file, number = before[-1]
    return f"{table['files'][file]}:{number}"
