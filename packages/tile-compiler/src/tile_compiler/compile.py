"""From a traced function to lowered loops (`lower`) and to an artifact (`compile`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx as tir

from tile_compiler.context import CompileContext
from tile_compiler.grid_barriers import split_at_barriers, with_counters
from tile_compiler.inspect import Trace, readable, run_passes
from tile_compiler.native_object import object_of
from tile_compiler.signature import Signature, signature_of
from tile_compiler.simt.errors import SharedMemoryOverflow
from tile_compiler.simt.fewer_stages import stages_that_fit
from tile_compiler.targets.registry import Built, TargetPlugin
from tile_compiler.targets.registry import target as target_plugin
from tile_compiler.variants import OPTION, WHOLE_TILES, Assumptions, assumptions
from tile_compiler.without_collections import without_collections
from tile_runtime import registry
from tile_runtime.artifact import Artifact
from tile_runtime.errors import DeviceNotFound
from tile_runtime.manifest import Manifest
from tilelang.ir import tile_ir
from tilelang.target import parse

FORMAT = 1
SOURCE, REPORT, ENTRY = "kernel.txt", "report.json", "entry.o"
#: What of the report stands in the manifest, where a launcher finds it without reading a member.
RESOURCES = ("threads", "registers", "spills", "stack", "shared_bytes", "static_shared_bytes", "occupancy")


@dataclass
class LoweredModule:
    """A function after all passes: readable text, the trace of passes, and on demand the target's own code."""

    traced: tir.PrimFunc
    func: tir.PrimFunc
    trace: Trace
    context: CompileContext
    plugin: TargetPlugin
    assumed: Assumptions | None = None
    _built: Built | None = None

    @property
    def signature(self) -> Signature:
        return signature_of(self.traced, self.func)

    @property
    def guard(self) -> Any | None:
        """The calls that this code serves, as a manifest expression; None for all."""
        return None if self.assumed is None else self.assumed.guard(self.signature, self.context)

    def text(self) -> str:
        """The lowered loops."""
        return readable(self.func)

    def built(self) -> Built:
        """Binary code, made once."""
        if self._built is None:
            self._built = self.plugin.build(self.func, self.signature, self.context)
        return self._built

    def llvm_ir(self) -> str:
        return self.built().texts.get("llvm", "")

    def asm(self) -> str:
        write = self.built().asm
        return "" if write is None else write()


def lower(func: tir.PrimFunc, target: Any, options: Any = None) -> LoweredModule:
    """Run the passes of `target` (anything with `kind` and `arch`, or a kind) over a traced function.

    On targets with variants, at the level of the option `tl.variant` (`tile_compiler.variants`).
    """
    plugin = target_plugin(target if isinstance(target, str) else str(target.kind))
    func = with_counters(func) if getattr(plugin, "cooperative", False) else split_at_barriers(func)
    ctx = plugin.context(target, options)
    ctx.text_only = getattr(options, "execution", "device") == "emulate"
    if not ctx.variants:
        lowered, trace = run_passes(func, plugin.passes, ctx)
        return LoweredModule(func, lowered, trace, ctx, plugin)
    assumed = assumptions(func, int(ctx.options.get(OPTION, WHOLE_TILES)))
    ctx.narrow = assumed.narrow
    try:
        lowered, trace = run_passes(assumed.apply(func), plugin.passes, ctx)
    except SharedMemoryOverflow as error:
        again = lambda other: run_passes(other, plugin.passes, plugin.context(target, options))  # noqa: E731
        stages = stages_that_fit(assumed.apply(func), again)
        if stages is not None:
            error.suggest(f"num_stages={stages} fits; or use smaller tiles")
        raise error from None
    return LoweredModule(func, lowered, trace, ctx, plugin, assumed)


