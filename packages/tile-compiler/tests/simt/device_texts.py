"""A function lowered by all passes, printed as CUDA or HIP, and run by the emulator."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from tvm import ir
from tvm import tirx as tir
from tvm.sym import Analyzer

from tile_compiler.cfamily.dialect import CUDA as CUDA_TEXT
from tile_compiler.cfamily.dialect import HIP as HIP_TEXT
from tile_compiler.cfamily.launches import KernelLaunch, kernel_launches
from tile_compiler.cfamily.printer import print_kernels
from tile_compiler.inspect import Trace, run_passes
from tile_compiler.signature import signature_of
from tile_compiler.simt.arch import arch_of
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.debug_tables import debug_tables
from tile_compiler.simt.pipeline import CUDA
from tile_runtime.dtypes import DTYPES
from tile_runtime.expression import evaluate
from tile_runtime.manifest import TensorMapping
from tile_runtime.tensor_map import TensorMap
from tile_runtime_cpu import emulator
from tile_runtime_cpu.emulator import Buffer
from tile_runtime_cpu.emulator.program import Program
from tilelang.ir import tile_ir


def lowered(func: Any, arch: str = "sm_80", options: Any = None) -> tuple[Trace, SimtContext]:
    """The trace of all passes, and what they decided."""
    ctx = SimtContext(arch=arch_of(arch), options=options or {})
    _, trace = run_passes(func, CUDA, ctx)
    return trace, ctx


def copies(args: Sequence[Any]) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in args]


class Text(NamedTuple):
    """A printed function: its source, its launches, what a debugger is told of it, and what it was made for; the tensor maps
    that launches make, and the clusters of kernels by number."""

    source: str
    launches: Sequence[KernelLaunch]
    program: Program
    arch: str
    maps: Mapping[Any, TensorMapping]
    clusters: Mapping[int, tuple[int, ...]]


def printed(func: Any, final: Any, ctx: SimtContext) -> Text:
    """The text of a lowered function, CUDA or HIP."""
    signature = signature_of(func, final)
    launches = kernel_launches(final, signature)
    maps = {v: TensorMapping.read(m, n) for n, (v, m) in enumerate(signature.tensor_maps.items())}
    clusters = {number: cluster.dims for number, cluster in ctx.clusters.items()}
    amd = ctx.arch.name.startswith("gfx")
    text = print_kernels([launch.kernel for launch in launches], HIP_TEXT if amd else CUDA_TEXT)
    program = Program(debug_tables(text, launches, ctx))
    return Text(text.text, launches, program, ctx.arch.name if amd else "", maps, clusters)


def emulated(
    func: Any, args: Sequence[Any], arch: str = "sm_80", mode: str = "early", seed: int = 0, options: Any = None
) -> list[Any]:
    """The arguments after the printed text ran in the emulator; any finding of it is an error."""
    trace, ctx = lowered(func, arch, options)
    return launched(func, trace.steps[-1].after, ctx, args, mode, seed)


def launched(func: Any, final: Any, ctx: SimtContext, args: Sequence[Any], mode: str, seed: int) -> list[Any]:
    """As `emulated`, of a function that is lowered already."""
    reports, work = launch_text(printed(func, final, ctx), func, args, mode, seed)
    for report in reports:
        report.check()
    return work


@functools.lru_cache(maxsize=4)
def _compiled(source: str, arch: str) -> Any:
    """A text for the host; tests launch one several times."""
    return emulator.compile(source, arch=arch)


def _tensor_map(mapping: TensorMapping, arrays: Mapping[str, np.ndarray[Any, Any]]) -> TensorMap:
    """The map that a launch makes of one of the arrays, all of whose sizes are known."""
    array, size = arrays[mapping.param], DTYPES[mapping.dtype].itemsize
    shape, strides = array.shape[::-1], array.strides[-2::-1]
    if mapping.shape:
        shape = tuple(evaluate(e, {}, {}) for e in mapping.shape)
        strides = tuple(evaluate(e, {}, {}) * size for e in mapping.strides)
    return TensorMap.of(mapping, array.ctypes.data, shape, strides)


def launch_text(text: Text, func: Any, args: Sequence[Any], mode: str, seed: int) -> tuple[list[Any], list[Any]]:
    """(reports of the emulator, the arguments afterwards) of the kernels of a text, one after the other."""
    work = copies(args)
    known = dict(zip(func.params, work))
    for param, value in zip(func.params, work):
        if isinstance(value, np.ndarray):
            known |= {v: n for v, n in zip(param.ty.shape, value.shape) if isinstance(v, ir.Var)}
    sizes = {v: tir.const(k, str(v.ty)) for v, k in known.items() if isinstance(k, int)}
    named = {str(p.name): value for p, value in zip(func.params, work) if isinstance(value, np.ndarray)}
    module = _compiled(text.source, text.arch)
    reports = []
    for launch in text.launches:
        grid = [int(Analyzer().simplify(tile_ir.substitute(e, sizes))) for _, e in launch.kernel.grid]
        block = [int(e) for _, e in launch.kernel.threads]
        values = [known[v] for v in (*launch.kernel.params, *launch.kernel.scalars)]
        values += [_tensor_map(text.maps[v], named) for v in launch.kernel.maps]
        shape = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
        symbol, shared = launch.kernel.symbol, launch.shared_bytes
        more = {"mode": mode, "seed": seed, "program": text.program, "cluster": text.clusters.get(launch.index, (1,))}
        if launch.kernel.maps:  # arrays that are not among the values
            more["buffers"] = [Buffer(a.ctypes.data, a.nbytes, f"argument {n}", True) for n, a in named.items()]
        reports.append(module.launch(symbol, *shape, shared, values, **more))
        if reports[-1].errors:
            break
    return reports, work
