"""The table of what recorded kernels take of a chip: one row for each launch, in resources.txt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TABLE = Path(__file__).parent / "resources.txt"
COLUMNS = ("registers", "spills", "stack", "shared")
HEAD = """\
What the device compiler uses: registers of a thread (AMD: with accumulators); spills, stack and shared memory in bytes
(AMD: spilled registers, scratch, LDS). A kernel that takes more fails; one that takes less is recorded by --update-golden.
"""

Row = tuple[str, str, int]  # kernel, architecture, number of the launch


def read() -> dict[Row, dict[str, int]]:
    """The recorded rows."""
    if not TABLE.exists():
        return {}
    lines = TABLE.read_text().partition("\n\n")[2].splitlines()
    found = {}
    for line in lines[1:]:
        kernel, arch, launch, *figures = line.split()
        found[kernel, arch, int(launch)] = dict(zip(COLUMNS, map(int, figures)))
    return found


def write(rows: dict[Row, dict[str, int]]) -> None:
    """All rows, aligned."""
    cells = [("kernel", "arch", "launch", *COLUMNS)]
    cells += [(k, a, str(n), *(str(rows[k, a, n][c]) for c in COLUMNS)) for k, a, n in sorted(rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = [
        "  ".join(cell.ljust(w) if c < 2 else cell.rjust(w) for c, (cell, w) in enumerate(zip(row, widths))).rstrip()
        for row in cells
    ]
    TABLE.write_text(HEAD + "\n" + "\n".join(lines) + "\n")


def taken(facts: dict[str, Any]) -> dict[str, int]:
    """The figures of one launch, from what the report says of it."""
    shared = int(facts["shared_bytes"]) + int(facts.get("static_shared_bytes", 0))
    return {**{name: int(facts[name]) for name in COLUMNS[:-1]}, "shared": shared}


def worse(got: dict[str, int], limit: dict[str, int]) -> list[str]:
    """`registers: 130, at most 128 before`, for each figure that grew."""
    return [f"{name}: {got[name]}, at most {limit[name]} before" for name in COLUMNS if got[name] > limit[name]]
