"""Compile options: one frozen value for each compilation, and the names by which users set them."""

from __future__ import annotations

import dataclasses
import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilelang.errors import UnknownOption


class PassConfigKey(str, enum.Enum):
    """Keys of `pass_configs`, also accepted as their text. Switches for targets that have no use for them are kept."""

    TL_SIMPLIFY = "tl.Simplify"
    TL_DISABLE_HELD_OPERANDS = "tl.disable_held_operands"
    TL_DISABLE_LONGEST_FIRST = "tl.disable_longest_first"
    TL_DISABLE_SPLIT_SUMS = "tl.disable_split_sums"
    TL_DISABLE_STAYING_BLOCKS = "tl.disable_staying_blocks"
    TL_DISABLE_WARP_SPECIALIZED = "tl.disable_warp_specialized"
    TL_DISABLE_WARPGROUP_TURNS = "tl.disable_warpgroup_turns"
    TL_DISABLE_WARP_GROUP_REG_ALLOC = "tl.disable_warp_group_reg_alloc"
    TL_DISABLE_TMA_LOWER = "tl.disable_tma_lower"
    TL_DISABLE_SAFE_MEMORY_ACCESS = "tl.disable_safe_memory_access"
    TL_DISABLE_VECTORIZE_256 = "tl.disable_vectorize_256"
    TL_DISABLE_FAST_MATH = "tl.disable_fast_math"
    TL_ENABLE_FAST_MATH = "tl.enable_fast_math"
    TL_ALLOW_TF32 = "tl.allow_tf32"
    TL_ALLOW_TF32X3 = "tl.allow_tf32x3"
    TL_ENABLE_ASYNC_COPY = "tl.enable_async_copy"
    TL_ENABLE_PTXAS_VERBOSE_OUTPUT = "tl.enable_ptxas_verbose_output"
    TL_PTXAS_REGISTER_USAGE_LEVEL = "tl.ptxas_register_usage_level"
    TL_CONFIG_INDEX_BITWIDTH = "tl.config_index_bitwidth"
    TL_DISABLE_THREAD_STORAGE_SYNC = "tl.disable_thread_storage_sync"
    TL_DISABLE_DATA_RACE_CHECK = "tl.disable_data_race_check"
    TL_DISABLE_OUT_OF_BOUND_WARNING = "tl.disable_out_of_bound_warning"
    TL_DISABLE_DYNAMIC_TAIL_SPLIT = "tl.disable_dynamic_tail_split"
    TL_DYNAMIC_ALIGNMENT = "tl.dynamic_alignment"
    TL_VARIANT = "tl.variant"
    TL_FORCE_LET_INLINE = "tl.force_let_inline"
    TL_ENABLE_AGGRESSIVE_SHARED_MEMORY_MERGE = "tl.enable_aggressive_shared_memory_merge"
    TL_DISABLE_SHUFFLE_ELECT = "tl.disable_shuffle_elect"
    TL_DISABLE_WGMMA = "tl.disable_wgmma"
    TL_DEBUG_MERGE_SHARED_MEMORY_ALLOCATIONS = "tl.debug_merge_shared_memory_allocations"
    TL_LAYOUT_VISUALIZATION_ENABLE = "tl.layout_visualization_enable"
    TL_LAYOUT_VISUALIZATION_FORMATS = "tl.layout_visualization_formats"
    TL_DEVICE_COMPILE_FLAGS = "tl.device_compile_flags"
    TL_EMBED_PTX = "tl.embed_ptx"
    TIR_DISABLE_VECTORIZE = "tir.disable_vectorize"
    TIR_USE_ASYNC_COPY = "tir.use_async_copy"
    TIR_MERGE_STATIC_SMEM = "tir.merge_static_smem"


_KEYS = {k.value: k for k in PassConfigKey}
_KEYS |= {k.name: k for k in PassConfigKey}
_KEYS["tl.enable_fast_math"] = PassConfigKey.TL_ENABLE_FAST_MATH
_TEXTS = (PassConfigKey.TL_LAYOUT_VISUALIZATION_FORMATS, PassConfigKey.TL_DEVICE_COMPILE_FLAGS)

EXECUTIONS = ("device", "interpret", "emulate")
# Names that upstream gives to its launch paths: all of them mean the device.
_BACKENDS = ("auto", "tvm_ffi", "cython", "nvrtc", "torch", "ctypes", "dlpack", "cutedsl")


@dataclass(frozen=True)
class Options:
    """Everything that decides how a kernel is compiled and run, besides the kernel and its target."""

    execution: str = "device"
    pass_configs: tuple[tuple[str, Any], ...] = ()
    verbose: bool = False
    compile_flags: tuple[str, ...] = ()

    def get(self, key: PassConfigKey, default: Any = None) -> Any:
        """The value of a pass config, or `default`."""
        return dict(self.pass_configs).get(key.value, default)

    def with_config(self, key: PassConfigKey, value: Any) -> Options:
        """These options with one more pass config."""
        return dataclasses.replace(
            self, pass_configs=tuple(sorted({**dict(self.pass_configs), key.value: value}.items()))
        )

    def key(self) -> str:
        """What a cached kernel depends on; what the emulator runs holds no binary."""
        return repr((self.pass_configs, self.compile_flags, self.execution == "emulate"))


def make_options(
    *,
    execution: str | None = None,
    execution_backend: str | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    verbose: bool | None = None,
    compile_flags: Any = None,
) -> Options:
    """Options from a user's keywords; UnknownOption names what is wrong."""
    chosen = execution
    if chosen is None and execution_backend in EXECUTIONS:
        chosen = execution_backend
    elif execution_backend is not None and execution_backend not in (*EXECUTIONS, *_BACKENDS):
        raise UnknownOption(
            "unknown execution_backend",
            found=f"{execution_backend!r}",
            expected=", ".join((*EXECUTIONS, *_BACKENDS)),
            repair="drop execution_backend: the launch path is chosen by the target",
        )
    chosen = chosen or os.environ.get("TILELANG_EXECUTION") or "device"
    if chosen not in EXECUTIONS:
        raise UnknownOption(
            "unknown execution",
            found=f"{chosen!r}",
            expected=", ".join(EXECUTIONS),
            repair='execution="interpret", or TILELANG_EXECUTION=interpret for a whole program',
        )
    configs = {}
    for name, value in (pass_configs or {}).items():
        text = name.value if isinstance(name, PassConfigKey) else str(name)
        known = _KEYS.get(text)
        if known is None:
            import difflib

            near = difflib.get_close_matches(text, list(_KEYS), 1)
            raise UnknownOption(
                f"unknown pass config {text!r}",
                found=f"{text!r}: {value!r}",
                expected="a key of tilelang.PassConfigKey",
                repair=f"did you mean {near[0]!r}?" if near else "see tilelang.PassConfigKey",
            )
        if known not in _TEXTS and not isinstance(value, (bool, int)):
            raise UnknownOption(
                f"pass config {text!r} has an impossible value",
                found=f"{value!r}",
                expected="a bool or an integer",
                repair=f"{text!r}: True, or leave it out",
            )
        configs[known.value] = value if not isinstance(value, list) else tuple(value)
    flags = (compile_flags,) if isinstance(compile_flags, str) else tuple(compile_flags or ())
    return Options(chosen, tuple(sorted(configs.items())), bool(verbose), flags)
