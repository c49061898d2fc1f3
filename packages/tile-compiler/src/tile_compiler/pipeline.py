"""The order of the passes, for each target; stated here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx as tir

from tile_compiler.context import CompileContext
from tile_compiler.passes.bounds import bounds
from tile_compiler.passes.check_externs import check_externs
from tile_compiler.passes.drop_hints import drop_hints
from tile_compiler.passes.exchange_by_memory import exchange_by_memory
from tile_compiler.passes.lower_parallel import lower_parallel
from tile_compiler.passes.lower_tile_ops import lower_tile_ops
from tile_compiler.passes.plan_pipeline import plan_pipeline
from tile_compiler.passes.plan_scratch import plan_scratch
from tile_compiler.passes.relax_atomics import relax_atomics
from tile_compiler.passes.serialize_threads import serialize_threads
from tile_compiler.passes.unroll_loops import unroll_loops

Pass = Callable[[tir.PrimFunc, CompileContext], tir.PrimFunc]

CPU: tuple[tuple[str, Pass], ...] = (
    ("check_externs", check_externs),
    ("exchange_by_memory", exchange_by_memory),  # from here on no thread asks another one for a value
    ("plan_pipeline", plan_pipeline),  # from here on no pipelined loops
    ("drop_hints", drop_hints),
    ("unroll_loops", unroll_loops),  # from here on no unrolled loops
    ("serialize_threads", serialize_threads),  # from here on no threads: a block is one thread
    ("bounds", bounds),  # from here on element accesses are in bounds or guarded
    ("lower_tile_ops", lower_tile_ops),  # from here on no regions; what the operators make is guarded too
    ("relax_atomics", relax_atomics),  # from here on atomics are on global memory only
    ("lower_parallel", lower_parallel),  # from here on no parallel loops
    ("plan_scratch", plan_scratch),  # from here on on-chip buffers have offsets
)
