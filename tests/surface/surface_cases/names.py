"""The names of batches 1 and 2 (surface.md): what the table must hold, and what it cannot hold yet, with the reason."""

from __future__ import annotations

from tilelang.ir import dtypes

# (a): names and spellings of the documents
DOCUMENTS = """
T.prim_func T.Tensor T.Buffer T.Kernel T.ceildiv T.dynamic T.symbolic T.alloc_shared T.alloc_fragment T.alloc_fragments
T.alloc_local T.clear T.fill T.infinity T.copy T.gemm T.Parallel T.reduce T.reduce_max T.reduce_min T.reduce_sum
T.reduce_product T.atomic T.atomic_add T.atomic_max T.atomic_min T.max T.exp T.exp2 T.rsqrt T.sigmoid T.Pipelined
T.vectorized T.serial T.annotate_layout T.make_swizzled_layout T.layout.make_swizzled_layout T.use_swizzle
T.GemmWarpPolicy T.GemmWarpPolicy.FullRow T.GemmWarpPolicy.FullCol T.Layout T.Fragment T.get_thread_binding
T.import_source T.call_extern T.print T.ptx tilelang.jit tilelang.compile tilelang.Profiler tilelang.TensorSupplyType
tilelang.tools.plot_layout tilelang.quantize._tir_packed_to_unsigned_convert
"""

# (b.1) up to the line "91 %"; (b.2) gives their meaning
UPSTREAM = """
T.if_then_else T.empty T.const T.min T.log2 T.alloc_var T.floordiv T.cast T.macro T.floormod T.alloc_global T.reshape
T.thread_binding T.tfloat32 T.log T.view T.alloc_buffer T.Persistent T.atomic_addx4 T.cumsum T.access_ptr T.clamp
T.reduce_absmax T.reinterpret T.sync_threads T.SharedBuffer T.parallel T.get_block_binding T.shift_left T.Cast T.Serial
T.float4_e2m1fn T.float8_e4m3 T.dtypes T.device_assert T.unroll
"""

# (b.3): names of the package
PACKAGE = """
tilelang.testing.main tilelang.testing.requires_cuda tilelang.testing.requires_cuda_compute_version
tilelang.testing.requires_cuda_compute_version_ge tilelang.testing.requires_cuda_compute_version_le
tilelang.testing.requires_cuda_compute_version_lt tilelang.testing.requires_cuda_compute_version_eq
tilelang.testing.set_random_seed tilelang.testing.torch_assert_close tilelang.testing.requires_rocm
tilelang.testing.requires_llvm tilelang.testing.requires_package tilelang.testing.process_func
tilelang.testing.regression tilelang.PassConfigKey tilelang.profiler.do_bench tilelang.lower tilelang.disable_cache
tilelang.enable_cache tilelang.is_cache_enabled tilelang.cdiv tilelang.next_power_of_2 tilelang.math.next_power_of_2
tilelang.layout.make_swizzled_layout tilelang.tvm tilelang.load kernel.get_kernel_source kernel.get_host_source
kernel.show_source kernel.print_source_code kernel.export_library kernel.params kernel.prim_func kernel.export
tilelang.autotune tilelang.autotuner.AutoTuner tilelang.autotuner.set_autotune_inputs
kernel.report kernel.export_sources kernel.config kernel.latency kernel.ref_latency
"""

# (b.4): keyword arguments
KEYWORDS = """
T.Kernel(threads=) T.Kernel(prelude=) T.copy(annotations=) T.copy(coalesced_width=) T.copy(disable_tma=)
T.copy(prefer_instruction=) T.copy(eviction_policy=) T.copy(loop_layout=) T.gemm(policy=) T.gemm(transpose_A=)
T.gemm(transpose_B=) T.gemm(clear_accum=) T.gemm(k_pack=) T.Pipelined(num_stages=) T.Pipelined(annotations=)
T.reduce_*(dim=) T.reduce_*(clear=) T.reduce_*(batch=) T.reduce_*(nan_propagate=) T.Parallel(annotations=)
T.Parallel(loop_layout=) T.Parallel(prefer_async=) T.use_swizzle(panel_size=) T.use_swizzle(enable=)
T.atomic_add(return_prev=) T.atomic_add(memory_order=) T.atomic_add(use_tma=) T.alloc_shared(scope=)
T.alloc_var(init=) tilelang.jit(out_idx=) tilelang.jit(target=) tilelang.jit(pass_configs=)
"""

