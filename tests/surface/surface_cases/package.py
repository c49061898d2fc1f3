"""Names of the package: compiling, kernels, testing, profiling (surface.md b.3)."""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from surface_cases.case import CPU, CUDA, EXECUTIONS, INTERPRETER, TARGETS, TRACES, build, case, floats, jit

ON_HOST = dict.fromkeys((INTERPRETER, CPU, CUDA), "on the host")
DEVICE_ONLY = {TRACES: "needs a compiled kernel", INTERPRETER: "the interpreter has no machine code"}


def double(n=8):
    """The factory that most cases compile."""

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(n):
                B[i] = A[i] * 2

    return main


def runs(kernel, n=8):
    a = floats(n)
    np.testing.assert_array_equal(kernel(a), a * 2)


@case("tilelang.jit (lazy: a factory)", "tilelang.jit(out_idx=)", "tilelang.jit(target=)", "tilelang.jit")
def lazy(mode):
    factory = jit(mode, out_idx=[1])(double)
    if mode == TRACES:
        assert factory.get_tir(8).attrs["global_symbol"] == "main"
        return
    kernel = factory(8)
    assert factory(8) is kernel
    runs(kernel)
    a, b = floats(8), np.zeros(8, np.float32)
    assert kernel(a, b) is b  # a named output may be passed too
    np.testing.assert_array_equal(b, a * 2)


@case("tilelang.jit (eager: the body is the kernel)")
def eager(mode):
    @jit(mode)
    def twice(A):
        N = T.const("N")
        A: T.Tensor[[N], T.float32]
        B = T.empty((N,), T.float32)
        with T.Kernel(1, threads=8):
            for i in T.Parallel(N):
                B[i] = A[i] * 2
        return B

    if mode == TRACES:
        twice.get_tir(N=8)
        return
    runs(twice)
    runs(twice, 5)


@case("tilelang.jit(execution_backend=, target_host=, verbose=, debug_root_path=, compile_flags=)")
def keywords_of_jit(mode):
    factory = jit(
        mode,
        out_idx=-1,
        execution_backend="cython",
        target_host="c",
        verbose=False,
        debug_root_path=None,
        compile_flags=["-O3"],
    )(double)
    if mode == TRACES:
        factory.get_tir(8)
    else:
        runs(factory(8))


@case("tilelang.jit(pass_configs=)", "tilelang.PassConfigKey")
def pass_configs(mode):
    keys = [tilelang.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED, "tl.disable_tma_lower", "tl.enable_fast_math"]
    factory = jit(mode, out_idx=-1, pass_configs=dict.fromkeys(keys, False))(double)
    if mode == TRACES:
        factory.get_tir(8)
    else:
        runs(factory(8))


@case("tilelang.compile", "tilelang.compile(out_idx=, target=)")
def compile_function(mode):
    func = double()
    if mode != TRACES:
        runs(tilelang.compile(func, out_idx=[-1], target=TARGETS.get(mode, "cpu"), execution=EXECUTIONS[mode]))


@case("tilelang.compile (target left out)", empty={CUDA: "without a GPU the CPU is chosen"})
def compile_without_target(mode):
    func = double()
    if mode != TRACES:
        runs(tilelang.compile(func, out_idx=[-1], execution=EXECUTIONS[mode]))


@case('target="llvm"', 'target="c"', 'target="auto"', empty={CUDA: "spellings of the CPU"})
def cpu_targets(mode):
    func = double()
    if mode == TRACES:
        return
    for target in ("llvm", "c", "auto"):
        runs(tilelang.compile(func, out_idx=-1, target=target, execution=EXECUTIONS[mode]))


@case("target as a dict", "target as a tvm Target")
def target_objects(mode):
    from tilelang import tvm

    func = double()
    if mode == TRACES:
        return
    on_cuda = {"kind": "cuda", "arch": "sm_80"}
    for target in (
        (on_cuda, tvm.target.Target(on_cuda)) if mode == CUDA else ({"kind": "llvm"}, tvm.target.Target("llvm"))
    ):
        runs(tilelang.compile(func, out_idx=-1, target=target, execution=EXECUTIONS[mode]))


@case("<jit>.compile(M=..)", "<jit>.get_tir(..)", "<jit>.par_compile(configs)")
def without_tensors(mode):
    @jit(mode)
    def twice(A, block=4):
        N = T.const("N")
        A: T.Tensor[[N], T.float32]
        B = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, block), threads=8) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * 2
        return B

    assert twice.get_tir(N=8).attrs["global_symbol"] == "twice"
    if mode == TRACES:
        return
    runs(twice.compile(N=8, block=2))
    for kernel, n in zip(twice.par_compile([{"N": 8}, {"N": 6, "block": 3}]), (8, 6)):
        runs(kernel, n)


