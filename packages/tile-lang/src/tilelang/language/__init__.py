"""`T`: the names that kernels use. One explicit list; nothing here loads TVM, torch or a compiler."""

from __future__ import annotations

from typing import Any

from tilelang.frontend.annotations import BufferAnnotation as Buffer
from tilelang.frontend.annotations import FragmentBuffer, SharedBuffer, StridedTensor, Tensor
from tilelang.frontend.loops import Parallel, Persistent, Pipelined, grid, serial, unroll, vectorized
from tilelang.frontend.trace import dynamic, macro, prim_func
from tilelang.frontend.values import cast
from tilelang.ir import dtypes as _dtypes
from tilelang.ir.dtypes import DType as dtype
from tilelang.language.across import (
    cluster_arrive,
    cluster_arrive_relaxed,
    cluster_sync,
    cluster_wait,
    pdl_sync,
    pdl_trigger,
    sync_grid,
)
from tilelang.language.allocate import (
    access_ptr,
    address_of,
    alloc_buffer,
    alloc_fragment,
    alloc_fragments,
    alloc_global,
    alloc_local,
    alloc_shared,
    alloc_var,
    empty,
    evaluate,
    reshape,
    view,
)
from tilelang.language.atomics import (
    atomic,
    atomic_add,
    atomic_addx2,
    atomic_addx4,
    atomic_and,
    atomic_exchange,
    atomic_load,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_store,
    atomic_xor,
)
from tilelang.language.barriers import (
    alloc_barrier,
    alloc_cluster_barrier,
    barrier_arrive,
    barrier_wait,
    cp_async_barrier_noinc,
    fence_proxy_async,
    mbarrier_arrive,
    mbarrier_arrive_expect_tx,
    mbarrier_expect_tx,
    mbarrier_wait_parity,
)
from tilelang.language.bulk_copy import tma_copy, tma_store_arrive, tma_store_wait
from tilelang.language.hints import (
    annotate_l2_hit_ratio,
    annotate_layout,
    annotate_min_blocks_per_sm,
    annotate_safe_value,
    assume,
    call_extern,
    device_assert,
    import_source,
    print,
    ptx,
    sync_threads,
    use_swizzle,
)
from tilelang.language.launch import (
    ClusterKernel,
    Kernel,
    block_rank_in_cluster,
    get_block_binding,
    get_block_bindings,
    get_block_extent,
    get_block_extents,
    get_cluster_id,
    get_thread_binding,
    get_thread_bindings,
    get_thread_extent,
    get_thread_extents,
    thread_binding,
)
from tilelang.language.math import (
    Cast,
    Select,
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    cdiv,
    ceil,
    ceildiv,
    clamp,
    cos,
    cosh,
    dot2,
    erf,
    exp,
    exp2,
    exp10,
    floor,
    floordiv,
    floormod,
    fmod,
    if_then_else,
    infinity,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    max,
    max_value,
    min,
    min_value,
    nearbyint,
    popcount,
    pow,
    reinterpret,
    round,
    rsqrt,
    shift_left,
    shift_right,
    sigmoid,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
    truncdiv,
    truncmod,
)
from tilelang.language.math import const as _literal
from tilelang.language.product import (
    gemm,
    wait_wgmma,
    warpgroup_arrive,
    warpgroup_commit_batch,
    warpgroup_fence_operand,
    warpgroup_wait,
    wgmma_gemm,
)
from tilelang.language.roles import (
    annotate_consumer_reg_alloc,
    annotate_producer_reg_dealloc,
    dec_max_nreg,
    disable_warp_group_reg_alloc,
    inc_max_nreg,
    no_set_max_nreg,
    set_max_nreg,
    ws,
)
from tilelang.language.tile import (
    async_copy,
    clear,
    copy,
    cummax,
    cummin,
    cumprod,
    cumsum,
    fill,
    prefetch,
    reduce,
    reduce_absmax,
    reduce_abssum,
    reduce_bitand,
    reduce_bitor,
    reduce_bitxor,
    reduce_max,
    reduce_min,
    reduce_prod,
    reduce_product,
    reduce_sum,
)
from tilelang.language.warp import (
    get_lane_idx,
    get_warp_group_idx,
    get_warp_idx,
    get_warp_idx_sync,
    shfl_down,
    shfl_sync,
    shfl_up,
    shfl_xor,
    shuffle_elect,
    tvm_warp_shuffle,
    tvm_warp_shuffle_down,
    tvm_warp_shuffle_up,
    warp_reduce_bitand,
    warp_reduce_bitor,
    warp_reduce_max,
    warp_reduce_min,
    warp_reduce_sum,
)
from tilelang.ops.gemm import GemmWarpPolicy