@without_collections()
def lowering(func: tir.PrimFunc, target: Any, options: Any = None, *, diffs: bool = False) -> str:
    """Every pass with its time, the IR after it or the `diffs` it made, and the text that comes out; for reading."""
    module = lower(func, target, options)
    source = next((data.decode() for _, kind, data in module.built().binaries if kind == "source"), "")
    return "\n\n".join([module.trace.text(diffs), *([f"# generated\n{source}"] if source else [])])


@without_collections()
def compile(func: tir.PrimFunc, target: Any, options: Any = None, *, key: str = "") -> Artifact:
    """An artifact that the target's runtime launches: manifest, binary, source text and report.

    `options` is a `tilelang.options.Options`, a mapping of pass configs, or None; `key` the cache's level-2 key.
    """
    module = lower(func, target, options)
    built, signature = module.built(), module.signature
    known = module.context.report
    facts = [
        {"symbol": built.launches[k.index]["symbol"], **_facts(k, built), **known.kernels.get(k.index, {})}
        for k in tile_ir.kernels(module.func)
    ]
    report = {
        **known.to_json(),
        "kernels": facts,
        "passes": {name: round(seconds, 6) for name, seconds in module.trace.timings().items()},
        "device_compiler": known.device_compiler,
    }
    members = {name: content for name, _, content in built.binaries}
    printed = next((name for name, kind, _ in built.binaries if kind == "source"), None)
    if printed is None:
        members[SOURCE] = module.text().encode()
    members[REPORT] = json.dumps(report, indent=1, sort_keys=True).encode()
    kinds = {name: kind for name, kind, _ in built.binaries} | {REPORT: "json"}
    if printed is None:
        kinds[SOURCE] = "source"
    manifest = {
        "format": FORMAT,
        "name": str(func.attrs["global_symbol"]),
        "key": key,
        "target": built.target,
        "min_driver": built.min_driver,
        "versions": {"apache-tvm": str(tvm.__version__)},
        **signature.call,
        "workspace": signature.workspace(),
        "tensormaps": list(signature.tensor_maps.values()),
        "variants": [{"guard": module.guard, "launches": _launches(module.func, built, signature)}],
        "binaries": [{"file": name, "kind": kind} for name, kind in kinds.items()],
        "resources": {f["symbol"]: _resources(f, built) for f in facts},
        "assumed": list(known.assumed),
        "source": printed or SOURCE,
        "report": REPORT,
    }
    return with_native_entry(Artifact(Manifest.from_json(manifest), members))


def join(first: Artifact, second: Artifact) -> Artifact:
    """Two compilations of a kernel as one artifact: see `Artifact.joined`."""
    return with_native_entry(first.joined(second))


def with_native_entry(artifact: Artifact) -> Artifact:
    """The artifact with machine code for its launches, where its device knows how to write it."""
    kinds = {b.file: b.kind for b in artifact.manifest.binaries}
    if all(kinds[launch.binary] == "source" for v in artifact.manifest.variants for launch in v.launches):
        return artifact  # for the emulator
    try:
        write = getattr(registry.device(parse(artifact.manifest.target.kind).device), "native_text", None)
    except DeviceNotFound:
        return artifact
    text = None if write is None else write(artifact.manifest)
    data = None if text is None else object_of(text)
    return artifact if data is None else artifact.with_native(ENTRY, data)


def _launches(func: tir.PrimFunc, built: Built, signature: Signature) -> list[dict[str, Any]]:
    launches = []
    for kernel in tile_ir.kernels(func):
        grid = [signature.expression(extent) for _, extent in kernel.grid]
        launches.append({**built.launches[kernel.index], "grid": [*grid, 1, 1, 1][:3]})
    return launches


def _facts(kernel: tile_ir.Kernel, built: Built) -> dict[str, Any]:
    return {"grid": [str(e) for _, e in kernel.grid], "scratch_bytes": built.launches[kernel.index]["shared"]}


def _resources(facts: dict[str, Any], built: Built) -> dict[str, Any]:
    return {**{key: facts[key] for key in RESOURCES if key in facts}, **built.resources.get(facts["symbol"], {})}