@case("<jit>.get_kernel_source(..)", "kernel.get_kernel_source", "kernel.show_source", "kernel.print_source_code")
def sources(mode):
    if mode == TRACES:
        return
    assert jit(mode, out_idx=-1)(double).get_kernel_source(8)
    kernel = build(double(), mode, out_idx=-1)
    assert kernel.get_kernel_source(kernel_only=True) == kernel.get_kernel_source()
    kernel.show_source()
    kernel.print_source_code()


@case("kernel.get_host_source", "kernel.params", "kernel.prim_func", "kernel.out_idx", "kernel.report")
def introspection(mode):
    func = double()
    if mode == TRACES:
        return
    kernel = build(func, mode, out_idx=-1)
    assert "def " in kernel.get_host_source()
    assert [p.name for p in kernel.params] == ["A", "B"]
    assert kernel.out_idx == [1]
    assert kernel.prim_func is not None
    assert isinstance(kernel.report(), dict)


@case("kernel.export_sources")
def sources_in_files(mode):
    func = double()
    if mode == TRACES:
        return
    kernel = build(func, mode, out_idx=-1)
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "kernel.txt", Path(folder) / "host.py"
        kernel.export_sources(kernel_path=texts[0], host_path=texts[1])
        assert [p.read_text() for p in texts] == [kernel.get_kernel_source(), kernel.get_host_source()]


@case(
    "kernel.get_ptx",
    "kernel.export_ptx",
    "kernel.show_ptx",
    "kernel.n_regs",
    "kernel.n_spills",
    "kernel.n_max_threads",
    "kernel.resource_usage",
    empty=ON_HOST,
)
def code_of_the_device(mode):
    kernel = tilelang.compile(double(), target="cuda -arch=sm_80")
    assert kernel.n_regs > 0
    assert kernel.n_spills == 0
    assert [facts["threads"] for facts in kernel.resource_usage.values()] == [kernel.n_max_threads]
    with tempfile.TemporaryDirectory() as folder:
        kernel.export_ptx(Path(folder) / "k.ptx")
        assert (Path(folder) / "k.ptx").read_text() == kernel.get_ptx()
    kernel.show_ptx()


@case("kernel.get_sass", "kernel.export_sass", "kernel.show_sass", empty=ON_HOST)
def instructions_of_the_device(mode):
    kernel = tilelang.compile(double(), target="cuda -arch=sm_80")
    with tempfile.TemporaryDirectory() as folder:
        kernel.export_sass(Path(folder) / "k.sass")
        assert (Path(folder) / "k.sass").read_text() == kernel.get_sass()
    kernel.show_sass()


@case(
    "tilelang.register_cuda_postproc",
    "tilelang.register_hip_postproc",
    "tilelang.engine.callback.register_cuda_postproc_callback",
    empty=ON_HOST,
)
def texts_that_a_function_rewrites(mode):
    from tilelang.engine.callback import register_cuda_postproc_callback

    def above(code, target):
        return f"// {target}\n{code}"

    for register, target in (
        (tilelang.register_cuda_postproc, "cuda -arch=sm_80"),
        (register_cuda_postproc_callback, "cuda -arch=sm_80"),
        (tilelang.register_hip_postproc, "hip -mcpu=gfx942"),
    ):
        register(above)
        text = tilelang.compile(double(), target=target, execution="emulate").get_kernel_source()
        register(None)
        assert text.startswith(f"// {target.partition('=')[2]}\n")


@case(
    "tilelang.carver.arch.driver.get_num_sms",
    "tilelang.carver.arch.CUDA",
    "tilelang.carver.arch.CDNA",
    "tilelang.carver.template.MatmulTemplate",
    empty=ON_HOST,
)
def hints_for_products(mode):
    from tilelang.carver.arch import CDNA, CUDA, driver
    from tilelang.carver.template import MatmulTemplate

    assert driver.get_num_sms() > 0
    for arch in (CUDA("cuda -arch=sm_80"), CDNA("hip -mcpu=gfx942")):
        template = MatmulTemplate(M=1024, N=1024, K=1024, in_dtype="float16").with_arch(arch)
        (first, *rest) = template.recommend_hints(topk=3)
        assert len(rest) == 2
        assert first.block[0] % first.warp[0] == 0
        assert template.equivalent_function() is not None


