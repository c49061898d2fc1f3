"""Faults of asynchronous kernels by name, one at a time in a correct kernel: each must be reported in both modes and with
every seed, the kernel without it must not.

The first four are those of the prototype's table; "stage released early" leaves the result exact.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

MODES = [(seed, mode) for seed in (0, 1, 2) for mode in ("early", "late")]
N = 256

#: Name: (text, its replacement, kinds of finding of which at least one is reported, text of the statement).
FAULTS = {
    "no wait on the full mbarrier": (
        "tl::mbarrier_wait(full + s, i / kStages & 1);",
        "",
        {"read-in-flight", "uninitialized-read"},
        "wgmma_m64k16",
    ),
    "no wait on the empty mbarrier": (
        "tl::mbarrier_wait(empty + s, (i / kStages & 1) ^ 1);",
        "",
        {"mbarrier-over-arrival", "write-under-asynchronous-read", "write-in-flight", "mbarrier-transaction-count"},
        "",
    ),
    "stage released before wgmma_wait": (
        "tl::wgmma_commit();",
        "tl::wgmma_commit();\n      if (threadIdx.x % 32 == 0) tl::mbarrier_arrive(empty + s);",
        {"write-under-asynchronous-read"},
        "tma_load",
    ),
    "wgmma_wait left out": (
        "tl::wgmma_wait<0>();",
        "",
        {"write-under-asynchronous-read", "register-in-flight"},
        "",
    ),
    "wgmma_commit left out": (
        "tl::wgmma_commit();",
        "",
        {"write-under-asynchronous-read", "register-in-flight"},
        "",
    ),
    "wgmma_fence left out": ("tl::wgmma_fence();", "", {"missing-wgmma-fence"}, "wgmma_m64k16"),
    "accumulator touched while in use": (
        "tl::wgmma_wait<0>();",
        "acc[5] *= 2.0f;\n      tl::wgmma_wait<0>();",
        {"register-in-flight"},
        "acc[5]",
    ),
    "wait for too old a group": (
        "tl::wgmma_wait<0>();",
        "tl::wgmma_wait<1>();",
        {"write-under-asynchronous-read", "register-in-flight"},
        "",
    ),
    "over-arrival": (
        "if (threadIdx.x % 32 == 0) tl::mbarrier_arrive(empty + s);",
        "if (threadIdx.x % 8 == 0) tl::mbarrier_arrive(empty + s);",
        {"mbarrier-over-arrival"},
        "mbarrier_arrive(empty",
    ),
    "over-arrival while bytes are outstanding": (
        "tl::mbarrier_arrive_expect_tx(full + s, kStage);",
        "tl::mbarrier_arrive_expect_tx(full + s, kStage);\n        tl::mbarrier_arrive(full + s);",
        {"mbarrier-over-arrival"},
        "mbarrier_arrive(full",
    ),
    "a barrier that is never completed": (
        "tl::mbarrier_init(empty + s, 4);",
        "tl::mbarrier_init(empty + s, 5);",
        {"deadlock"},
        "mbarrier_wait",
    ),
    "fewer bytes than expected": (
        "tl::mbarrier_arrive_expect_tx(full + s, kStage);",
        "tl::mbarrier_arrive_expect_tx(full + s, kStage + 16);",
        {"deadlock"},
        "mbarrier_wait",
    ),
    "more bytes than expected": (
        "tl::mbarrier_arrive_expect_tx(full + s, kStage);",
        "tl::mbarrier_arrive_expect_tx(full + s, kTileA);",
        {"deadlock", "read-in-flight", "write-in-flight"},
        "",
    ),
    "wrong parity of the first wait": (
        "(i / kStages & 1) ^ 1);",
        "i / kStages & 1);",
        {"deadlock"},
        "mbarrier_wait",
    ),
    "mbarriers used before their initialization": (
        "tl::sync_threads();",
        "",
        {"mbarrier-not-initialized"},
        "mbarrier",
    ),
    "mbarriers not fenced after their initialization": (
        "tl::fence_mbarrier_init();",
        "",
        {"missing-proxy-fence"},
        "tma_load",
    ),
    "a step of k too many": ("int steps = K / 64;", "int steps = K / 64 + (threadIdx.x >= 128);", {"deadlock"}, "full"),
    "tiles that overlap": (
        "tl::tma_load<tl::evict_last>(shared + s * kStage + kTileA,",
        "tl::tma_load<tl::evict_last>(shared + s * kStage + kTileA - 1024,",
        {"write-in-flight", "uninitialized-read"},
        "",
    ),
    "a wgmma in half a warpgroup": (
        "    float acc[64];",
        "    if (threadIdx.x >= 192) return;\n    float acc[64];",
        {"exited-lane"},
        "wgmma",
    ),
    "the limit changed by one warp": (
        "tl::register_limit_increase<232>();",
        "if (threadIdx.x < 160) tl::register_limit_increase<232>();",
        {"divergence"},
        "",
    ),
    "more registers given up than there are": (
        "tl::register_limit_decrease<40>();",
        "tl::register_limit_decrease<40>();\n    tl::register_limit_decrease<48>();",
        {"register-limit"},
        "decrease<48>",
    ),
}


def launch(kernel_file, tensor_map, watched, *changes, seed, mode):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((N, N)).astype("f2") for _ in range(2))
    c = np.full((N, N), np.nan, "f4")
    args = [tensor_map(a, (64, 64), swizzle=128), tensor_map(b, (64, 128), swizzle=128), c, N, N]
    module, buffers = kernel_file("hopper_gemm.cu", *changes), watched(A=a, B=b, O=c)
    return module.launch(
        "gemm", (N // 128, N // 64), (256,), 2 * 24576 + 64, args, seed=seed, mode=mode, buffers=buffers
    )


def check_fault(report, kinds, statement):
    found = {f.kind for f in report.errors}
    assert found, "nothing was found"
    assert found <= kinds, report
    texts = [f.text for f in report.errors] + report.standing
    assert not statement or any(statement in text for text in texts), report
    assert all(f.line and f.advice for f in report.errors)


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_a_gemm(kernel_file, tensor_map, watched, fault):
    old, new, kinds, statement = FAULTS[fault]
    for seed, mode in MODES:
        report = launch(kernel_file, tensor_map, watched, (old, new), seed=seed, mode=mode)
        check_fault(report, kinds, statement)


#: Of the persistent kernel, whose stores go through shared memory and TMA.
STORE_FAULTS = {
    "missing proxy fence": (
        "tl::fence_proxy_async();       // for the store below",
        "",
        {"missing-proxy-fence"},
        "tma_store",
    ),
    "proxy fence after the barrier, by one thread of many": (
        "tl::fence_proxy_async();       // for the store below\n    tl::sync_barrier(group, 128);  // the tile is whole\n",
        "tl::sync_barrier(group, 128);\n    if (threadIdx.x % 128 == 1) tl::fence_proxy_async();\n",
        {"missing-proxy-fence"},
        "tma_store",
    ),
    "no barrier before the store": (
        "tl::sync_barrier(group, 128);  // the tile is whole",
        "",
        {"race-read-after-write", "uninitialized-read", "write-under-asynchronous-read"},
        "",
    ),
    "no barrier before the buffer is written": (
        "tl::sync_barrier(group, 128);                         // by all known",
        "",
        {"write-under-asynchronous-read", "race-write-after-read", "race-read-after-write"},
        "st",
    ),
    "the store's buffer written before it is read": (
        "if (threadIdx.x % 128 == 0) tl::bulk_wait_read<0>();  // the buffer has been read",
        "",
        {"write-under-asynchronous-read"},
        "stmatrix",
    ),
    "a store without a group": ("      tl::bulk_commit();", "", {"write-under-asynchronous-read"}, "stmatrix"),
    "the last store not waited for": (
        "if (threadIdx.x % 128 == 0) tl::bulk_wait<0>();  // the stores are done",
        "",
        {"exit-in-flight"},
        "tma_store",
    ),
    "the last wgmma not waited for": (
        "      tl::wgmma_wait<0>();  // all of the tile is done",
        "",
        {"register-in-flight", "write-under-asynchronous-read"},
        "",
    ),
    "the step under way released instead of the one before": (
        "if (held >= 0 && threadIdx.x % 128 == 0) tl::mbarrier_arrive(empty + held);\n        held = at.stage;",
        "held = at.stage;\n        if (i + 1 < steps && threadIdx.x % 128 == 0) tl::mbarrier_arrive(empty + held);",
        {"write-under-asynchronous-read"},
        "tma_load",
    ),
    "registers asked for that nobody gives up": (
        "tl::register_limit_decrease<24>();",
        "",
        {"deadlock"},
        "for registers that others must give up first",
    ),
    "more registers than there are": (
        "tl::register_limit_increase<240>();",
        "tl::register_limit_increase<248>();",
        {"deadlock"},
        "for registers that others must give up first",
    ),
    "a producer that forgets its parity": (
        "      phase ^= 1;",
        "",
        {"deadlock", "mbarrier-over-arrival", "write-in-flight"},
        "",
    ),
}

#: Of the kernel with clusters.
CLUSTER_FAULTS = {
    "a stage released in one block only": (
        "if (threadIdx.x % 32 < 2) tl::mbarrier_arrive_cluster(empty + s, threadIdx.x % 32);",
        "if (threadIdx.x % 32 < 2) tl::mbarrier_arrive(empty + s);",
        {
            "write-under-asynchronous-read",
            "write-in-flight",
            "mbarrier-over-arrival",
            "mbarrier-transaction-count",
            "read-in-flight",
        },
        "",
    ),
    "arrivals at barriers that the other block has not made": (
        "tl::cluster_sync();  // both blocks have their mbarriers",
        "tl::sync_threads();",
        {"mbarrier-not-initialized"},
        "",
    ),
    "a block that leaves while the other needs it": (
        "tl::cluster_sync();  // nobody leaves while the other still arrives here",
        "",
        {"block-has-ended"},
        "mbarrier_arrive_cluster",
    ),
    "a cluster barrier that half of the threads reach": (
        "tl::cluster_sync();  // nobody leaves while the other still arrives here",
        "tl::cluster_arrive();\n  if (rank == 0) tl::cluster_arrive();\n  tl::cluster_wait();",
        {"barrier-count"},
        "cluster_arrive",
    ),
    "half of the bytes expected": (
        "tl::mbarrier_arrive_expect_tx(full + s, kStage);",
        "tl::mbarrier_arrive_expect_tx(full + s, kTileA + kHalfB);",
        {
            "deadlock",
            "read-in-flight",
            "write-in-flight",
            "uninitialized-read",
            "write-under-asynchronous-read",
            "mbarrier-over-arrival",
            "exit-in-flight",
        },
        "",
    ),
}


@pytest.mark.parametrize("fault", STORE_FAULTS)
def test_fault_in_a_persistent_gemm(kernel_file, tensor_map, watched, fault):
    old, new, kinds, statement = STORE_FAULTS[fault]
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((N, 320)).astype("f2") for _ in range(2))
    module, shared = kernel_file("hopper_persistent.cu", (old, new)), 3 * 32768 + 2 * 8192 + 64
    for seed, mode in MODES:
        c = np.full((N, N), np.nan, "f2")
        maps = [tensor_map(x, box, swizzle=128) for x, box in ((a, (64, 128)), (b, (64, 128)), (c, (64, 64)))]
        more = {"seed": seed, "mode": mode, "buffers": watched(A=a, B=b, O=c)}
        report = module.launch("gemm", (2,), (384,), shared, [*maps, N, N, 320], **more)
        check_fault(report, kinds, statement)


@pytest.mark.parametrize("fault", CLUSTER_FAULTS)
def test_fault_in_a_cluster(kernel_file, tensor_map, watched, fault):
    old, new, kinds, statement = CLUSTER_FAULTS[fault]
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((N, N)).astype(ml_dtypes.bfloat16) for _ in range(2))
    module = kernel_file("hopper_cluster.cu", (old, new))
    for seed, mode in MODES:
        c = np.full((N, N), np.nan, "f4")
        args = [tensor_map(a, (64, 64), swizzle=128), tensor_map(b, (64, 64), swizzle=128), c, N, N, N]
        more = {"seed": seed, "mode": mode, "buffers": watched(A=a, B=b, O=c), "cluster": (1, 2)}
        report = module.launch("gemm", (2, 4), (256,), 2 * 24576 + 64, args, **more)
        check_fault(report, kinds, statement)
