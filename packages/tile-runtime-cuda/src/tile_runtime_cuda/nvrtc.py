"""NVRTC through ctypes. The wheel `nvidia-cuda-nvrtc` brings the library; no driver and no toolkit is needed.

Functions: https://docs.nvidia.com/cuda/nvrtc/index.html#basic-usage
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

_MAJORS = (13, 12)


class NotFound(Exception):
    """No NVRTC on this machine; the text says what to install."""


class Nvrtc:
    """One opened library."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.number = (major.value, minor.value)
        self.version = f"{major.value}.{minor.value}"

    def architectures(self) -> list[int]:
        """Compute capabilities it builds for, as 75, 80, ..."""
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", numbers)
        return list(numbers)

    def compile(
        self, source: str, name: str, headers: Mapping[str, str], options: Sequence[str]
    ) -> tuple[bytes | None, bytes, str]:
        """(cubin or None, the PTX it was made of, log). The headers are handed over in memory; nothing is read from disk."""
        program = ctypes.c_void_p()
        texts = _strings(headers.values())
        self._call(
            "nvrtcCreateProgram",
            ctypes.byref(program),
            ctypes.c_char_p(source.encode()),
            ctypes.c_char_p(name.encode()),
            ctypes.c_int(len(headers)),
            texts,
            _strings(headers),
        )
        try:
            status = self._handle.nvrtcCompileProgram(program, ctypes.c_int(len(options)), _strings(options))
            log = self._bytes("nvrtcGetProgramLog", program).rstrip(b"\0").decode(errors="replace")
            if status:
                return None, b"", log
            return self._bytes("nvrtcGetCUBIN", program), self._bytes("nvrtcGetPTX", program), log
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _bytes(self, function: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"{function}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(max(1, size.value))
        self._call(function, program, text)
        return text.raw[: size.value]

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._handle, function)(*arguments)
        if status:
            describe = self._handle.nvrtcGetErrorString
            describe.restype = ctypes.c_char_p
            raise NotFound(f"NVRTC refused {function}: {describe(ctypes.c_int(status)).decode()}")


def _strings(texts: Any) -> Any:
    items = [t.encode() for t in texts]
    return (ctypes.c_char_p * max(1, len(items)))(*items)


@lru_cache(maxsize=1)
def library() -> Nvrtc:
    """The library of the wheel, else one that the loader finds. Raises NotFound."""
    tried = []
    for place in _places():
        try:
            return Nvrtc(ctypes.CDLL(place))
        except (OSError, NotFound) as error:
            tried.append(str(error))
    raise NotFound(
        "no NVRTC to compile CUDA with: install the wheel nvidia-cuda-nvrtc "
        f"(pip install 'tile-runtime-cuda[compile]'){'; tried ' + '; '.join(tried) if tried else ''}"
    )


def _places() -> Iterator[str]:
    """Files of the wheels `nvidia-cuda-nvrtc` (13) and `nvidia-cuda-nvrtc-cu12`, then names for the loader."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(p) for p in (spec.submodule_search_locations or ())] if spec is not None else []
    windows = sys.platform == "win32"
    for major in _MAJORS:
        folder, file = (f"cu{major}", "nvrtc64*.dll") if windows else (f"cu{major}", f"libnvrtc.so.{major}")
        for root in roots:
            for inner in (root / folder, root / "cuda_nvrtc"):
                yield from (str(p) for p in sorted((inner / ("bin" if windows else "lib")).glob(file)))
    toolkit = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    for major in _MAJORS:
        if toolkit and not windows:
            yield str(Path(toolkit) / "lib64" / f"libnvrtc.so.{major}")
        yield f"nvrtc64_{major}0_0.dll" if windows else f"libnvrtc.so.{major}"
