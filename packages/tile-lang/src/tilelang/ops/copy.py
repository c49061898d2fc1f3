"""`T.copy`: move a tile between any two levels of memory, converting the element type on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilelang.ops.base import Machine, TileOp, register


@register
@dataclass(frozen=True)
class Copy(TileOp):
    """`tl.copy(src, dst)`: dst[...] = cast(src[...]).

    Both regions have the same extents once the 1s are dropped, in the same order; the n-th non-1 dimension of
    `src` meets the n-th of `dst`. Outside its buffer `src` reads as 0 (or the buffer's safe value); elements of
    `dst` outside its buffer are dropped.

    Literals are scheduling hints and change no result.
    """

    NAME: ClassVar[str] = "tl.copy"
    OPERANDS: ClassVar[tuple[str, ...]] = ("src", "dst")

    src: Any
    dst: Any
    coalesced_width: int | None = None
    disable_tma: bool | None = None
    eviction_policy: str | None = None
    prefer_instruction: str | None = None
    prefer_async: bool | None = None

    def reads(self) -> list[Any]:
        return [self.src]

    def writes(self) -> list[Any]:
        return [self.dst]

    def tile_axes(self) -> list[tuple[Any, int, int]]:
        """(extent, dimension of src, dimension of dst) for each dimension that both regions share.

        Dimensions of extent 1 on both sides are left out.
        """
        from tilelang.ir import tile_ir

        src_dims = [d for d, e in enumerate(tile_ir.extents(self.src)) if tile_ir.static(e) != 1]
        dst_dims = [d for d, e in enumerate(tile_ir.extents(self.dst)) if tile_ir.static(e) != 1]
        if len(src_dims) != len(dst_dims):
            raise ValueError("tl.copy: the regions' shapes differ after dropping 1s")
        return [(self.src.region[s].extent, s, d) for s, d in zip(src_dims, dst_dims)]

    def meaning(self, machine: Machine) -> None:
        shape = [int(machine.evaluate(r.extent)) for r in self.dst.region]
        machine.store(self.dst, machine.load(self.src).reshape(shape))
