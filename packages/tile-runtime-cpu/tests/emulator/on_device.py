"""The same tests on hardware: TILELANG_TEST_DEVICE=cuda makes conftest.py launch its kernels on the GPU, built by nvcc.

    TILELANG_TEST_DEVICE=cuda python -m pytest packages/tile-runtime-cpu/tests/emulator -k "instructions or types or kernels"

What only an emulator can know (findings, counters) is not asked there: `only_emulated` skips those tests. This is how
the header's inline assembly and the emulator's reading of the manual are held together.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tile_runtime_cpu.emulator import Report

INCLUDE = (
    Path(__file__).resolve().parents[3] / "tile-compiler" / "src" / "tile_compiler" / "targets" / "cuda" / "include"
)
_SCALARS: dict[str, Any] = {
    "int": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}


class DeviceModule:
    """Stands in for EmulatedModule. Its reports are empty; an error of the driver raises RuntimeError."""

    def __init__(self, source: str, arch: str = "sm_90a") -> None:
        self.source = source
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._call("cuCtxSetCurrent", context)
        with tempfile.TemporaryDirectory() as folder:
            text, cubin = Path(folder, "kernel.cu"), Path(folder, "kernel.cubin")
            text.write_text(source)
            subprocess.run(["nvcc", f"-arch={arch}", "-cubin", f"-I{INCLUDE}", str(text), "-o", str(cubin)], check=True)
            self._module = ctypes.c_void_p()
            self._call("cuModuleLoadData", ctypes.byref(self._module), cubin.read_bytes())

    def launch(
        self, symbol: str, grid: Sequence[int], block: Sequence[int], shared: int, args: Sequence[Any], **_: Any
    ) -> Report:
        """Copy arrays in, run, copy them back."""
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), self._module, symbol.encode())
        parameters = re.search(rf"\b{symbol}\(([^)]*)\)", self.source)
        assert parameters is not None
        types = [" ".join(p.split()[:-1]).removeprefix("const ") for p in parameters[1].split(",") if p.strip()]
        arrays, cells = [], []
        for text, value in zip(types, args):
            if isinstance(value, np.ndarray):
                memory = ctypes.c_uint64()
                self._call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(max(value.nbytes, 1)))
                self._call("cuMemcpyHtoD_v2", memory, ctypes.c_void_p(value.ctypes.data), ctypes.c_size_t(value.nbytes))
                arrays.append((memory, value))
                cells.append(memory)
            else:
                cells.append(_SCALARS[text](value))
        pointers = (ctypes.c_void_p * len(cells))(*[ctypes.addressof(cell) for cell in cells])
        extents = [*grid, 1, 1][:3], [*block, 1, 1][:3]
        self._call("cuLaunchKernel", function, *extents[0], *extents[1], shared, None, pointers, None)
        self._call("cuCtxSynchronize")
        for memory, value in arrays:
            if value.flags.writeable:
                self._call("cuMemcpyDtoH_v2", ctypes.c_void_p(value.ctypes.data), memory, ctypes.c_size_t(value.nbytes))
            self._call("cuMemFree_v2", memory)
        return Report([], {})

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._driver, name)(*args)
        if status:
            raise RuntimeError(f"{name}: CUDA error {status}")
