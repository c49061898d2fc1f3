"""A device text that the emulator cannot compile."""

from tile_runtime_cpu import emulator

emulator.compile(
    """
#include "tl_cuda.cuh"
__device__ float square(float x) { return x * x; }
"""
)


# --- what the user sees
# CompileError: TLR041: the text has no __global__ function
