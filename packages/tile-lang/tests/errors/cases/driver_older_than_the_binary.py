"""A binary that the machine's driver is too old for."""

from unittest.mock import patch

import numpy as np

import tilelang
import tilelang.language as T
from tile_runtime_cuda import launch, plugin


class Driver:
    """As on a machine with a GPU and a driver of 2024."""

    def device_count(self):
        return 1

    def version_number(self):
        return 12040

    def version(self):
        return "12.4"


@T.prim_func
def clear(A: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32):
        T.clear(A)


with patch.object(plugin.CudaDevice, "load", lambda device, artifact: launch.load(artifact, Driver())):
    tilelang.compile(clear, target="cuda -arch=sm_80")(np.zeros(8, np.float32))


# --- what the user sees
# TargetUnavailable: [TL126] clear was compiled for cuda and cannot run here
#   --> driver_older_than_the_binary.py:32   tilelang.compile(clear, target="cuda -arch=sm_80")(np.zeros(8, np.float32))
#   found:    TLR005: clear needs a driver for CUDA 13.0; this one supports 12.4: update the driver
#   expected: a working device of that kind
#   try:      TILELANG_TARGET_OVERRIDE=cpu runs the program on the CPU; TILELANG_EXECUTION=emulate runs the generated text on the CPU, thread by thread; TILELANG_EXECUTION=interpret runs the tiles in numpy
