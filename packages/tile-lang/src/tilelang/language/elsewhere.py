"""Names that other versions of the language have and this one does not: what to write instead."""

from __future__ import annotations

from tilelang.errors import NotInThisRelease

_COMPILER = "what the compiler does itself"
_DESCRIPTORS = ("T.tma_copy(A[m, k], A_shared, barrier=full[0]): the compiler makes the tensor map", _COMPILER)
_WGMMA = ("T.wgmma_gemm(A_shared, B_shared, C): the compiler makes the descriptors", _COMPILER)
_GROUPS = ("T.copy in a T.Pipelined loop, or T.async_copy: the compiler places the groups and their waits", _COMPILER)
_LATER = ("it with the operators that are there: T.copy, T.gemm, T.reduce_*, T.Parallel", "the beginner level")

#: Name: (what to write instead, what it is a name of).
INSTEAD: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("create_tma_descriptor", "tma_load", "tma_store", "tma_gather4", "tma_scatter4"), _DESCRIPTORS),
    **dict.fromkeys(("alloc_wgmma_desc", "initialize_wgmma_descriptor", "ptx_wgmma_ss", "ptx_wgmma_rs"), _WGMMA),
    **dict.fromkeys(("ptx_cp_async", "ptx_commit_group", "ptx_wait_group"), _GROUPS),
    "copy_cluster": (
        "T.copy in a kernel with cluster_dims, which brings tiles that all blocks share by multicast; blocks pass data on "
        "in global memory, behind T.cluster_sync",
        _COMPILER,
    ),
    "ptx_init_barrier_thread_count": (
        "T.alloc_barrier(count): the barriers are ready at the first statement",
        _COMPILER,
    ),
    "ptx_fence_barrier_init": ("T.alloc_barrier(count): the barriers are ready at the first statement", _COMPILER),
    "ptx_arrive_barrier": ("T.mbarrier_arrive(barrier)", "another spelling"),
    "ptx_wait_barrier": ("T.mbarrier_wait_parity(barrier, parity)", "another spelling"),
    "PersistentTileScheduler": ("T.Persistent([rows, columns], blocks, block)", "another spelling"),
    **dict.fromkeys(("softmax", "transpose", "pipeline", "block", "gemm_sp", "im2col", "rng_init", "rng_rand"), _LATER),
    **dict.fromkeys(("make_tensor", "ptr"), _LATER),
}


def missing(name: str) -> NotInThisRelease | None:
    """The error of a name that this version does not have; None for one that nobody has heard of."""
    if name not in INSTEAD:
        return None
    instead, kind = INSTEAD[name]
    return NotInThisRelease(
        f"T.{name} is not in this release",
        found=f"T.{name}, a name of {kind}" if kind != "another spelling" else f"T.{name}, another spelling",
        expected="the names that `dir(tilelang.language)` lists",
        repair=f"write {instead}",
    )
