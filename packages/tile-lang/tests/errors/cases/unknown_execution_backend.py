"""A launch path that nobody knows."""

import tilelang
import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        T.clear(A)


tilelang.compile(kernel, execution_backend="pybind")


# --- what the user sees
# UnknownOption: [TL125] unknown execution_backend
#   --> unknown_execution_backend.py:13   tilelang.compile(kernel, execution_backend="pybind")
#   found:    'pybind'
#   expected: device, interpret, emulate, auto, tvm_ffi, cython, nvrtc, torch, ctypes, dlpack, cutedsl
#   try:      drop execution_backend: the launch path is chosen by the target
