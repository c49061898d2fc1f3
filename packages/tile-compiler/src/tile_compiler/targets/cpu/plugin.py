"""The CPU target: LLVM code for x86-64, one C function for each launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler import pipeline
from tile_compiler.context import CompileContext, Fetch, InTensors, TileProduct, plain_options
from tile_compiler.loops.turned import Turn
from tile_compiler.passes.lower_tile_ops import alias_roots
from tile_compiler.passes.plan_scratch import scratch_of
from tile_compiler.rewrite import substitute
from tile_compiler.signature import Signature
from tile_compiler.targets.cpu.features import LEVELS, CpuFeatures, host_features
from tile_compiler.targets.cpu.lowered import LoweredLaunch
from tile_compiler.targets.registry import Built
from tile_runtime.artifact import Artifact
from tilelang.ir import tile_ir

OBJECT, IMPORTED = "kernel.o", "imported.o"


class CpuTarget:
    """`target="cpu"`: the host's instruction sets, or a level such as `x86-64-v3`."""

    kind = "cpu"
    passes = pipeline.CPU

    def lowering(self, func: tir.PrimFunc, *, target: Any, options: Any = None, diffs: bool = False) -> str:
        """The IR after every pass, as text: see `tile_compiler.compile.lowering`."""
        from tile_compiler.compile import lowering

        return lowering(func, target, options, diffs=diffs)

    def compile(self, func: tir.PrimFunc, *, target: Any, options: Any = None, key: str = "") -> Artifact:
        """What `tilelang` calls: see `tile_compiler.compile.compile`."""
        from tile_compiler.compile import compile

        return compile(func, target, options, key=key)

    def context(self, target: Any, options: Any) -> CompileContext:
        features = features_of("" if isinstance(target, str) else str(getattr(target, "arch", "") or ""))

        def product(problem: TileProduct) -> Any:
            return tile_product(problem, features)

        def in_place(problem: InTensors) -> tuple[bool, bool, bool]:
            from tile_compiler.targets.cpu import gemm

            return gemm.in_place(problem, features)

        def turned_copy(turn: Turn) -> Any:
            from tile_compiler.targets.cpu.gemm_operands import transposed

            lanes = features.lanes(32)  # of elements of 4 bytes, or pairs of 2
            # Stores are whole vectors, and of less than a block elements one by one are as good.
            whole = turn.itemsize in (2, 4) and turn.columns % (lanes * 4 // turn.itemsize) == 0 and turn.rows >= lanes
            return transposed(turn, lanes) if whole else None

        def fetch(piece: Fetch) -> Any:
            from tile_compiler.targets.cpu.ahead import fetched

            return fetched(piece)

        return CompileContext(
            features=features,
            options=plain_options(options),
            tile_product=product,
            in_place=in_place,
            turned_copy=turned_copy,
            fetch=fetch,
        )

    def build(self, func: tir.PrimFunc, signature: Signature, ctx: CompileContext) -> Built:
        from tile_compiler.targets.cpu.codegen import build_object

        name = str(func.attrs["global_symbol"])
        kernels = tile_ir.kernels(func)
        launches, entries = [], {}
        for kernel in kernels:
            symbol = f"{name}_kernel" if len(kernels) == 1 else f"{name}_kernel_{kernel.index}"
            launch, args = lowered_launch(func, kernel, symbol, signature)
            launches.append(launch)
            entries[kernel.index] = {
                "binary": OBJECT,
                "symbol": symbol,
                "shared": launch.scratch_bytes,
                "args": args,
                "prints": ctx.prints.get(kernel.index, []),
                "errors": ctx.errors.get(kernel.index, []),
            }
        built = build_object(launches, ctx.features)
        target = {"kind": "cpu", "arch": ctx.features.level, "features": list(ctx.features.extra)}
        binaries = [(OBJECT, "elf", built.object)]
        if ctx.sources:
            from tile_compiler.targets.cpu.host_source import compile_sources

            binaries.append((IMPORTED, "elf", compile_sources(ctx.sources)))
        return Built(binaries, entries, target, {"llvm": built.llvm_ir}, asm=lambda: built.asm)


def features_of(arch: str) -> CpuFeatures:
    """The features that an arch text names: a level with extras after `+`, or the host's for none.

    `x86-64-v4+bf16+vnni` is the level of that name (`tile_runtime_cpu.cpuid`).
    """
    if arch.partition("+")[0] not in {f.level for f in LEVELS}:
        return host_features()  # "", "native", or an LLVM CPU name such as znver4
    return CpuFeatures.of_level(arch)


def tile_product(problem: TileProduct, features: CpuFeatures) -> Any:
    """The register-tiled product of `gemm.py`, or None for element types that it has no kernel for."""
    from tile_compiler.targets.cpu import gemm

    def scratch(dtype: str, shape: Any) -> Any:
        return problem.temporary(shape, dtype, "packed")

    spec = gemm.GemmSpec(
        m=problem.m,
        n=problem.n,
        k=problem.k,
        a=gemm.Operand(*problem.a),
        b=gemm.Operand(*problem.b),
        c=gemm.Operand(*problem.c),
        features=features,
        scratch=scratch,
        clear_accum=problem.clear,
        ahead=problem.ahead,
        limits=problem.limits,
        leaves=problem.leaves,
        prepared=problem.prepared,
    )
    return gemm.emit_gemm(spec)


def lowered_launch(
    func: tir.PrimFunc, kernel: tile_ir.Kernel, symbol: str, signature: Signature
) -> tuple[LoweredLaunch, list[Any]]:
    """One kernel for the code generator, and the manifest's argument list for it."""
    scratch, total, body = scratch_of(kernel.body)
    inline = {v: e for v, e in signature.host_values.items() if v not in signature.names}
    aliases = [s for s in tile_ir.statements(func.body) if isinstance(s, tir.DeclBuffer)]
    body = tile_ir.sequence([*aliases, *tile_ir.statements(substitute(body, inline))])
    grid = tuple(e for _, e in kernel.grid)
    used = used_names(body, grid, alias_roots(func.body))
    params = [b for b in (*signature.params, *signature.workspaces) if tile_ir.is_buffer(b) and b in used]
    used |= used_names(tile_ir.sequence([]), [s for b in params for s in (*b.ty.shape, *(b.ty.strides or ()))], {})
    known = [p for p in func.params if not tile_ir.is_buffer(p)] + [v for v in signature.host_values if v not in inline]
    scalars = [v for v in known if v in used]
    launch = LoweredLaunch(
        symbol=symbol,
        params=tuple(params),
        scalars=tuple(scalars),
        scratch=tuple(scratch),
        scratch_bytes=total,
        block_vars=tuple(v for v, _ in kernel.grid),
        grid=grid,
        body=body,
    )
    return launch, [*(_pointer(b, signature) for b in params), *(_scalar(v, signature) for v in scalars)]


def _pointer(buffer: Any, signature: Signature) -> list[Any]:
    if buffer in signature.params:
        return ["param", signature.params[buffer]]
    return ["workspace", next(i for i, w in enumerate(signature.workspaces) if w.same_as(buffer))]


def _scalar(var: Any, signature: Signature) -> list[Any]:
    if var in signature.params:
        return ["param", signature.params[var]]
    place = signature.names[var]
    return place if isinstance(place, list) and place[0] == "dim" else ["value", str(var.ty), place]


def used_names(body: Any, expressions: Sequence[Any], roots: dict[Any, Any]) -> set[Any]:
    """Every variable and buffer that a body or one of the expressions mentions; a view counts for its owner too.

    Sizes of buffers that the body declares itself count as well.
    """
    found: set[Any] = set()
    for node in [body, *expressions]:
        for n in tile_ir.walk(node):
            if isinstance(n, ir.Var):
                found.add(n)
                if n in roots:
                    found.add(roots[n])
            if isinstance(n, tir.DeclBuffer):
                for size in (*n.buffer.ty.shape, *(n.buffer.ty.strides or ())):
                    found |= {v for v in tile_ir.walk(size) if isinstance(v, ir.Var)}
    return found


TARGET = CpuTarget()
