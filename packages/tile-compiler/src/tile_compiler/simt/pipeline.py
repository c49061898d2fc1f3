"""The order of the passes for CUDA and HIP; stated here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx as tir

from tile_compiler.simt.check_synchronization import check_synchronization
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.expand_tiles import expand_tiles
from tile_compiler.simt.fence_handovers import fence_handovers
from tile_compiler.simt.flatten_shared import flatten_shared
from tile_compiler.simt.fold_clears import fold_clears
from tile_compiler.simt.hold_operands import hold_operands
from tile_compiler.simt.infer_layouts import infer_layouts
from tile_compiler.simt.initialize_barriers import initialize_barriers
from tile_compiler.simt.insert_barriers import insert_barriers
from tile_compiler.simt.issue_direct_loads import issue_direct_loads
from tile_compiler.simt.keep_blocks import keep_blocks
from tile_compiler.simt.longest_first import longest_first
from tile_compiler.simt.lower_atomics import lower_atomics
from tile_compiler.simt.lower_operators import lower_operators
from tile_compiler.simt.lower_shuffles import lower_shuffles
from tile_compiler.simt.materialize_threads import materialize_threads
from tile_compiler.simt.place_wgmma_waits import place_wgmma_waits
from tile_compiler.simt.plan_clusters import plan_clusters
from tile_compiler.simt.plan_pipeline import plan_pipeline
from tile_compiler.simt.plan_shared_memory import plan_shared_memory
from tile_compiler.simt.rasterize_grid import rasterize_grid
from tile_compiler.simt.resolve_ptx import resolve_ptx
from tile_compiler.simt.roles.plan_channels import plan_channels
from tile_compiler.simt.roles.split_roles import split_roles
from tile_compiler.simt.share_elements import share_elements
from tile_compiler.simt.skip_masks import skip_masks
from tile_compiler.simt.split_addresses import split_addresses
from tile_compiler.simt.split_sums import split_sums
from tile_compiler.simt.split_vectors import split_vectors
from tile_compiler.simt.store_once import store_once
from tile_compiler.simt.unroll_walks import unroll_walks

Pass = Callable[[tir.PrimFunc, SimtContext], tir.PrimFunc]

CUDA: tuple[tuple[str, Pass], ...] = (
    ("materialize_threads", materialize_threads),  # from here on every kernel has threads
    ("resolve_ptx", resolve_ptx),  # from here on no instructions by opcode: functions, some of them above the kernel
    ("lower_shuffles", lower_shuffles),  # from here on threads ask others for values by the device header
    ("skip_masks", skip_masks),  # from here on tiles are masked only where their mask has an edge
    ("split_sums", split_sums),  # Hopper: from here on parts of sums lie in blocks of clusters where that pays
    ("hold_operands", hold_operands),  # Hopper: from here on narrow products have what stays the same in registers
    ("fold_clears", fold_clears),  # Hopper: products that start from 0 say so
    ("plan_clusters", plan_clusters),  # changes nothing: which kernels are launched in clusters
    ("keep_blocks", keep_blocks),  # Hopper: from here on blocks stay for many tiles where that pays
    ("plan_channels", plan_channels),  # Hopper: from here on copies that a producer makes are marked as its own
    ("plan_pipeline", plan_pipeline),  # from here on no pipelined loops; copies that may run ahead are marked
    ("expand_tiles", expand_tiles),  # from here on: parallel nests, gemm, reduce and scan over whole tiles
    ("unroll_walks", unroll_walks),  # from here on no loops inside parallel nests over elements of fragments
    ("share_elements", share_elements),  # from here on threads read no fragments by themselves
    ("infer_layouts", infer_layouts),  # from here on every on-chip buffer and nest has a layout in the context
    ("lower_operators", lower_operators),  # from here on no regions, fragments, parallel loops; accesses are guarded
    ("flatten_shared", flatten_shared),  # from here on shared buffers are 1-D, in physical order
    ("split_vectors", split_vectors),  # from here on elements of buffers are scalars
    ("plan_shared_memory", plan_shared_memory),  # from here on shared buffers have offsets, at the kernel's start
    ("initialize_barriers", initialize_barriers),  # from here on mbarriers are set up before their first use
    ("place_wgmma_waits", place_wgmma_waits),  # from here on registers and tiles of wgmma are used after their waits
    ("store_once", store_once),  # from here on what all threads would store in one place, one of them stores
    ("insert_barriers", insert_barriers),  # from here on synchronization is explicit and complete
    ("fence_handovers", fence_handovers),  # bulk copies overwrite what ordinary accesses are done with
    ("issue_direct_loads", issue_direct_loads),  # AMD: copies to LDS are the wave's, waits count loads
    ("split_addresses", split_addresses),  # what a thread computes once of a swizzled address stands before the loops
    ("rasterize_grid", rasterize_grid),  # from here on the kernel's block is not the one that the hardware numbers
    ("longest_first", longest_first),  # from here on the longest of unequal blocks have the first numbers
    ("check_synchronization", check_synchronization),  # changes nothing: a race is an error
    ("split_roles", split_roles),  # the producer's statements have threads of their own
    ("lower_atomics", lower_atomics),  # from here on no calls of ours but those of the device header
)

HIP: tuple[tuple[str, Pass], ...] = CUDA
"""The same: what differs is in the facts of the architecture, which the passes ask for."""
