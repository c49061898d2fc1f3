"""A call with a tensor on another device."""

import ctypes

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def clear(A: T.Tensor((4, 8), "float32")):
    with T.Kernel(1):
        T.clear(A)


class CudaTensor:
    """What a tensor on a GPU says of itself, on a machine without one."""

    def __dlpack__(self, **_):
        capsule = np.zeros((4, 8), np.float32).__dlpack__()
        ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
        tensor = ctypes.pythonapi.PyCapsule_GetPointer(ctypes.py_object(capsule), b"dltensor")
        ctypes.c_int32.from_address(tensor + 8).value = 2  # kDLCUDA
        return capsule


kernel = tilelang.compile(clear, execution="interpret")
kernel(CudaTensor())


# --- what the user sees
# ArgumentDeviceError: TLR016: clear.A.device_type is expected to be cpu, but got a dlpack array on cuda; move it with .cpu(), or compile the kernel for target 'cuda'
