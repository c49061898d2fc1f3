"""Compile the measured kernels on any machine: `python benchmarks/gpu/pack.py FOLDER [--only GROUP] [--case PART] [--sweep]`.

Writes one artifact for each case and configuration, and index.json, which `measure.py` reads where the GPU is. A kernel
that does not compile, or that the device compiler spills or serializes, is named, and left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

import kernels
from cases import GROUPS, Case, Gemm, chosen
from configs import configs

import tilelang
from tile_compiler.errors import SlowDeviceCode


def options(case: Case) -> dict[str, bool]:
    """What a kernel's user asks for: tf32 for float32 operands, and approximate exp2 as the documents' attention does."""
    if isinstance(case, Gemm):
        return {"tl.allow_tf32": True} if case.dtype == "tf32" else {}
    return {"tl.enable_fast_math": True}


def pack(folder: Path, arch: str, groups: list[str] | None, parts: list[str] | None, sweep: bool) -> int:
    """The exit code: 1 if a kernel was refused."""
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("error", SlowDeviceCode)
    index, refused = [], 0
    for group, case in chosen(groups, parts):
        for config in configs(group, case, sweep):
            file = f"{case.name}--{config.name}.tile"
            begin = time.perf_counter()
            try:
                function = kernels.kernel(case, config)
                kernel = tilelang.compile(function, target=f"cuda -arch={arch}", pass_configs=options(case))
            except Exception as error:
                refused += 1
                print(f"REFUSED {file}: {str(error).splitlines()[0][:160]}", flush=True)
                continue
            kernel.export(folder / file)
            facts = [str(n["text"]) for n in kernel.report()["notes"] if "registers" in str(n["text"])]
            print(f"{file}: {time.perf_counter() - begin:.1f} s; {'; '.join(facts[-1:])}", flush=True)
            index.append({"case": case.name, "config": config.name, "file": file})
            (folder / "index.json").write_text(json.dumps({"arch": arch, "kernels": index}, indent=1))
    return int(refused > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--only", action="append", choices=sorted(GROUPS))
    parser.add_argument("--case", action="append", help="only cases whose label and name contain this")
    parser.add_argument("--sweep", action="store_true", help="every configuration of configs.py")
    given = parser.parse_args()
    sys.exit(pack(given.folder, given.arch, given.only, given.case, given.sweep))
