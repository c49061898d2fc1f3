"""Targets and options: every accepted spelling, the environment, and what is refused."""

import json

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tile_runtime import registry
from tilelang import PassConfigKey, target
from tilelang.errors import UnknownOption, UnknownTarget
from tilelang.options import make_options
from tilelang.target import Target


@T.prim_func
def clear(A: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        T.clear(A)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("cpu", Target("cpu")),
        ("llvm", Target("cpu")),
        ("c", Target("cpu")),
        ("llvm -mcpu=znver4", Target("cpu", "znver4")),
        ("cuda", Target("cuda")),
        ("cuda -arch=sm_90a", Target("cuda", "sm_90a")),
        ("  cuda   --arch=sm_80 ", Target("cuda", "sm_80")),
        ("hip -mcpu=gfx942", Target("hip", "gfx942")),
        ("rocm", Target("hip")),
        ({"kind": "cuda", "arch": "sm_90a"}, Target("cuda", "sm_90a")),
        ({"kind": "hip", "mcpu": "gfx942", "keys": ["rocm", "gpu"]}, Target("hip", "gfx942")),
        ('{"kind": "hip", "mcpu": "gfx90a"}', Target("hip", "gfx90a")),
        (Target("cpu"), Target("cpu")),
    ],
)
def test_spellings_of_a_target(spec, expected):
    assert target.parse(spec) == expected


def test_tvm_targets():
    from tilelang import tvm

    assert target.parse(tvm.target.Target("cuda")).kind == "cuda"
    assert target.parse(tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})) == Target("cuda", "sm_90a")
    assert target.parse(tvm.target.Target("llvm")).kind == "cpu"


def test_target_reads_back_from_its_text():
    for spec in ("cpu", "cuda -arch=sm_90a", "hip -mcpu=gfx942", "cpu -mcpu=znver4 -mattr=+avx512f"):
        assert target.parse(str(target.parse(spec))) == target.parse(spec)


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "gpu",
        "cuda -sm=90",
        "cuda -arch=gfx942",
        "cuda -arch=sm_70",
        "metal",
        "webgpu",
        90,
        {"arch": "sm_80"},
        "{",
        None,
    ],
)
def test_what_is_no_target_is_refused(spec):
    with pytest.raises(UnknownTarget):
        target.parse(spec)


def test_default_target_of_the_environment(monkeypatch):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", json.dumps({"kind": "cuda", "arch": "sm_90a"}))
    assert target.resolve("auto") == Target("cuda", "sm_90a")
    assert target.resolve(None) == Target("cuda", "sm_90a")
    assert target.resolve("cpu") == Target("cpu")
    assert target.resolve(None, tensor_device="cpu") == Target("cpu")  # an eager call follows its first tensor


@pytest.mark.parametrize(("kind", "device"), [("cuda", "cuda"), ("hip", "rocm")])
@pytest.mark.parametrize("present", [None, "sm_86"])
def test_bare_kind_of_gpu_means_the_device_that_is_here_or_one_constant(kind, device, present, monkeypatch, request):
    class Device:
        def is_available(self):
            return present is not None

        def arch(self):
            return present

    target._device_arch.cache_clear()
    request.addfinalizer(target._device_arch.cache_clear)
    monkeypatch.setitem(registry._loaded, device, Device())
    wanted = present or target.DEFAULT_ARCH[kind]
    assert target.resolve(kind) == Target(kind, wanted)
    assert tilelang.compile(clear, target=kind, execution="interpret").target == Target(kind, wanted)
    monkeypatch.setattr(Device, "arch", None)  # asked once: each call of an eager kernel resolves its target
    assert target.resolve(kind) == Target(kind, wanted)


def test_override_of_the_environment_replaces_every_target(monkeypatch):
    monkeypatch.setenv("TILELANG_TARGET_OVERRIDE", "cpu")
    for spec in ("cuda", "hip -mcpu=gfx942", "auto", None, {"kind": "cuda"}):
        assert target.resolve(spec) == Target("cpu")