@case(
    "tilelang.tools.Analyzer",
    "tilelang.tools.compile_only",
    "tilelang.tools.lower_trace",
    empty=ON_HOST,
)
def tools_around_kernels(mode):
    """Their tests are packages/tile-compiler/tests/end_to_end/test_tools.py."""
    from tilelang.carver.arch import CUDA
    from tilelang.tools import Analyzer, compile_only, lower_trace

    found = Analyzer.analysis(double(), CUDA("cuda -arch=sm_80"))
    assert (found.total_flops, found.bound) == (0, "memory")
    assert found.total_global_bytes > 0
    assert lower_trace.lower_trace(double(), "cuda -arch=sm_80").startswith("# traced")
    with tempfile.TemporaryDirectory() as folder:
        script, out = Path(folder) / "empty.py", Path(folder) / "out.cu"
        script.write_text("")
        assert compile_only.main(["--output_file", str(out), str(script)]) == 1
        assert not out.exists()


@case("kernel.export", "kernel.export_library", "tilelang.load", empty=DEVICE_ONLY)
def export(mode):
    kernel = build(double(), mode, out_idx=-1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "double.tile"
        kernel.export(path)
        runs(tilelang.load(path, execution=EXECUTIONS[mode]))
        kernel.export_library(path)
        runs(tilelang.load(path, execution=EXECUTIONS[mode]))


@case("tilelang.lower", empty={INTERPRETER: DEVICE_ONLY[INTERPRETER], TRACES: DEVICE_ONLY[TRACES]})
def lower(mode):
    lowered = tilelang.lower(double(), target=TARGETS.get(mode, "cpu"))
    assert lowered.kernel_source
    assert [p.name for p in lowered.params] == ["A", "B"]


@case(
    "kernel.get_profiler(tensor_supply_type=)", "tilelang.TensorSupplyType", "tilelang.Profiler", "profiler.do_bench()"
)
def profiler(mode):
    from tilelang import Profiler

    if mode == TRACES:
        return
    kernel = build(double(), mode, out_idx=-1)
    for supply in tilelang.TensorSupplyType:
        (made,) = kernel.get_profiler(tensor_supply_type=supply).inputs()
        assert made.shape == (8,)
    timer = kernel.get_profiler()
    assert isinstance(timer, Profiler)
    assert timer.do_bench(warmup=1, rep=1) > 0
    assert timer.do_bench(lambda a: a * 2, warmup=1, rep=1) > 0
    timer.assert_allclose(lambda a: a * 2)
    np.testing.assert_array_equal(timer.run_once(), timer.inputs()[0] * 2)


@case("tilelang.profiler.do_bench", "tilelang.profiler.do_bench(backend=)")
def do_bench(mode):
    from tilelang.profiler import do_bench

    if mode == TRACES:
        return
    kernel, a = build(double(), mode, out_idx=-1), floats(8)
    for backend in ("event", "cupti", "cudagraph", "wall"):
        assert do_bench(lambda: kernel(a), warmup=1, rep=1, backend=backend) > 0
    assert len(do_bench(lambda: kernel(a), warmup=1, rep=1, quantiles=[0.2, 0.5])) == 2


@case("tilelang.disable_cache", "tilelang.enable_cache", "tilelang.is_cache_enabled")
def cache_switch(mode):
    from tilelang import cache_control

    before, asked = tilelang.is_cache_enabled(), cache_control._enabled
    try:
        tilelang.disable_cache()
        assert not tilelang.is_cache_enabled()
        if mode != TRACES:
            runs(build(double(), mode, out_idx=-1))
    finally:
        (tilelang.enable_cache if before else tilelang.disable_cache)()
    assert tilelang.is_cache_enabled() == before
    cache_control._enabled = asked  # later tests ask by environment variables


@case("tilelang.cdiv", "tilelang.next_power_of_2", "tilelang.math.next_power_of_2", empty=ON_HOST)
def integers(mode):
    assert tilelang.cdiv(10, 4) == 3
    assert tilelang.next_power_of_2(17) == 32
    assert [tilelang.math.next_power_of_2(n) for n in (1, 2, 3)] == [1, 2, 4]


@case("tilelang.tvm", empty=ON_HOST)
def the_tvm(mode):
    from tilelang import tvm as tvm

    assert isinstance(double(), tvm.tirx.PrimFunc)
    assert isinstance(tvm.IRModule({"main": double()}), tvm.IRModule)
    with tvm.transform.PassContext():
        pass


@case("with tvm.target.Target(..)")
def target_context(mode):
    from tilelang import tvm

    func = double()
    if mode == TRACES:
        return
    with tvm.target.Target({"kind": "cuda", "arch": "sm_80"} if mode == CUDA else "llvm"):
        runs(tilelang.compile(func, out_idx=-1, execution=EXECUTIONS[mode]))


@case("import tilelang (without TVM and torch)", empty=ON_HOST)
def lean_import(mode):
    code = "import sys, tilelang, tilelang.language; assert not {'tvm', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@case(
    "tilelang.testing.set_random_seed",
    "tilelang.testing.torch_assert_close",
    "tilelang.testing.assert_close",
    empty=ON_HOST,
)
def testing_values(mode):
    import torch

    from tilelang import testing

    testing.set_random_seed(1)
    first = torch.rand(3), np.random.rand(3)
    testing.set_random_seed(1)
    testing.torch_assert_close(torch.rand(3), first[0], rtol=0, atol=0)
    testing.assert_close(np.random.rand(3), first[1], rtol=0, atol=0)
    with pytest.raises(AssertionError, match="first at"):
        testing.torch_assert_close(first[0], first[0] + 1)
    testing.torch_assert_close(torch.zeros(100), torch.eye(10).reshape(100)[:100] * 0, max_mismatched_ratio=0.01)


