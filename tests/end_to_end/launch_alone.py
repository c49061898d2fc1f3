"""Load and launch a CUDA artifact where neither TVM nor the compiler is installed.

    python launch_alone.py export gemm.tile     where they are
    python launch_alone.py launch gemm.tile     where they are not

Run by test_launch_alone.py, and by `python -m nox -s launch` in an environment of its own. There is no GPU either: the
driver records, and the tensors are made by hand, as any library with DLPack would offer them.
"""

from __future__ import annotations

import ctypes
import importlib.util
import struct
import sys
from typing import Any

from tile_runtime import registry
from tile_runtime.artifact import Artifact

ABSENT = ("tvm", "tvm_ffi", "tile_compiler", "torch")
KDL_CUDA, KDL_FLOAT = 2, 2
M, N, K = 96, 64, 32


class Tensor:
    """A tensor on cuda:0 with an address and nothing behind it (DLManagedTensor, dlpack.h)."""

    def __init__(self, address: int, shape: tuple[int, ...], bits: int) -> None:
        self.address = address
        extents = (ctypes.c_int64 * len(shape))(*shape)
        head = struct.pack("<QiiiBBH", address, KDL_CUDA, 0, len(shape), KDL_FLOAT, bits, 1)
        tensor = head + struct.pack("<QQQ", ctypes.addressof(extents), 0, 0)
        self.memory = ctypes.create_string_buffer(tensor + bytes(16))  # no context, no deleter
        self.keep = extents

    def __dlpack__(self, **_: Any) -> Any:
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.memory), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return KDL_CUDA, 0


SIZES = (8, 8, 8, 4, 4)  # of the kernel's arguments in bytes: three tensors, two extents


class Library:
    """libcuda as far as it is needed, for one device of sm_80."""

    def __init__(self) -> None:
        self.launched: list[tuple[tuple[int, ...], bytes]] = []
        self.cuLaunchKernelEx = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(self._launch)

    def _launch(self, config: int, kernel: int, params: int, _: int) -> int:
        places = struct.unpack(f"<{len(SIZES)}Q", ctypes.string_at(params, 8 * len(SIZES)))
        arguments = b"".join(ctypes.string_at(place, size) for place, size in zip(places, SIZES))
        self.launched.append((struct.unpack("<6I", ctypes.string_at(config, 24)), arguments))
        return 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        return lambda *arguments: self._answer(name, arguments)

    @staticmethod
    def _answer(name: str, arguments: tuple[Any, ...]) -> int:
        if name in ("cuDeviceGetCount", "cuDriverGetVersion"):
            arguments[0]._obj.value = 1 if name == "cuDeviceGetCount" else 13000
        elif name == "cuDeviceGetAttribute":
            arguments[0]._obj.value = {75: 8, 76: 0, 97: 163 << 10}[arguments[1].value]
        elif name in ("cuLibraryLoadData", "cuLibraryGetKernel"):
            arguments[0]._obj.value = 0x1000
        return 0


def export(path: str) -> None:
    """A GEMM of dynamic extents, for sm_80."""
    import tilelang
    import tilelang.language as T

    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def gemm(A: T.Tensor((m, K), "float16"), B: T.Tensor((K, n), "float16"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 32), threads=32) as (bx, by):
            a, b = T.alloc_shared((32, K), "float16"), T.alloc_shared((K, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            T.copy(A[by * 32, 0], a)
            T.copy(B[0, bx * 32], b)
            T.gemm(a, b, c)
            T.copy(c, C[by * 32, bx * 32])

    tilelang.compile(gemm, target="cuda -arch=sm_80").export(path)


def launch(path: str) -> None:
    for name in ABSENT:
        assert importlib.util.find_spec(name) is None, f"{name} is installed here"
    from tile_runtime_cuda import plugin
    from tile_runtime_cuda.driver import Driver

    library = Library()
    plugin.DEVICE._opened = Driver(library)
    a, b, c = Tensor(0x10000, (M, K), 16), Tensor(0x20000, (K, N), 16), Tensor(0x30000, (M, N), 32)
    kernels = [registry.device("cuda").load(Artifact.load(path))]
    if importlib.util.find_spec("tilelang") is not None:
        import tilelang

        kernels.append(tilelang.load(path))
    for kernel in kernels:
        kernel(a, b, c)
        kernel.prepare(a, b, c)(a, b, c)
        (grid, arguments), again = library.launched
        assert again == (grid, arguments)
        assert grid == (N // 32, M // 32, 1, 32, 1, 1), grid
        assert arguments[:24] == struct.pack("<3Q", a.address, b.address, c.address)
        library.launched.clear()
        said = ""
        try:
            kernel(a, b, Tensor(0x30000, (M, N + 1), 32))
        except ValueError as error:
            said = str(error)
        assert "C.shape[1]" in said, said or "a wrong shape was launched"
    missing = [name for name in ABSENT if name in sys.modules]
    assert not missing, missing
    print(f"launched {len(kernels)} times without {', '.join(ABSENT)}")


if __name__ == "__main__":
    {"export": export, "launch": launch}[sys.argv[1]](sys.argv[2])
