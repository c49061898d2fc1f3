"""Draw what `measure.py` wrote: `python benchmarks/gpu/plot.py RESULTS.json OUT.svg` (needs matplotlib).

A row for each group; one group of bars for each case: ours (the best configuration), every peer, and the bound as a line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def plot(results: dict[str, Any], out: Path) -> None:
    """Rates by case and provider; hatched bars are figures from another lease."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines = [line for line in results["lines"] if line["ours"] is not None]
    groups = list(dict.fromkeys(line["group"] for line in lines))
    names = ["ours", *dict.fromkeys(name for line in lines for name in line["of_peer"])]
    longest = max((sum(line["group"] == g for line in lines) for g in groups), default=1)
    size = (2 + 1.1 * longest, 4.2 * max(1, len(groups)))
    figure, rows = plt.subplots(max(1, len(groups)), squeeze=False, figsize=size)
    for axes, group in zip(rows[:, 0], groups):
        _bars(axes, [line for line in lines if line["group"] == group], names)
    figure.suptitle(str(results.get("state", "")), fontsize=8)
    figure.tight_layout()
    figure.savefig(out)


def _bars(axes: Any, lines: list[dict[str, Any]], names: list[str]) -> None:
    for n, name in enumerate(names):
        shown = [(i, line, ["ours", *line["of_peer"]]) for i, line in enumerate(lines)]
        bars = [
            (i + ((row.index(name) + 0.5) / len(row) - 0.5) * 0.8, 0.8 / len(row), line)
            for i, line, row in shown
            if name in row
        ]
        if not bars:
            continue
        rates = [line["rates"][line["ours"] if name == "ours" else name] for _, _, line in bars]
        hatch = "//" if name.endswith("*") else None
        places, widths = [at for at, _, _ in bars], [width for _, width, _ in bars]
        axes.bar(places, rates, widths, label=name, color=f"C{n}", hatch=hatch)
    for i, line in enumerate(lines):
        label = "bound" if i == 0 else None
        axes.hlines(line["bound_rate"], i - 0.45, i + 0.45, colors="black", linestyles="dotted", label=label)
    labels = [f"{line['label']}\n" + line["case"].replace("float16", "f16").replace("-", "\n", 2) for line in lines]
    axes.set_xticks(range(len(lines)), labels, fontsize=6, rotation=30, ha="right")
    axes.set_ylabel(lines[0]["unit"])
    axes.legend(fontsize=7)


if __name__ == "__main__":
    plot(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
