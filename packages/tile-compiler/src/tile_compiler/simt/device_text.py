"""The text of a compiled function, what a debugger asks of it, and the report on its kernels: for every GPU target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvm import tirx as tir

from tile_compiler.cfamily.dialect import Dialect
from tile_compiler.cfamily.launches import KernelLaunch
from tile_compiler.cfamily.printer import print_kernels
from tile_compiler.context import CompileContext
from tile_compiler.simt.debug_tables import DEBUG, debug_tables
from tile_compiler.simt.kernel_report import kernel_report
from tile_compiler.targets.chip import Chip
from tilelang.ir import tile_ir
from tilelang.postprocessing import rewritten

FAST_MATH, PRECISE_MATH = "tl.enable_fast_math", "tl.disable_fast_math"


def device_text(
    func: tir.PrimFunc,
    launches: Sequence[KernelLaunch],
    dialect: Dialect,
    ctx: CompileContext,
    name: str,
    chip: Chip | None,
) -> tuple[str, list[tuple[str, str, bytes]]]:
    """(source, members of the artifact: the source as `name`, `debug.json`); what is known of each kernel goes into the
    report. `chip` is the one that bounds are stated for."""
    kernels = {kernel.index: kernel for kernel in tile_ir.kernels(func)}
    for launch in launches:
        kernel = kernels[launch.index]
        ctx.report.kernels[launch.index] = kernel_report(func, kernel, launch, ctx, chip, dialect.warp_size)
    if ctx.options.get(FAST_MATH) and not ctx.options.get(PRECISE_MATH):
        dialect = replace(dialect, fast_math=True)
    printed = print_kernels([launch.kernel for launch in launches], dialect, ctx.sources)
    tables = debug_tables(printed, launches, ctx)
    text = rewritten(dialect.name, printed.text, getattr(ctx.features, "name", ""))
    return text, [(name, "source", text.encode()), (DEBUG, "json", tables)]
