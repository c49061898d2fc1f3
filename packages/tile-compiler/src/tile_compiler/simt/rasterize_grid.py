"""The order in which the blocks of a grid run, so that neighbours in time find each other's tiles in the L2 cache."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tvm import tirx as tir

from tile_compiler.rewrite import map_kernels
from tile_compiler.simt.context import SimtContext
from tilelang import ops
from tilelang.ir import tile_ir


@dataclass(frozen=True)
class Panels:
    """`T.use_swizzle(panel_size, order)`: the grid is cut into panels of `size` rows, or columns (order "column")."""

    size: int
    order: str

    @classmethod
    def of(cls, hint: ops.Hint) -> Panels | None:
        """The wish of a `tl.hint("use_swizzle")`; None if it is switched off."""
        settings = json.loads(hint.settings)
        order = "column" if settings["order"] == "column" else "row"
        return cls(int(settings["panel_size"]), order) if settings["enable"] else None


def rasterize_grid(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """Number the blocks of a kernel with `T.use_swizzle` anew: panel by panel, and along each panel.

    before:     kernel(grid = (bx: 32, by: 16)): ... bx ... by ...
    after:      kernel(grid = (block_x: 32, block_y: 16)): bx, by = panels(...);  ... bx ... by ...

    With panels of 4 rows the first blocks are (0, 0) (0, 1) (0, 2) (0, 3) (1, 0) ...: 12 blocks in flight share 4 row
    tiles and 3 column tiles, not 1 and 12. Panels run in turns forwards and backwards. The new numbers are a permutation of
    the old ones for any grid, whether panels divide it or not. A third axis stays outermost. The hardware hands out
    blocks in the order of their number, x fastest (in practice: CUDA and HIP promise no order).

    Where blocks run in clusters it is these that are numbered anew, so that blocks of a cluster stay neighbours.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        panels = ctx.panels.get(kernel.index)
        if panels is None or len(kernel.grid) < 2:
            return kernel
        (bx, width), (by, height), *rest = kernel.grid
        column, row = tir.Var("block_x", str(bx.ty)), tir.Var("block_y", str(by.ty))
        cluster = ctx.clusters.get(kernel.index)
        new_column, new_row = clustered(column, row, width, height, panels, cluster.dims if cluster else (1, 1))
        binds = [tir.Bind(bx, new_column, span=kernel.span), tir.Bind(by, new_row, span=kernel.span)]
        body = tile_ir.sequence([*binds, *tile_ir.statements(kernel.body)])
        grid = ((column, width), (row, height), *rest)
        return tile_ir.Kernel(kernel.index, grid, kernel.threads, body, kernel.span)

    return map_kernels(func, rule)


def clustered(column: Any, row: Any, width: Any, height: Any, panels: Panels, dims: tuple[int, ...]) -> tuple[Any, Any]:
    """`rasterized` for clusters of `dims` blocks in place of single blocks; a panel has as many rows of blocks as before."""
    if dims[0] == dims[1] == 1:
        return rasterized(column, row, width, height, panels)
    x, y = (tir.const(d, str(v.ty)) for d, v in zip(dims, (column, row)))
    fewer = Panels(max(1, panels.size // (dims[0] if panels.order == "column" else dims[1])), panels.order)
    across, down = rasterized(
        tir.floordiv(column, x), tir.floordiv(row, y), tir.floordiv(width, x), tir.floordiv(height, y), fewer
    )
    return across * x + tir.floormod(column, x), down * y + tir.floormod(row, y)


def rasterized(column: Any, row: Any, width: Any, height: Any, panels: Panels) -> tuple[Any, Any]:
    """(column, row) of the tile for the block that runs as (column, row) of a `width` x `height` grid.

    For panels of rows: panel p holds rows p * size and so on, the last one what is left. Blocks of a panel are as many
    as its rows times `width`, and come in sequence, so number r of panel p is (column r // rows, row r % rows).
    Panels of columns are panels of rows of the transposed grid; there the number of a block in sequence is split anew.
    """
    if panels.order == "column":
        number = row * width + column
        turned = rasterized(
            tir.floormod(number, height), tir.floordiv(number, height), height, width, Panels(panels.size, "row")
        )
        return turned[1], turned[0]
    size = tir.const(panels.size, str(row.ty))
    panel = tir.floordiv(row, size)
    count = tile_ir.static(height)
    rows, first = size, None
    if count is None or count % panels.size:  # the last panel has fewer
        rows = tir.max(tir.min(size, height - panel * size), tir.const(1, str(row.ty)))  # 1: no panel is empty
        first = tir.const(0, str(row.ty))  # no column is outside
    number = tir.floormod(row, size) * width + column
    along = tir.floordiv(number, rows)
    back = width - 1 - along if first is None else tir.max(width - 1 - along, first)
    new_column = tir.Select(tir.floormod(panel, 2) == 0, along, back)
    return new_column, panel * size + tir.floormod(number, rows)
