"""The CUDA target: SIMT IR printed as CUDA C++, compiled to a cubin by `tile-runtime-cuda` (which needs no device)."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.cfamily import dialect
from tile_compiler.cfamily.launches import KernelLaunch, kernel_launches
from tile_compiler.context import CompileContext, plain_options
from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.rewrite import is_call
from tile_compiler.signature import Signature
from tile_compiler.targets.cuda.arch import MAX_REGISTERS, WARP_SIZE, CudaArch, cuda_arch
from tile_compiler.targets.cuda.chips import CHIPS
from tile_compiler.targets.cuda.header_parts import header_flags
from tile_compiler.targets.cuda.slow_code import in_memory, warn_of_slow_code
from tile_compiler.targets.registry import Built
from tile_runtime import registry
from tile_runtime.artifact import Artifact
from tilelang.ir import tile_ir

CUBIN, PTX, SOURCE = "kernel.cubin", "kernel.ptx", "kernel.cu"
COMPILER_OPTION = "tl.cuda_compiler"  # "nvrtc" (default) or "nvcc"
FLAGS_OPTION = "tl.device_compile_flags"
MEET, WAIT = "tl::sync_grid", "tl::grid_dependency_wait"  # of all blocks; for earlier launches
PTX_OPTION = "tl.embed_ptx"  # the artifact holds the PTX too: the driver compiles it for newer devices


class CudaTarget:
    """`target="cuda"`, with an architecture such as `sm_80` or `sm_90a`."""

    kind = "cuda"
    cooperative = True  # all blocks of a launch may run at the same time, and wait for each other

    @property
    def passes(self) -> tuple[tuple[str, Any], ...]:
        from tile_compiler.simt.pipeline import CUDA

        return tuple(CUDA)

    def lowering(self, func: tir.PrimFunc, *, target: Any, options: Any = None, diffs: bool = False) -> str:
        """The IR after every pass, as text: see `tile_compiler.compile.lowering`."""
        from tile_compiler.compile import lowering

        return lowering(func, target, options, diffs=diffs)

    def compile(self, func: tir.PrimFunc, *, target: Any, options: Any = None, key: str = "") -> Artifact:
        """What `tilelang` calls: see `tile_compiler.compile.compile`."""
        from tile_compiler.compile import compile

        return compile(func, target, options, key=key)

    def join(self, first: Artifact, second: Artifact) -> Artifact:
        """Two compilations of a kernel as one artifact."""
        from tile_compiler.compile import join

        return join(first, second)

    def machine(self, arch: str) -> Any:
        """What the autotuner's model knows of an architecture (`tilelang.autotuner.machine.Machine`); None without a chip."""
        from tile_compiler.targets.chip import machine

        facts = cuda_arch(arch)
        chip = CHIPS.get(facts.name)
        if chip is None:
            return None
        return machine(
            chip,
            shared_per_block=facts.shared_per_block,
            registers_per_thread=MAX_REGISTERS,
            group=4 * WARP_SIZE if "wgmma" in facts.features else WARP_SIZE,
            occupancy=facts.occupancy_limits,
        )

    def context(self, target: Any, options: Any) -> CompileContext:
        from tile_compiler.simt.arch import arch_of
        from tile_compiler.simt.context import SimtContext

        arch = cuda_arch("" if isinstance(target, str) else str(getattr(target, "arch", "") or ""))
        try:
            facts = arch_of(arch.name)
        except ValueError as error:
            raise UnsupportedOnTarget(str(error)) from error
        return SimtContext(features=arch, options=plain_options(options), arch=facts, machine=self.machine(arch.name))

    def build(self, func: tir.PrimFunc, signature: Signature, ctx: CompileContext) -> Built:
        from tile_compiler.simt.context import SimtContext
        from tile_compiler.simt.debug_tables import DEBUG
        from tile_compiler.simt.device_text import device_text

        assert isinstance(ctx, SimtContext)
        arch: CudaArch = ctx.features
        launches = kernel_launches(func, signature, narrow=ctx.narrow)
        together = {n.index for n in launches if calls(n, MEET)}
        for launch in launches:
            check_shared(launch, arch)
            if launch.index in together:
                check_fits(launch, 0, arch)
        source, members = device_text(func, launches, dialect.CUDA, ctx, SOURCE, CHIPS.get(arch.name))
        texts, min_driver = {"cuda": source}, None
        if not ctx.text_only:
            cubin = self._cubin(source, arch, ctx)
            known = cubin.resources
            if any(spills_for_company(n, known.get(n.kernel.symbol, {}), arch) for n in launches):
                roomy = [alone(n, known.get(n.kernel.symbol, {}), arch, ctx) for n in launches]
                text, parts = device_text(func, roomy, dialect.CUDA, ctx, SOURCE, CHIPS.get(arch.name))
                again = self._cubin(text, arch, ctx)
                if _all_in_memory(roomy, again) < _all_in_memory(launches, cubin):
                    launches, source, members, cubin = roomy, text, parts, again
            for launch in launches:
                used = cubin.resources.get(launch.kernel.symbol, {})
                note_resources(launch, used, arch, ctx)
                if launch.index in together:
                    check_fits(launch, used.get("registers", 0), arch)
            warn_of_slow_code(func, launches, cubin, next(data for name, _, data in members if name == DEBUG), ctx)
            members.insert(0, (CUBIN, "cubin", cubin.data))
            if ctx.options.get(PTX_OPTION):
                members.insert(1, (PTX, "ptx", portable_ptx(cubin)))
            texts, min_driver = {"cuda": source, "log": cubin.log}, cubin.min_driver
        entries = {
            launch.index: launch.entry(
                members[0][0],
                prints=ctx.prints.get(launch.index, []),
                errors=ctx.errors.get(launch.index, []),
                **({"cooperative": True} if launch.index in together else {}),
                **({"pdl": True} if calls(launch, WAIT) else {}),
                **({"cluster": ctx.clusters[launch.index].launched} if launch.index in ctx.clusters else {}),
            )
            for launch in launches
        }
        target = {"kind": "cuda", "arch": arch.name, "features": []}
        return Built(members, entries, target, texts, min_driver=min_driver)

    def ptx(self, artifact: Artifact, options: Any = None) -> str:
        """The PTX of an artifact's text, compiled anew. Raises UnsupportedOnTarget where the compiler leaves none."""
        device: Any = registry.device("cuda")
        flags = plain_options(options)
        cubin = device.build(
            artifact.source or "",
            arch=artifact.manifest.target.arch,
            headers=headers(),
            options=compile_flags(flags),
            compiler=str(flags.get(COMPILER_OPTION, "nvrtc")),
        )
        if not cubin.ptx:
            raise UnsupportedOnTarget(f"{cubin.compiler} gives no PTX beside its cubin", repair="compile with NVRTC")
        return bytes(cubin.ptx).rstrip(b"\0").decode()

    @staticmethod
    def _cubin(source: str, arch: CudaArch, ctx: CompileContext) -> Any:
        device: Any = registry.device("cuda")
        parts = header_flags(source) if "wgmma" in arch.features and not ctx.sources else ()
        start = time.perf_counter()
        cubin = device.build(
            source,
            arch=arch.name,
            headers=headers(),
            options=(*parts, *compile_flags(ctx.options)),
            compiler=str(ctx.options.get(COMPILER_OPTION, "nvrtc")),
            minimal=not ctx.sources and not compile_flags(ctx.options),
        )
        seconds = time.perf_counter() - start + ctx.report.device_compiler.get("seconds", 0)
        ctx.report.device_compiler = {"name": cubin.compiler, "seconds": round(seconds, 4)}
        return cubin