# Batch 2: what experts say themselves
EXPERTS = """
T.ws T.no_set_max_nreg T.disable_warp_group_reg_alloc T.set_max_nreg T.inc_max_nreg T.dec_max_nreg
T.annotate_producer_reg_dealloc T.annotate_consumer_reg_alloc T.alloc_barrier T.barrier_arrive T.barrier_wait
T.mbarrier_arrive T.mbarrier_arrive(cta_id=) T.mbarrier_expect_tx T.mbarrier_arrive_expect_tx T.mbarrier_wait_parity
T.cp_async_barrier_noinc T.async_copy T.tma_copy T.tma_store_arrive T.tma_store_wait T.fence_proxy_async T.wgmma_gemm
T.wait_wgmma T.warpgroup_arrive T.warpgroup_commit_batch T.warpgroup_wait T.warpgroup_fence_operand
T.Kernel(cluster_dims=) T.ClusterKernel T.block_rank_in_cluster T.get_cluster_id T.alloc_cluster_barrier
T.cluster_sync T.cluster_arrive T.cluster_arrive_relaxed T.cluster_wait T.sync_grid
T.tvm_warp_shuffle T.tvm_warp_shuffle_up T.tvm_warp_shuffle_down T.shfl_sync T.shfl_xor T.shfl_up T.shfl_down
T.warp_reduce_sum T.warp_reduce_max T.warp_reduce_min T.warp_reduce_bitand T.warp_reduce_bitor T.shuffle_elect
T.get_lane_idx T.get_warp_idx T.get_warp_idx_sync T.get_warp_group_idx
kernel.get_ptx kernel.export_ptx kernel.show_ptx kernel.get_sass kernel.export_sass kernel.show_sass kernel.n_regs
kernel.n_spills kernel.n_max_threads kernel.resource_usage tilelang.register_cuda_postproc
tilelang.register_hip_postproc tilelang.engine.callback.register_cuda_postproc_callback
tilelang.carver.arch.driver.get_num_sms tilelang.carver.arch.CUDA tilelang.carver.template.MatmulTemplate
tilelang.tools.Analyzer tilelang.tools.compile_only tilelang.tools.lower_trace tilelang.autodd tilelang.tools.cuda.iket
T.create_tma_descriptor T.tma_load T.copy_cluster T.ptx_arrive_barrier T.ptx_init_barrier_thread_count
T.ptx_fence_barrier_init
"""

REQUIRED = {
    **dict.fromkeys(DOCUMENTS.split(), "documents"),
    **dict.fromkeys(UPSTREAM.split(), "upstream"),
    **dict.fromkeys(PACKAGE.split(), "package"),
    **dict.fromkeys(KEYWORDS.split(), "keywords"),
    **dict.fromkeys(EXPERTS.split(), "experts"),
    **dict.fromkeys((f"T.{n}" for n in (*dtypes.scalar_names(), *dtypes.aliases())), "types"),
}

# Names without a case, and why
_NOT_NEEDED = (
    "the compiler does it: the error says what to write instead (packages/tile-lang/tests/language/test_elsewhere.py)"
)
MISSING = {
    "custom gemm primitives, tile operators in Python": (
        "operators of one's own (docs/tutorial/07-extending.md); their test is packages/tile-compiler/tests/test_extension.py"
    ),
    'T.call_extern("cute::gemm_ss", ..)': "no CUTLASS in the device header: T.gemm, or a text of T.import_source",
    "T.gemm(mbar=)": "of Blackwell's products; Hopper's end at T.wait_wgmma, which T.mbarrier_arrive may follow",
    "tilelang.testing.process_func": "upstream's runner of its own speed regressions; `nox -s bench` is ours",
    "tilelang.testing.regression": "upstream's runner of its own speed regressions; `nox -s bench` is ours",
    "tilelang.autodd": "a reducer of failing programs: not written; `tilelang.tools.lower_trace` shows where a compilation fails",
    "tilelang.tools.cuda.iket": "needs an external profiler; `kernel.report()` and Nsight's own ranges are what there is",
    **dict.fromkeys(("T.create_tma_descriptor", "T.tma_load", "T.copy_cluster"), _NOT_NEEDED),
    **dict.fromkeys(
        ("T.ptx_arrive_barrier", "T.ptx_init_barrier_thread_count", "T.ptx_fence_barrier_init"), _NOT_NEEDED
    ),
}
