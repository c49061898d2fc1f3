"""A distribution drawn small, as text, for error messages."""

from __future__ import annotations

from tile_compiler.simt.distribution import Distribution

ROWS, COLUMNS = 4, 8


def drawn(dist: Distribution) -> list[str]:
    """The threads (first copy) that hold the corner of a tile, rows down and columns right; `..` where it goes on.

    t0 t0 t1 t1 ..
    t4 t4 t5 t5 ..
    ..
    """
    threads = dist.thread_of[0]
    while threads.ndim > 2:
        threads = threads[0]
    table = threads.reshape(-1, threads.shape[-1])
    rows, columns = table.shape
    corner = [[f"t{t}" for t in row] + [".."] * (columns > COLUMNS) for row in table[:ROWS, :COLUMNS]]
    width = max(len(cell) for row in corner for cell in row)
    lines = [" ".join(cell.rjust(width) for cell in row).rstrip() for row in corner]
    return lines + ["..".rjust(width)] * (rows > ROWS)


def beside(left: list[str], right: list[str], gap: str = "    ") -> list[str]:
    """Two drawings side by side."""
    width = max(len(line) for line in left)
    count = max(len(left), len(right))
    padded = [*left, *[""] * (count - len(left))]
    return [f"{a.ljust(width)}{gap}{b}".rstrip() for a, b in zip(padded, [*right, *[""] * (count - len(right))])]
