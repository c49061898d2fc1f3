"""Compile the measured kernels on any machine: `python benchmarks/gpu/pack.py FOLDER [--arch sm_90] [--sweep]`.

Writes one artifact for each case and configuration, and index.json, which `measure.py` reads where the GPU is.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import kernels
from cases import GROUPS, Case, Gemm, configs

import tilelang


def options(case: Case) -> dict[str, bool]:
    """What a kernel's user asks for: tf32 for float32 operands, and approximate exp2 as the documents' attention does."""
    if isinstance(case, Gemm):
        return {"tl.allow_tf32": True} if case.dtype == "tf32" else {}
    return {"tl.enable_fast_math": True}


def pack(folder: Path, arch: str, groups: list[str], sweep: bool, part: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    index = []
    for group in groups:
        for number, case in enumerate(GROUPS[group]):
            for config in configs(case, sweep) if part in case.name else ():
                is_gemm = isinstance(case, Gemm)
                build = kernels.gemm if is_gemm else kernels.attention
                file = f"{case.name}--{config.name}.tile"
                kernel = tilelang.compile(
                    build(case, config),
                    target=f"cuda -arch={arch}",
                    pass_configs=options(case),
                )
                kernel.export(folder / file)
                notes = [str(n["text"]) for n in kernel.report()["notes"] if "bytes of spills" in str(n["text"])]
                print(file, *notes, flush=True)
                index.append({"group": group, "case": number, "config": config.name, "file": file})
    (folder / "index.json").write_text(json.dumps({"arch": arch, "kernels": index}, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--only", action="append", choices=sorted(GROUPS))
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    parser.add_argument("--sweep", action="store_true", help="every configuration that was tried")
    chosen = parser.parse_args()
    pack(chosen.folder, chosen.arch, chosen.only or list(GROUPS), chosen.sweep, chosen.case)