def test_program_for_cuda_runs_on_the_cpu_by_override(monkeypatch):
    monkeypatch.setenv("TILELANG_TARGET_OVERRIDE", "cpu")
    a = np.ones(8, np.float32)
    kernel = tilelang.compile(clear, target="cuda")
    kernel(a)
    assert not a.any()
    assert kernel.target == Target("cpu")


def test_execution_of_the_environment(monkeypatch):
    monkeypatch.setenv("TILELANG_EXECUTION", "interpret")
    kernel = tilelang.compile(clear, target="cuda")  # no compiler for it is needed
    assert kernel.options.execution == "interpret"
    a = np.ones(8, np.float32)
    kernel(a)
    assert not a.any()
    assert make_options(execution="device").execution == "device"
    monkeypatch.setenv("TILELANG_EXECUTION", "interpreter")
    with pytest.raises(UnknownOption, match="unknown execution"):
        make_options()


@pytest.mark.parametrize("backend", ["auto", "cython", "tvm_ffi", "nvrtc", "torch", "dlpack", "ctypes"])
def test_launch_paths_of_upstream_mean_the_device(backend):
    assert make_options(execution_backend=backend).execution == "device"


def test_execution_backend_may_name_an_execution():
    assert make_options(execution_backend="interpret").execution == "interpret"
    with pytest.raises(UnknownOption, match="unknown execution_backend"):
        make_options(execution_backend="pybind")


def test_pass_configs_by_key_text_and_name():
    spellings = [
        PassConfigKey.TL_DISABLE_WARP_SPECIALIZED,
        "tl.disable_warp_specialized",
        "TL_DISABLE_WARP_SPECIALIZED",
    ]
    keys = {make_options(pass_configs={s: True}) for s in spellings}
    assert len(keys) == 1
    options = keys.pop()
    assert options.get(PassConfigKey.TL_DISABLE_WARP_SPECIALIZED) is True
    assert options.get(PassConfigKey.TL_ENABLE_FAST_MATH, False) is False


def test_pass_config_keys_are_their_texts():
    assert PassConfigKey.TL_ENABLE_FAST_MATH == "tl.enable_fast_math"
    assert PassConfigKey.TL_DISABLE_TMA_LOWER.value == "tl.disable_tma_lower"
    assert {"tl.enable_fast_math": 1}[PassConfigKey.TL_ENABLE_FAST_MATH] == 1
    for key in PassConfigKey:
        value = ["png"] if "FORMATS" in key.name or "FLAGS" in key.name else True
        assert make_options(pass_configs={key: value}).get(key) is not None


def test_unknown_pass_config_suggests_the_nearest():
    with pytest.raises(UnknownOption, match="did you mean 'tl.enable_fast_math'"):
        make_options(pass_configs={"tl.enable_fastmath": True})
    with pytest.raises(UnknownOption, match="impossible value"):
        make_options(pass_configs={"tl.enable_fast_math": "yes"})


def test_wrong_option_is_an_error_at_the_decorator():
    with pytest.raises(UnknownOption):

        @tilelang.jit(pass_configs={"tl.no_such": True})
        def factory(n):
            pass


def test_options_make_keys():
    fast = make_options(pass_configs={"tl.enable_fast_math": True})
    assert fast.key() != make_options().key()
    assert fast.key() == make_options(pass_configs={PassConfigKey.TL_ENABLE_FAST_MATH: True}).key()
    assert make_options(verbose=True).key() == make_options().key()
    assert make_options(compile_flags="-O3").key() != make_options().key()


def test_every_keyword_of_jit_is_accepted():
    @tilelang.jit(
        out_idx=[-1], target="cpu", target_host="c", execution_backend="cython", verbose=False,
        pass_configs={"tl.disable_tma_lower": True}, debug_root_path="/nowhere", compile_flags=["-lineinfo"],
    )  # fmt: skip
    def factory(n):
        @T.prim_func
        def main(A: T.Tensor((n,), "float32")):
            with T.Kernel(1):
                T.fill(A, 3)

        return main

    np.testing.assert_array_equal(factory(4)(), [3, 3, 3, 3])