def spills_for_company(launch: KernelLaunch, used: Mapping[str, int], arch: CudaArch) -> bool:
    """Whether ptxas keeps in memory what registers that a thread could have would hold, so that more blocks run on a
    multiprocessor: what it does as long as __launch_bounds__ leaves the number of blocks open.

    It calls them spills, or a stack frame where they are saved for a call, as that of a division's rare cases.
    """
    most = min(MAX_REGISTERS, arch.registers_per_multiprocessor // launch.kernel.num_threads)
    return bool(in_memory(launch, used)) and used["registers"] < most and launch.kernel.min_blocks is None


def alone(launch: KernelLaunch, used: Mapping[str, int], arch: CudaArch, ctx: CompileContext) -> KernelLaunch:
    """A kernel that spills for company with as many registers as it wants; others as they are."""
    if not spills_for_company(launch, used, arch):
        return launch
    kept = f"spilled {used['spills']} bytes" if used["spills"] else f"kept {used['stack']} bytes in memory"
    ctx.report.note(None, f"{launch.kernel.symbol}: compiled again, as ptxas {kept} for more blocks at once")
    return replace(launch, kernel=replace(launch.kernel, min_blocks=1))


def _all_in_memory(launches: Sequence[KernelLaunch], cubin: Any) -> int:
    return sum(in_memory(n, cubin.resources.get(n.kernel.symbol, {})) for n in launches)


def compile_flags(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Flags of the user for the device compiler."""
    flags = options.get(FLAGS_OPTION) or ()
    return tuple(flags.split()) if isinstance(flags, str) else tuple(str(f) for f in flags)


def portable_ptx(cubin: Any) -> bytes:
    """The PTX of a cubin. Raises UnsupportedOnTarget for PTX that no other architecture takes, or if there is none."""
    if cubin.arch.endswith(("a", "f")):
        raise UnsupportedOnTarget(
            f"the PTX of {cubin.arch} is for {cubin.arch} alone",
            expected="an architecture without a or f for tl.embed_ptx",
            repair=f"compile for {cubin.arch[:-1]}",
        )
    if not cubin.ptx:
        raise UnsupportedOnTarget(f"{cubin.compiler} gives no PTX beside its cubin", repair="compile with NVRTC")
    return bytes(cubin.ptx)


def check_shared(launch: KernelLaunch, arch: CudaArch) -> None:
    """Raises UnsupportedOnTarget for a block that cannot have its shared memory."""
    if launch.shared_bytes > arch.shared_per_block:
        raise UnsupportedOnTarget(
            f"{launch.kernel.symbol} needs {launch.shared_bytes} bytes of shared memory",
            expected=f"at most {arch.shared_per_block} bytes on {arch.name}",
            repair="use smaller tiles or fewer stages",
        )


def calls(launch: KernelLaunch, name: str) -> bool:
    """Whether a kernel calls a function of the device header."""
    found = (n for n in tile_ir.walk(launch.kernel.body, ir.Call) if is_call(n, "tirx.call_extern"))
    return any(str(call.args[0].value) == name for call in found)


def check_fits(launch: KernelLaunch, registers: int, arch: CudaArch) -> None:
    """Raises UnsupportedOnTarget for a grid of which not all blocks can run at once on the architecture's largest chip."""
    chip, extents = CHIPS.get(arch.name), [tile_ir.static(extent) for _, extent in launch.kernel.grid]
    if chip is None or None in extents:
        return  # the driver refuses the launch
    limits = arch.occupancy_limits(launch.kernel.num_threads, registers, launch.shared_bytes)
    limit = min(limits, key=lambda name: limits[name])
    blocks, most = math.prod(n for n in extents if n is not None), limits[limit] * chip.multiprocessors
    if blocks > most:
        raise UnsupportedOnTarget(
            f"T.sync_grid in a grid of {blocks} blocks, which cannot all run at once on {arch.name}",
            found=f"{most} at most: {limits[limit]} on each of the {chip.multiprocessors} multiprocessors of the "
            f"{chip.name}, by their {limit}",
            expected="blocks that all run at the same time, as each waits for all others",
            repair="fewer blocks, each in a loop over its share of the work; or two kernels, one after the other",
        )


def note_resources(launch: KernelLaunch, used: Mapping[str, int], arch: CudaArch, ctx: CompileContext) -> None:
    """What the device compiler used, for the report."""
    if not used:
        return
    threads = launch.kernel.num_threads
    limits = arch.occupancy_limits(threads, used["registers"], launch.shared_bytes + used["shared"])
    limit = min(limits, key=lambda name: limits[name])
    blocks = limits[limit]
    ctx.report.kernels.setdefault(launch.index, {}).update(
        registers=used["registers"],
        spills=used["spills"],
        stack=used["stack"],
        static_shared_bytes=used["shared"],
        occupancy={
            "blocks": blocks,
            "threads": blocks * threads,
            "of_threads": arch.threads_per_multiprocessor,
            "limited_by": limit,
        },
    )
    ctx.report.note(
        None,
        f"{launch.kernel.symbol} on {arch.name}: {used['registers']} of {MAX_REGISTERS} registers, "
        f"{used['spills']} bytes of spills, {launch.shared_bytes + used['shared']} bytes of shared memory, "
        f"{blocks} blocks of {threads} threads on a multiprocessor",
    )


@lru_cache(maxsize=1)
def headers() -> dict[str, str]:
    """The device header's files by the names that `#include` gives."""
    folder = Path(__file__).parent / "include"
    return {str(p.relative_to(folder).as_posix()): p.read_text(encoding="utf-8") for p in sorted(folder.rglob("*.cuh"))}


TARGET = CudaTarget()
