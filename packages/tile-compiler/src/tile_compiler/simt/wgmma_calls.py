"""What a call of `tl::wgmma_m64...` says of memory: the registers and the bytes of shared memory that it uses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import ir

from tile_compiler.rewrite import is_call
from tilelang.ir import tile_ir

PREFIX = "tl::wgmma_m64k"
CHUNK = 16  # bytes that lie together in every mode
GROUP = 8  # rows of a core matrix
STEP = 32  # bytes along k

_NAME = re.compile(r"tl::wgmma_m64k(\d+)_(\w+?)(_rs)?<(\d+)(?:, ([^>]*))?>")
_DESCRIPTOR = re.compile(r"tl::wgmma_descriptor<(\d+)>")


@dataclass(frozen=True)
class Matrix:
    """An operand in shared memory: `extent` elements along m or n, of `size` bytes, and 32 bytes along k.

    It begins `advance` bytes behind the address of `buffer[index]`.
    """

    buffer: Any
    index: Any
    advance: Any
    swizzle: int
    leading: int
    stride: int
    extent: int
    size: int
    mn_major: bool

    @property
    def span(self) -> int:
        """Bytes of a row of the pattern."""
        return self.swizzle or CHUNK

    @property
    def chunks(self) -> npt.NDArray[np.int64]:
        """Where its pieces of 16 bytes lie behind its start, before the swizzle."""
        return _chunks(self.swizzle, self.leading, self.stride, self.extent, self.size, self.mn_major)

    @property
    def reach(self) -> int:
        """Bytes from the beginning of its first row to the end of its last."""
        return -(-(int(self.chunks.max()) + CHUNK) // self.span) * self.span

    def swizzled(self, address: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where the hardware looks for the byte `address`: 16-byte pieces are exchanged inside a row."""
        return address ^ (address >> 3 & (self.span - CHUNK))


@dataclass(frozen=True)
class WgmmaCall:
    """`accumulator` and `a_registers` (if A is there) are arrays of the thread; `matrices` lie in shared memory.

    `shape` is equal for calls that may follow each other on the same accumulator without a fence or a wait.
    """

    shape: tuple[str, ...]
    n: int
    k: int
    accumulator: Any
    a_registers: Any
    matrices: tuple[Matrix, ...]


def wgmma_call(node: Any) -> WgmmaCall | None:
    """The parts of a call; None if it is another one."""
    if not is_call(node, "tirx.call_extern") or not str(node.args[0].value).startswith(PREFIX):
        return None
    found = _NAME.fullmatch(str(node.args[0].value))
    assert found is not None, f"{node.args[0].value} has another form than the lowering writes"
    k, types, registers, n, majors = found.groups()
    turned = ["mn_major" in m for m in majors.split(",")] if majors else [False, False]
    if registers:
        turned = [False, turned[-1]]
    c, a, b = node.args[1:4]
    size = STEP // int(k)
    matrices = [] if registers else [_matrix(a, 64, size, turned[0])]
    matrices.append(_matrix(b, int(n), size, turned[1]))
    return WgmmaCall((k, types, n), int(n), int(k), _array(c), _array(a) if registers else None, tuple(matrices))


def _array(node: Any) -> Any:
    """The array whose address is passed."""
    assert is_call(node, "tirx.address_of")
    return node.args[0].source


def _matrix(node: Any, extent: int, size: int, mn_major: bool) -> Matrix:
    found = _DESCRIPTOR.fullmatch(str(node.args[0].value)) if is_call(node, "tirx.call_extern") else None
    assert found is not None, "a descriptor stands where it is used"
    start, leading, stride, advance = node.args[1:5]
    place = start.args[0]
    assert isinstance(place, ir.TensorLoad)
    strides = (tile_ir.static(leading) or 0, tile_ir.static(stride) or 0)
    return Matrix(place.source, place.indices[0], advance, int(found[1]), *strides, extent, size, mn_major)


@lru_cache(maxsize=64)
def _chunks(swizzle: int, leading: int, stride: int, extent: int, size: int, mn_major: bool) -> npt.NDArray[np.int64]:
    """PTX ISA, "Strides": the leading and the stride dimension of both major orders."""
    span = swizzle or CHUNK
    if mn_major:
        depth, width = STEP // size, extent * size // CHUNK
        k, chunk = (x.ravel() for x in np.meshgrid(np.arange(depth), np.arange(width), indexing="ij"))
        inside = k % GROUP * span + chunk * CHUNK % span
        groups, pieces = (stride, leading) if swizzle else (leading, stride)
        return np.asarray(inside + k // GROUP * groups + chunk * CHUNK // span * pieces, np.int64)
    row, chunk = (x.ravel() for x in np.meshgrid(np.arange(extent), np.arange(STEP // CHUNK), indexing="ij"))
    along = chunk * CHUNK if swizzle else chunk * leading
    return np.asarray(row % GROUP * span + row // GROUP * stride + along, np.int64)
