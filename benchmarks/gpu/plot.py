"""Draw what `measure.py` wrote: `python benchmarks/gpu/plot.py RESULTS.json OUT.svg` (needs matplotlib).

One group of bars for each case: ours (the best configuration), every peer, and the bound as a line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def plot(results: dict[str, Any], out: Path) -> None:
    """TFLOP/s by case and provider."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines = results["lines"]
    names = ["ours", *dict.fromkeys(name for line in lines for name in line["of_peer"])]
    figure, axes = plt.subplots(figsize=(2 + 1.1 * len(lines), 4.5))
    for n, name in enumerate(names):
        shown = [(i, line, ["ours", *line["of_peer"]]) for i, line in enumerate(lines)]
        bars = [
            (i + ((row.index(name) + 0.5) / len(row) - 0.5) * 0.8, 0.8 / len(row), line)
            for i, line, row in shown
            if name in row
        ]
        rates = [line["tflops"][line["ours"] if name == "ours" else name] for _, _, line in bars]
        axes.bar([at for at, _, _ in bars], rates, [width for _, width, _ in bars], label=name, color=f"C{n}")
    for i, line in enumerate(lines):
        best = line["tflops"][line["ours"]] / line["of_bound"]
        axes.hlines(best, i - 0.45, i + 0.45, colors="black", linestyles="dotted", label="bound" if i == 0 else None)
    labels = [line["case"].replace("float16", "f16").replace("-", "\n", 2) for line in lines]
    axes.set_xticks(range(len(lines)), labels, fontsize=6, rotation=30, ha="right")
    axes.set_ylabel("TFLOP/s")
    axes.set_title(results["state"], fontsize=8)
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(out)


if __name__ == "__main__":
    plot(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