# -- other spellings of the same things ---------------------------------------------------------------------------

symbolic = dynamic
Serial = serial
Unroll = unroll
Vectorized = vectorized
vectorize = vectorized
parallel = Parallel
reduce_mul = reduce_prod
PrimExpr = Any
dtypes = _dtypes


def const(names: Any, dtype: Any = None) -> Any:
    """Eager style: `M, N = T.const("M, N")`, sizes known at compile time, taken from the arguments' shapes.

    With a number, `T.const(0.5, "float16")`: a literal of a given type.
    """
    if not isinstance(names, str):
        return _literal(names, dtype)
    from tilelang.frontend.eager import const as eager_const

    return eager_const(names)


# -- element types; vector types such as T.float32x4 come from __getattr__ ---------------------------------------

int1 = dtype("int1")
int2 = dtype("int2")
int4 = dtype("int4")
int8 = dtype("int8")
int16 = dtype("int16")
int32 = dtype("int32")
int64 = dtype("int64")
uint1 = dtype("uint1")
uint2 = dtype("uint2")
uint4 = dtype("uint4")
uint8 = dtype("uint8")
uint16 = dtype("uint16")
uint32 = dtype("uint32")
uint64 = dtype("uint64")
float16 = dtype("float16")
bfloat16 = dtype("bfloat16")
tfloat32 = dtype("tfloat32")
float32 = dtype("float32")
float64 = dtype("float64")
float8_e4m3fn = dtype("float8_e4m3fn")
float8_e4m3fnuz = dtype("float8_e4m3fnuz")
float8_e5m2 = dtype("float8_e5m2")
float8_e5m2fnuz = dtype("float8_e5m2fnuz")
float8_e8m0fnu = dtype("float8_e8m0fnu")
float4_e2m1fn = dtype("float4_e2m1fn")
bf16 = dtype("bfloat16")
boolean = dtype("bool")
double = dtype("float64")
e4m3_float8 = dtype("float8_e4m3fn")
e5m2_float8 = dtype("float8_e5m2")
float = dtype("float32")
float4_e2m1 = dtype("float4_e2m1fn")
float4_e2m1fn_x2 = dtype("float4_e2m1fn")
float8_e4m3 = dtype("float8_e4m3fn")
fp16 = dtype("float16")
fp32 = dtype("float32")
half = dtype("float16")
int = dtype("int32")
long = dtype("int64")
short = dtype("int16")
tf32 = dtype("tfloat32")
uint = dtype("uint32")
bool = dtype("bool")


def __getattr__(name: str) -> Any:
    """Vector types such as `T.float32x4`; layouts, which need numpy only when used."""
    layout_names = ("Layout", "Fragment", "make_swizzled_layout", "make_padded_layout", "layout")
    if name in layout_names:
        from tilelang import layout

        return layout if name == "layout" else getattr(layout, name)
    if not name.startswith("_"):
        try:
            return dtype(name)
        except ValueError:
            pass
    from tilelang.language.elsewhere import missing

    error = missing(name)
    if error is not None:
        raise error
    raise AttributeError(f"module 'tilelang.language' has no attribute {name!r}")


