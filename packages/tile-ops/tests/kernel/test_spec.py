"""A spec's key names one kernel for one architecture, and nothing else does."""

from __future__ import annotations

import itertools

from tile_ops.kernel import KernelSpec, Target
from tile_ops.prebuild import ARCHS

SPEC = KernelSpec.of("normalization", "rms_norm", dtype="float16", block_rows=2, activation=None)


def test_equal_numbers_give_equal_keys_in_any_order():
    again = KernelSpec.of("normalization", "rms_norm", activation=None, block_rows=2, dtype="float16")
    assert again == SPEC
    assert again.key("sm_80") == SPEC.key("sm_80")


def test_each_part_of_a_spec_changes_its_key():
    numbers = {"dtype": "float16", "block_rows": 2, "activation": None}
    others = [
        SPEC,
        KernelSpec.of("softmax", "rms_norm", **numbers),
        KernelSpec.of("normalization", "rms_norm_long", **numbers),
        KernelSpec.of("normalization", "rms_norm", **{**numbers, "block_rows": 4}),
        KernelSpec.of("normalization", "rms_norm", **{**numbers, "activation": "silu"}),
        KernelSpec.of("normalization", "rms_norm", **numbers, threads=128),
        KernelSpec.of("normalization", "rms_norm", {"tl.enable_fast_math": True}, **numbers),
    ]
    keys = [spec.key(arch) for spec, arch in itertools.product(others, ["sm_80", "sm_90a"])]
    assert len(set(keys)) == len(keys)


def test_which_prebuilt_kernels_run_on_a_target():
    assert Target("cpu", "x86-64-v4").runs() == ("x86-64-v4", "x86-64-v3")
    assert Target("cpu", "x86-64-v2").runs() == ()
    assert set(ARCHS["cpu"]) == set(Target("cpu", "x86-64-v4+bf16+vnni+amx").runs())
    assert Target("cuda", "sm_86").runs() == ("sm_86", "sm_80")
    assert Target("cuda", "sm_90a").runs()[0] == "sm_90a"
    assert Target("cuda", "sm_120").runs() == ("sm_120", "sm_89")
    assert Target("cuda", "sm_75").runs() == ("sm_75",)
    assert Target("hip", "gfx942").runs() == ("gfx942",)
