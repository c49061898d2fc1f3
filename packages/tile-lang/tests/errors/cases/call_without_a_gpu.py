"""A call of a kernel for a GPU where there is none; all but the call works."""

from unittest.mock import patch

import numpy as np

import tilelang
import tilelang.language as T
from tile_runtime_cuda import launch, plugin


class Driver:
    """As on a machine with a driver and no GPU."""

    def device_count(self):
        return 0


@T.prim_func
def clear(A: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32):
        T.clear(A)


with patch.object(plugin.CudaDevice, "load", lambda device, artifact: launch.load(artifact, Driver())):
    kernel = tilelang.compile(clear, target="cuda -arch=sm_80")
    print(kernel.get_kernel_source(), kernel.report())
    kernel(np.zeros(8, np.float32))


# --- what the user sees
# TargetUnavailable: [TL126] clear was compiled for cuda and cannot run here
#   --> call_without_a_gpu.py:28   kernel(np.zeros(8, np.float32))
#   found:    TLR005: the CUDA driver offers no device to this process
#   expected: a working device of that kind
#   try:      TILELANG_TARGET_OVERRIDE=cpu runs the program on the CPU; TILELANG_EXECUTION=emulate runs the generated text on the CPU, thread by thread; TILELANG_EXECUTION=interpret runs the tiles in numpy
