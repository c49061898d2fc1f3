"""`plot_layout`: a picture of a layout or a fragment, one cell per element.

plot_layout(fragment)                    each cell says T<thread> and, below, R<register>; coloured by thread
plot_layout(layout)                      each cell says its physical offset; a swizzle colours its chunks
plot_layout(layout, view="output")       the memory (or the registers of each thread) and what it holds
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.layout import Fragment, Layout

_FORMATS = ("png", "pdf", "svg")
_CELL_INCHES = 0.52
# Text is most of the drawing time: 4096 labelled cells took 6 s (matplotlib 3.11, one core). Larger tiles get
# colours only.
_LABELLED_CELLS = 4096
_UNLABELLED_CELL_INCHES = 0.08
_DOTS_PER_INCH = 120
# Cells in one row when there is only one dimension to draw, and where a longer one is broken.
_LONGEST_ROW = 64
_WRAPPED_ROW = 32
# A PNG of 20,000 dots a side still opens everywhere; larger figures are scaled down to it.
_LONGEST_SIDE_INCHES = 160.0


@dataclass(frozen=True)
class _Picture:
    """What is drawn: text and colour number (-1: empty) per cell, and the words around them."""

    labels: list[list[str]]
    colours: npt.NDArray[np.int64]
    title: str
    rows: str
    columns: str


def plot_layout(
    layout: Layout | Fragment,
    save_directory: str | Path = "./tmp",
    name: str = "layout",
    formats: str | Iterable[str] = "png",
    *,
    view: str = "input",
    grid_shape: Sequence[int] | None = None,
    colormap: str = "turbo",
    verbose: bool = False,
) -> list[Path]:
    """Draw `layout` into `save_directory/name.<format>` and return the paths written.

    `formats` is "png", "pdf", "svg", several of them joined by "," or "|", or "all". `view="input"` has a cell per
    logical element; `view="output"` a cell per physical place (for a fragment a row per thread, a column per
    register). `grid_shape=(rows, columns)` rearranges the cells row-major; by default the last dimension runs across
    and the others down. `verbose` prints each path. Tiles of more than 4096 cells get colours without text.

    Raises ImportError without matplotlib, ValueError for an unknown format or view or a grid of another size.
    """
    wanted = _formats(formats)
    if view not in ("input", "output"):
        raise ValueError(f'plot_layout was given view={view!r}. Use "input" or "output".')
    if not isinstance(layout, (Layout, Fragment)):
        raise TypeError(f"plot_layout draws a Layout or a Fragment, but {type(layout).__name__} was given.")
    figure = _draw(_picture(layout, view, grid_shape), colormap)
    folder = Path(save_directory)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{kind}" for kind in wanted]
    for path in paths:
        figure.savefig(path, bbox_inches="tight", dpi=_DOTS_PER_INCH)
        if verbose:
            print(f"wrote {path}")
    return paths


def _formats(formats: str | Iterable[str]) -> list[str]:
    names = formats.replace("|", ",").split(",") if isinstance(formats, str) else list(formats)
    names = [name.strip().lower() for name in names]
    if names == ["all"]:
        return list(_FORMATS)
    for name in names:
        if name not in _FORMATS:
            raise ValueError(f'plot_layout cannot write the format {name!r}. Use "png", "pdf", "svg" or "all".')
    return list(dict.fromkeys(names))


def _picture(layout: Layout | Fragment, view: str, grid_shape: Sequence[int] | None) -> _Picture:
    if isinstance(layout, Fragment):
        cells, colours = _fragment_cells(layout) if view == "input" else _inverse_cells(layout)
        facts = f"{layout.num_threads} threads, {layout.registers} registers each, held {layout.replicate_size} x"
        rows, columns = ("row", "column") if view == "input" else ("thread", "register")
    else:
        cells, colours = _layout_cells(layout) if view == "input" else _inverse_cells(layout)
        facts = f"{layout.shape} to {layout.output_shape}" + (f", {layout.swizzle}" if layout.swizzle else "")
        rows, columns = ("row", "column") if view == "input" else ("place, slow", "place, fast")
    grid = _grid(cells.shape, grid_shape)
    blanks = math.prod(grid) - cells.size
    cells = np.append(cells.ravel(), [""] * blanks).reshape(grid)
    colours = np.append(colours.ravel(), [-1] * blanks).reshape(grid)
    kind = f"{type(layout).__name__} {layout.shape}" if isinstance(layout, Fragment) else type(layout).__name__
    return _Picture(cells.tolist(), colours, f"{kind}: {facts}", rows, columns)


def _fragment_cells(fragment: Fragment) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """T<thread> over R<register>; the threads of several replicas are listed, at most four."""
    indices = np.indices(fragment.shape)
    threads = [np.broadcast_to(fragment.thread(*indices, rep=rep), fragment.shape) for rep in range(4)]
    threads = threads[: fragment.replicate_size]
    registers = np.broadcast_to(fragment.index(*indices), fragment.shape)
    more = ".." if fragment.replicate_size > 4 else ""
    cells = np.empty(fragment.shape, dtype=object)
    for point in np.ndindex(fragment.shape):
        cells[point] = f"T{'/'.join(str(t[point]) for t in threads)}{more}\nR{registers[point]}"
    return cells, np.array(threads[0])


def _layout_cells(layout: Layout) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The physical index; coloured by the chunk that a swizzle moves, else by offset."""
    values = [np.broadcast_to(v, layout.shape) for v in layout(*np.indices(layout.shape))]
    cells = np.empty(layout.shape, dtype=object)
    for point in np.ndindex(layout.shape):
        cells[point] = ",".join(str(v[point]) for v in values)
    colours = np.array(layout.offsets)
    if layout.swizzle is not None:
        colours = colours >> layout.swizzle.base & ((1 << layout.swizzle.bits) - 1)
    return cells, colours