__all__ = [
    "Buffer",
    "Cast",
    "ClusterKernel",
    "FragmentBuffer",
    "GemmWarpPolicy",
    "Kernel",
    "Parallel",
    "Persistent",
    "Pipelined",
    "PrimExpr",
    "Select",
    "Serial",
    "SharedBuffer",
    "StridedTensor",
    "Tensor",
    "Unroll",
    "Vectorized",
    "abs",
    "access_ptr",
    "acos",
    "acosh",
    "across",
    "address_of",
    "alloc_barrier",
    "alloc_buffer",
    "alloc_cluster_barrier",
    "alloc_fragment",
    "alloc_fragments",
    "alloc_global",
    "alloc_local",
    "alloc_shared",
    "alloc_var",
    "allocate",
    "annotate_consumer_reg_alloc",
    "annotate_l2_hit_ratio",
    "annotate_layout",
    "annotate_min_blocks_per_sm",
    "annotate_producer_reg_dealloc",
    "annotate_safe_value",
    "asin",
    "asinh",
    "assume",
    "async_copy",
    "atan",
    "atan2",
    "atanh",
    "atomic",
    "atomic_add",
    "atomic_addx2",
    "atomic_addx4",
    "atomic_and",
    "atomic_exchange",
    "atomic_load",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_store",
    "atomic_xor",
    "atomics",
    "barrier_arrive",
    "barrier_wait",
    "barriers",
    "bf16",
    "bfloat16",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "block_rank_in_cluster",
    "bool",
    "boolean",
    "bulk_copy",
    "call_extern",
    "cast",
    "cdiv",
    "ceil",
    "ceildiv",
    "clamp",
    "clear",
    "cluster_arrive",
    "cluster_arrive_relaxed",
    "cluster_sync",
    "cluster_wait",
    "const",
    "copy",
    "cos",
    "cosh",
    "cp_async_barrier_noinc",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "dec_max_nreg",
    "device_assert",
    "disable_warp_group_reg_alloc",
    "dot2",
    "double",
    "dtype",
    "dtypes",
    "dynamic",
    "e4m3_float8",
    "e5m2_float8",
    "empty",
    "erf",
    "evaluate",
    "exp",
    "exp2",
    "exp10",
    "fence_proxy_async",
    "fill",
    "float",
    "float4_e2m1",
    "float4_e2m1fn",
    "float4_e2m1fn_x2",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float16",
    "float32",
    "float64",
    "floor",
    "floordiv",
    "floormod",
    "fmod",
    "fp16",
    "fp32",
    "gemm",
    "get_block_binding",
    "get_block_bindings",
    "get_block_extent",
    "get_block_extents",
    "get_cluster_id",
    "get_lane_idx",
    "get_thread_binding",
    "get_thread_bindings",
    "get_thread_extent",
    "get_thread_extents",
    "get_warp_group_idx",
    "get_warp_idx",
    "get_warp_idx_sync",
    "grid",
    "half",
    "hints",
    "if_then_else",
    "import_source",
    "inc_max_nreg",
    "infinity",
    "int",
    "int1",
    "int2",
    "int4",
    "int8",
    "int16",
    "int32",
    "int64",
    "isfinite",
    "isinf",
    "isnan",
    "launch",
    "log",
    "log1p",
    "log2",
    "log10",
    "long",
    "macro",
    "math",
    "max",
    "max_value",
    "mbarrier_arrive",
    "mbarrier_arrive_expect_tx",
    "mbarrier_expect_tx",
    "mbarrier_wait_parity",
    "min",
    "min_value",
    "nearbyint",
    "no_set_max_nreg",
    "parallel",
    "pdl_sync",
    "pdl_trigger",
    "popcount",
    "pow",
    "prefetch",
    "prim_func",
    "print",
    "ptx",
    "reduce",
    "reduce_absmax",
    "reduce_abssum",
    "reduce_bitand",
    "reduce_bitor",
    "reduce_bitxor",
    "reduce_max",
    "reduce_min",
    "reduce_mul",
    "reduce_prod",
    "reduce_product",
    "reduce_sum",
    "reinterpret",
    "reshape",
    "roles",
    "round",
    "rsqrt",
    "serial",
    "set_max_nreg",
    "shfl_down",
    "shfl_sync",
    "shfl_up",
    "shfl_xor",
    "shift_left",
    "shift_right",
    "short",
    "shuffle_elect",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "symbolic",
    "sync_grid",
    "sync_threads",
    "tan",
    "tanh",
    "tf32",
    "tfloat32",
    "thread_binding",
    "tile",
    "tma_copy",
    "tma_store_arrive",
    "tma_store_wait",
    "trunc",
    "truncdiv",
    "truncmod",
    "tvm_warp_shuffle",
    "tvm_warp_shuffle_down",
    "tvm_warp_shuffle_up",
    "uint",
    "uint1",
    "uint2",
    "uint4",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "unroll",
    "use_swizzle",
    "vectorize",
    "vectorized",
    "view",
    "wait_wgmma",
    "warp",
    "warp_reduce_bitand",
    "warp_reduce_bitor",
    "warp_reduce_max",
    "warp_reduce_min",
    "warp_reduce_sum",
    "warpgroup_arrive",
    "warpgroup_commit_batch",
    "warpgroup_fence_operand",
    "warpgroup_wait",
    "wgmma_gemm",
    "ws",
]
