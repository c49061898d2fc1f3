"""The HIP target: SIMT IR printed as HIP C++, compiled to a code object by `tile-runtime-rocm` (which needs no ROCm)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from tvm import tirx as tir

from tile_compiler.cfamily import dialect
from tile_compiler.cfamily.launches import KernelLaunch, kernel_launches
from tile_compiler.context import CompileContext, plain_options
from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.signature import Signature
from tile_compiler.targets.hip.arch import MAX_REGISTERS, SIMDS, WAVE_SIZE, HipArch, hip_arch
from tile_compiler.targets.hip.chips import CHIPS
from tile_compiler.targets.registry import Built
from tile_runtime import registry
from tile_runtime.artifact import Artifact

CODE_OBJECT, SOURCE = "kernel.hsaco", "kernel.hip"
COMPILER_OPTION = "tl.hip_compiler"  # "hipcc", "clang" or "ziglang"; left out: the first of these that is here
FLAGS_OPTION = "tl.device_compile_flags"


class HipTarget:
    """`target="hip"`, with an architecture: `"hip -mcpu=gfx942"`."""

    kind = "hip"

    @property
    def passes(self) -> tuple[tuple[str, Any], ...]:
        from tile_compiler.simt.pipeline import HIP

        return tuple(HIP)

    def lowering(self, func: tir.PrimFunc, *, target: Any, options: Any = None, diffs: bool = False) -> str:
        """The IR after every pass, as text: see `tile_compiler.compile.lowering`."""
        from tile_compiler.compile import lowering

        return lowering(func, target, options, diffs=diffs)

    def compile(self, func: tir.PrimFunc, *, target: Any, options: Any = None, key: str = "") -> Artifact:
        """What `tilelang` calls: see `tile_compiler.compile.compile`."""
        from tile_compiler.compile import compile

        return compile(func, target, options, key=key)

    def machine(self, arch: str) -> Any:
        """What the autotuner's model knows of an architecture (`tilelang.autotuner.machine.Machine`); None without a chip."""
        from tile_compiler.targets.chip import machine

        facts = hip_arch(arch)
        chip = CHIPS.get(facts.name)
        if chip is None:
            return None
        return machine(
            chip,
            shared_per_block=facts.lds_per_block,
            registers_per_thread=MAX_REGISTERS,
            group=WAVE_SIZE,
            occupancy=lambda threads, registers, lds: {"compute unit": facts.occupancy(threads, registers, lds)},
        )

    def context(self, target: Any, options: Any) -> CompileContext:
        from tile_compiler.simt.arch import arch_of
        from tile_compiler.simt.context import SimtContext

        arch = hip_arch("" if isinstance(target, str) else str(getattr(target, "arch", "") or ""))
        return SimtContext(features=arch, options=plain_options(options), arch=arch_of(arch.name))

    def build(self, func: tir.PrimFunc, signature: Signature, ctx: CompileContext) -> Built:
        from tile_compiler.simt.device_text import device_text

        arch: HipArch = ctx.features
        launches = kernel_launches(func, signature, narrow=ctx.narrow)
        for launch in launches:
            check_lds(launch, arch)
        source, members = device_text(func, launches, dialect.HIP, ctx, SOURCE, CHIPS.get(arch.name))
        texts, used = {"hip": source}, {}
        if not ctx.text_only:
            made = self._code_object(source, launches, arch, ctx)
            members.insert(0, (CODE_OBJECT, "hsaco", made.data))
            texts |= {"log": made.log, "compiler": made.compiler}
            used = {launch.kernel.symbol: resources(launch, made.resources, arch) for launch in launches}
        entries = {
            launch.index: launch.entry(
                members[0][0], prints=ctx.prints.get(launch.index, []), errors=ctx.errors.get(launch.index, [])
            )
            for launch in launches
        }
        return Built(members, entries, {"kind": "hip", "arch": arch.name, "features": []}, texts, used)

    @staticmethod
    def _code_object(source: str, launches: list[KernelLaunch], arch: HipArch, ctx: CompileContext) -> Any:
        device: Any = registry.device("rocm")
        start = time.perf_counter()
        made = device.build(
            source,
            arch=arch.name,
            headers=headers(),
            options=compile_flags(ctx.options),
            compiler=str(ctx.options.get(COMPILER_OPTION) or ""),
        )
        ctx.report.device_compiler = {"name": made.compiler, "seconds": round(time.perf_counter() - start, 4)}
        for launch in launches:
            note_resources(launch, resources(launch, made.resources, arch), arch, ctx)
        return made


def compile_flags(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Flags of the user for the device compiler."""
    flags = options.get(FLAGS_OPTION) or ()
    return tuple(flags.split()) if isinstance(flags, str) else tuple(str(f) for f in flags)


def check_lds(launch: KernelLaunch, arch: HipArch) -> None:
    """Raises UnsupportedOnTarget for a block that cannot have its shared memory."""
    if launch.shared_bytes > arch.lds_per_block:
        raise UnsupportedOnTarget(
            f"{launch.kernel.symbol} needs {launch.shared_bytes} bytes of shared memory",
            found=f"{launch.shared_bytes} bytes",
            expected=f"at most {arch.lds_per_block} bytes on {arch.name}",
            repair="use smaller tiles or fewer stages",
        )


def resources(launch: KernelLaunch, made: Mapping[str, Mapping[str, int]], arch: HipArch) -> dict[str, int]:
    """What one kernel uses: the code object's figures, dynamic LDS added, and blocks on a compute unit (occupancy)."""
    used = dict(made[launch.kernel.symbol])
    used["shared"] += launch.shared_bytes
    used["occupancy"] = arch.occupancy(launch.kernel.num_threads, used["registers"], used["shared"])
    return used


def note_resources(launch: KernelLaunch, used: Mapping[str, int], arch: HipArch, ctx: CompileContext) -> None:
    """What the device compiler used, for the report."""
    threads, blocks = launch.kernel.num_threads, used["occupancy"]
    lds_limits = arch.occupancy(threads, used["registers"], 0) > blocks
    ctx.report.kernels.setdefault(launch.index, {}).update(
        registers=used["registers"],
        spills=used["spills"],
        stack=used["scratch"],
        occupancy={
            "blocks": blocks,
            "threads": blocks * threads,
            "of_threads": SIMDS * arch.waves_per_simd * WAVE_SIZE,
            "limited_by": "shared memory" if lds_limits else "registers" if blocks < 16 else "blocks",
        },
    )
    ctx.report.note(
        None,
        f"{launch.kernel.symbol} on {arch.name}: {used['registers']} of {MAX_REGISTERS} vector registers "
        f"({used['accumulators']} of them accumulators), {used['scalar_registers']} scalar registers, "
        f"{used['spills']} registers spilled, {used['scratch']} bytes of scratch, {used['shared']} bytes of LDS, "
        f"{used['occupancy']} blocks of {launch.kernel.num_threads} threads on a compute unit",
    )


@lru_cache(maxsize=1)
def headers() -> dict[str, str]:
    """The device header's files by the names that `#include` gives."""
    folder = Path(__file__).parent / "include"
    return {str(p.relative_to(folder).as_posix()): p.read_text(encoding="utf-8") for p in sorted(folder.rglob("*.h"))}


TARGET = HipTarget()