def _inverse_cells(layout: Layout | Fragment) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The logical index that each place holds, coloured by its row-major number; empty places stay blank."""
    back = layout.inverse()
    logical = [np.broadcast_to(v, back.shape) for v in back(*np.indices(back.shape))]
    cells = np.full(back.shape, "", dtype=object)
    for point in np.ndindex(back.shape):
        if logical[0][point] >= 0:
            cells[point] = ",".join(str(v[point]) for v in logical)
    number = np.zeros(back.shape, dtype=np.int64)
    for value, extent in zip(logical, layout.shape, strict=True):
        number = number * extent + value
    return cells, np.where(logical[0] < 0, -1, number)


def _grid(shape: tuple[int, ...], grid_shape: Sequence[int] | None) -> tuple[int, int]:
    """Rows and columns of the drawing; a long single row is wrapped, the last line filled with blanks."""
    total = math.prod(shape)
    if grid_shape is None:
        if len(shape) == 1 and total > _LONGEST_ROW:
            return -(-total // _WRAPPED_ROW), _WRAPPED_ROW
        return total // shape[-1], shape[-1]
    if len(grid_shape) != 2 or math.prod(grid_shape) != total:
        raise ValueError(
            f"plot_layout was given grid_shape={tuple(grid_shape)} for {total} cells. "
            f"Give (rows, columns) with that product, for example (1, {total})."
        )
    return grid_shape[0], grid_shape[1]


def _draw(picture: _Picture, colormap: str) -> Any:
    """The figure. matplotlib's own canvas, without pyplot: no window, no global state."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plot_layout draws with matplotlib, which is absent: pip install tile-lang[vis]") from error
    rows, columns = picture.colours.shape
    longest = max((len(line) for row in picture.labels for text in row for line in text.split("\n")), default=1)
    # Cells are square; longer labels make all of them larger, so that text keeps one size.
    cell = _CELL_INCHES * max(1.0, longest / 6)
    labelled = rows * columns <= _LABELLED_CELLS
    cell = min(cell if labelled else _UNLABELLED_CELL_INCHES, _LONGEST_SIDE_INCHES / max(rows, columns))
    figure = Figure(figsize=(columns * cell + 1, rows * cell + 1))
    axes = figure.add_subplot()
    axes.imshow(_pastel(picture.colours, matplotlib.colormaps[colormap]), aspect="equal", interpolation="nearest")
    axes.set_title(picture.title, fontsize=10)
    axes.set_xlabel(picture.columns)
    axes.set_ylabel(picture.rows)
    step = max(1, math.ceil(max(rows, columns) / 64))
    axes.set_xticks(range(0, columns, step))
    axes.set_yticks(range(0, rows, step))
    axes.tick_params(labelsize=7, top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    if labelled:
        axes.set_xticks(np.arange(-0.5, columns), minor=True)
        axes.set_yticks(np.arange(-0.5, rows), minor=True)
        axes.grid(which="minor", color="black", linewidth=0.4)
        axes.tick_params(which="minor", length=0)
        for row in range(rows):
            for column in range(columns):
                text = picture.labels[row][column]
                axes.text(column, row, text, ha="center", va="center", fontsize=7)
    return figure


def _pastel(colours: npt.NDArray[np.int64], colormap: Any) -> npt.NDArray[np.float64]:
    """Colour numbers as light colours under black text; -1 is white."""
    highest = max(1, int(colours.max()))
    shades = np.asarray(colormap(np.clip(colours, 0, None) / highest))[..., :3]
    shades = 0.5 * shades + 0.5
    shades[colours < 0] = 1.0
    return np.asarray(shades, dtype=np.float64)