@case(
    "tilelang.testing.requires_cuda",
    "tilelang.testing.requires_rocm",
    "tilelang.testing.requires_llvm",
    "tilelang.testing.requires_package",
    *[f"tilelang.testing.requires_cuda_compute_version{s}" for s in ("", "_ge", "_gt", "_le", "_lt", "_eq")],
    empty=ON_HOST,
)
def testing_marks(mode):
    from tilelang import testing

    def test():
        return 1

    marks = [testing.requires_cuda, testing.requires_rocm, testing.requires_llvm, testing.requires_package("numpy")]
    suffixes = ("", "_ge", "_gt", "_le", "_lt", "_eq")
    marks += [getattr(testing, f"requires_cuda_compute_version{s}")(9, 0) for s in suffixes]
    for mark in marks:
        assert mark(test)() == 1


@case("tilelang.testing.main", empty=ON_HOST)
def testing_main(mode):
    text = (
        "import tilelang.testing\ndef test_it():\n    pass\nif __name__ == '__main__':\n    tilelang.testing.main()\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "test_one.py"
        file.write_text(text)
        subprocess.run([sys.executable, str(file)], check=True, stdout=subprocess.DEVNULL, cwd=folder)


@case('execution="interpret"')
def interpret(mode):
    if mode == INTERPRETER:
        runs(tilelang.compile(double(), out_idx=-1, execution="interpret"))
    elif mode == CPU:
        kernel = tilelang.compile(double(), out_idx=-1, execution="device", target="cpu")
        runs(kernel)


@case("arguments: numpy arrays, torch tensors, DLPack")
def arguments(mode):
    import torch

    if mode == TRACES:
        return
    kernel = build(double(), mode, out_idx=-1)
    a = floats(8)
    runs(kernel)
    result = kernel(torch.from_numpy(a))
    assert isinstance(result, torch.Tensor)
    np.testing.assert_array_equal(result.numpy(), a * 2)


@case(
    "tilelang.autotune",
    "tilelang.autotune(configs=, warmup=, rep=, timeout=)",
    "tilelang.autotune(supply_prog=, ref_prog=, skip_check=, cache_input_tensors=, do_not_specialize=)",
    "tilelang.autotuner.AutoTuner",
    "tilelang.autotuner.set_autotune_inputs",
    "kernel.config",
    "kernel.latency",
    "kernel.ref_latency",
    empty=ON_HOST,
)
def autotune(mode):
    def factory(m, n=8, blocks=1):
        return double(n)

    jitted = tilelang.jit(target="cpu", out_idx=[1])(factory)
    tuned = tilelang.autotune(
        configs={"blocks": [1, 2]},
        warmup=0,
        rep=1,
        timeout=60,
        supply_prog=lambda params: [floats(8)],
        ref_prog=lambda a: a * 2,
        skip_check=False,
        cache_input_tensors=True,
        do_not_specialize=["m"],
        verbose=False,
    )(jitted)
    kernel = tuned(3)
    assert kernel.config in ({"blocks": 1}, {"blocks": 2})
    assert kernel.latency > 0
    assert kernel.ref_latency > 0
    runs(kernel)
    assert tuned(4).config == kernel.config
    tuner = tilelang.autotuner.AutoTuner.from_kernel(lambda blocks=1: double(), [{"blocks": 1}])
    with tilelang.autotuner.set_autotune_inputs(floats(8)):
        found = tuner.set_compile_args(out_idx=[1], target="cpu").run(warmup=0, rep=1)
    assert found.config == {"blocks": 1}
    runs(found.kernel)
