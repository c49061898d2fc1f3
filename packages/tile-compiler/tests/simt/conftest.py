"""Fixtures: the interpreter's answer, and that of the threads after every pass."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import ir
from tvm import tirx as tir
from tvm.sym import Analyzer

from tile_compiler.cfamily import dialect
from tile_compiler.cfamily.launches import KernelLaunch, kernel_launches
from tile_compiler.cfamily.printer import print_source
from tile_compiler.inspect import Trace, run_passes
from tile_compiler.signature import signature_of
from tile_compiler.simt.arch import Arch, arch_of
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.pipeline import CUDA
from tile_runtime_cpu import emulator
from tilelang import interpreter
from tilelang.ir import tile_ir

sys.path.insert(0, str(Path(__file__).parent))

import threads

GFX942 = Arch("gfx942", 0, 64 << 10, warp=64)


def lowered(func: Any, arch: str = "sm_80", options: Any = None) -> tuple[Trace, SimtContext]:
    """The trace of all passes, and what they decided."""
    facts = GFX942 if arch == "gfx942" else arch_of(arch)
    ctx = SimtContext(arch=facts, options=options or {})
    _, trace = run_passes(func, CUDA, ctx)
    return trace, ctx


def copies(args: Sequence[Any]) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in args]


def agrees(
    func: Any,
    args: Sequence[Any],
    rtol: float = 1e-5,
    atol: float = 1e-5,
    arch: str = "sm_80",
    passes: bool = True,
    options: Any = None,
) -> tuple[Trace, SimtContext]:
    """The block's threads compute what the interpreter defines: at the end, and with `passes` after every pass."""
    want = copies(args)
    interpreter.run(func, want)
    trace, ctx = lowered(func, arch, options)
    threads_from = [s.name for s in trace.steps].index("plan_pipeline")
    for number, step in enumerate(trace.steps):
        last = number == len(trace.steps) - 1
        if not last and not (passes and step.changed):
            continue
        got = copies(args)
        if number < threads_from:
            interpreter.run(step.after, got)
        else:
            threads.run(step.after, got)
        for index, (g, w) in enumerate(zip(got, want)):
            if isinstance(w, np.ndarray):
                wide = w.dtype if w.dtype.kind in "iub" else np.dtype("float64")
                np.testing.assert_allclose(
                    g.astype(wide), w.astype(wide), rtol, atol, err_msg=f"after {step.name}: argument {index}"
                )
    return trace, ctx


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def check() -> Callable[..., tuple[Trace, SimtContext]]:
    """`check(func, args, rtol, atol, arch, passes, options)`: see `agrees`."""
    return agrees


@pytest.fixture
def lower() -> Callable[..., tuple[Trace, SimtContext]]:
    """`lower(func, arch)`: see `lowered`."""
    return lowered


def emulated(
    func: Any, args: Sequence[Any], arch: str = "sm_80", mode: str = "early", seed: int = 0, options: Any = None
) -> list[Any]:
    """The arguments after the printed text ran in the emulator; any finding of it is an error."""
    trace, _ = lowered(func, arch, options)
    source, launches = printed(func, trace.steps[-1].after, arch)
    reports, work = launch_text(source, launches, func, args, mode, seed)
    for report in reports:
        report.check()
    return work


def launch_text(
    source: str, launches: Sequence[KernelLaunch], func: Any, args: Sequence[Any], mode: str, seed: int
) -> tuple[list[Any], list[Any]]:
    """(reports of the emulator, the arguments afterwards) of the kernels of a text, one after the other."""
    work = copies(args)
    known = dict(zip(func.params, work))
    for param, value in zip(func.params, work):
        if isinstance(value, np.ndarray):
            known |= {v: n for v, n in zip(param.ty.shape, value.shape) if isinstance(v, ir.Var)}
    sizes = {v: tir.const(k, str(v.ty)) for v, k in known.items() if isinstance(k, int)}
    module = emulator.compile(source)
    reports = []
    for launch in launches:
        grid = [int(Analyzer().simplify(tile_ir.substitute(e, sizes))) for _, e in launch.kernel.grid]
        block = [int(e) for _, e in launch.kernel.threads]
        values = [known[v] for v in (*launch.kernel.params, *launch.kernel.scalars)]
        shape = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
        symbol, shared = launch.kernel.symbol, launch.shared_bytes
        reports.append(module.launch(symbol, *shape, shared, values, mode=mode, seed=seed))
        if reports[-1].errors:
            break
    return reports, work


def printed(func: Any, final: Any, arch: str = "sm_80") -> tuple[str, list[KernelLaunch]]:
    """The CUDA or HIP text of a lowered function, and its launches."""
    launches = kernel_launches(final, signature_of(func, final))
    language = dialect.HIP if arch.startswith("gfx") else dialect.CUDA
    return print_source([launch.kernel for launch in launches], language), launches


@pytest.fixture
def proved() -> Callable[..., tuple[Trace, SimtContext]]:
    """As `check`; then the emulator runs the text, copies early and late, and agrees too."""

    def run(
        func: Any, args: Sequence[Any], rtol: float = 1e-5, atol: float = 1e-5, arch: str = "sm_80", passes: bool = True
    ) -> tuple[Trace, SimtContext]:
        found = agrees(func, args, rtol, atol, arch, passes)
        want = copies(args)
        interpreter.run(func, want)
        for mode, seed in (("early", 0), ("late", 1)):
            got = emulated(func, args, arch, mode, seed)
            for g, w in zip(got, want):
                if isinstance(w, np.ndarray):
                    wide = w.dtype if w.dtype.kind in "iub" else np.dtype("float64")
                    np.testing.assert_allclose(g.astype(wide), w.astype(wide), rtol, atol, err_msg=mode)
        return found

    return run
