"""`python -m tilelang.autotuner measure FOLDER`, `merge FILE ... [--into FILE]`, `show [FILE]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tilelang.autotuner import results
from tilelang.autotuner.configurations import words
from tilelang.autotuner.plan import measure, merge
from tilelang.errors import TileLangError


def show(path: Path) -> None:
    """Print what a file of results says: the choice for each kernel, device and class, and the next best."""
    for kernel, devices in results.read(path).items():
        for device, classes in devices.items():
            print(f"{kernel} on {device}")
            for name, record in classes.items():
                candidates = record.get("candidates", [])
                pruned, failed = (sum(fate in c for c in candidates) for fate in ("pruned", "failed"))
                print(f"  {name}")
                print(f"    {record['ms']:.4g} ms  {words(record['config'])}")
                for config in results.sorted_candidates(record)[1:3]:
                    ms = next(c["ms"] for c in candidates if c["config"] == config)
                    print(f"    {ms:.4g} ms  {words(config)}")
                print(f"    of {len(candidates)} configurations, {pruned} pruned, {failed} failed")


def main(arguments: list[str] | None = None) -> int:
    """Exit status 1 for an error of ours, which is printed."""
    parser = argparse.ArgumentParser(prog="python -m tilelang.autotuner", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="measure the sweeps that pack() wrote")
    measuring.add_argument("folder", type=Path)
    measuring.add_argument("--output", type=Path, help="the file of results; FOLDER/results.json by default")
    measuring.add_argument(
        "--device", action="append", default=[], help="a device's plugin: cuda=tile_runtime_cuda.plugin:DEVICE"
    )
    merging = commands.add_parser("merge", help="put results into one file")
    merging.add_argument("files", type=Path, nargs="+")
    merging.add_argument("--into", type=Path, help="by default the file in the cache folder")
    showing = commands.add_parser("show", help="print what a file of results says")
    showing.add_argument("file", type=Path, nargs="?", default=None)
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "measure":
            measure(chosen.folder, chosen.output, plugins=chosen.device)
        elif chosen.command == "merge":
            print(merge(chosen.files, chosen.into))
        else:
            show(chosen.file or results.default_path())
    except TileLangError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
