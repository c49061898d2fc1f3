"""Runs GPU kernels on the host, thread by thread, and reports what is wrong with them.

    module = compile(source, include_dirs=[])                    # CUDA text that includes tl_cuda.cuh, unchanged
    report = module.launch("gemm", (4, 4, 1), (128, 1, 1), 32768, [a, b, c, 256], buffers=[(a, "A", False), ...])
    report.check()                                               # raises EmulationError with what was found

docs/internals/emulator.md describes it, and says what it does not model.
"""

from __future__ import annotations

from tile_runtime.tensor_map import TensorMap

from .compiler import CompileError, NoCompilerError, host_compiler
from .module import EmulatedModule, compile
from .report import Buffer, EmulationError, Finding, Report

__all__ = [
    "Buffer",
    "CompileError",
    "EmulatedModule",
    "EmulationError",
    "Finding",
    "NoCompilerError",
    "Report",
    "TensorMap",
    "compile",
    "host_compiler",
]
