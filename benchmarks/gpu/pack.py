"""Compile the measured kernels on any machine: `python benchmarks/gpu/pack.py FOLDER [--only GROUP] [--case PART] [--sweep]
[--leave] [--jobs N]`.

Writes one artifact for each case and configuration, and index.json, which `measure.py` reads where the GPU is. A kernel
that does not compile, or that the device compiler spills or serializes, is named, and left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import kernels
from cases import GROUPS, Case, Gemm, chosen
from configs import Config, configs

import tilelang
from tile_compiler.errors import SlowDeviceCode


def options(case: Case) -> dict[str, bool]:
    """What a kernel's user asks for: tf32 for float32 operands, and approximate exp2 as the documents' attention does."""
    if isinstance(case, Gemm):
        return {"tl.allow_tf32": True} if case.dtype == "tf32" else {}
    return {"tl.enable_fast_math": True}


LEAVE = {"tl.disable_staying_blocks": True}


def pack(folder: Path, arch: str, tasks: list[tuple[Case, Config, bool]], jobs: int) -> int:
    """The exit code: 1 if a kernel was refused."""
    folder.mkdir(parents=True, exist_ok=True)
    index, refused = [], 0
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as workers:
        made = [workers.submit(compiled, folder, arch, *task) for task in tasks]
        for (case, config, leave), task in zip(tasks, made):
            text, file = task.result()
            print(text, flush=True)
            refused += not file
            if file:
                index.append({"case": case.name, "config": named(config, leave), "file": file})
                (folder / "index.json").write_text(json.dumps({"arch": arch, "kernels": index}, indent=1))
    return int(refused > 0)


def named(config: Config, leave: bool) -> str:
    return config.name + ("-leave" if leave else "")


def compiled(folder: Path, arch: str, case: Case, config: Config, leave: bool) -> tuple[str, str]:
    """What to say of a kernel, and the name of its file in `folder`, empty if it was refused. `leave`: a block for each tile,
    whatever the compiler would choose."""
    file = f"{case.name}--{named(config, leave)}.tile"
    switches = options(case) | (LEAVE if leave else {})
    begin = time.perf_counter()
    try:
        function = kernels.kernel(case, config)
        with warnings.catch_warnings():
            warnings.simplefilter("error", SlowDeviceCode)
            kernel = tilelang.compile(function, target=f"cuda -arch={arch}", pass_configs=switches)
    except Exception as error:
        return f"REFUSED {file}: {str(error).splitlines()[0][:160]}", ""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", SlowDeviceCode
        )  # of the variants for operands that are not aligned: none is measured
        kernel.export(folder / file)
    facts = [str(n["text"]) for n in kernel.report()["notes"] if "registers" in str(n["text"])]
    return f"{file}: {time.perf_counter() - begin:.1f} s; {'; '.join(facts[-1:])}", file


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--only", action="append", choices=sorted(GROUPS))
    parser.add_argument("--case", action="append", help="only cases whose label and name contain this")
    parser.add_argument("--sweep", action="store_true", help="every configuration of configs.py")
    parser.add_argument(
        "--leave", action="store_true", help="texts without blocks that stay also with a block for each tile"
    )
    parser.add_argument("--jobs", type=int, default=1, help="kernels that are compiled side by side")
    given = parser.parse_args()
    cases = chosen(given.only, given.case)
    work = [
        (case, config, leave)
        for group, case in cases
        for config in configs(group, case, given.sweep)
        for leave in ((False, True) if given.leave and not getattr(config, "blocks", 0) else (False,))
    ]
    sys.exit(pack(given.folder, given.arch, work, given.jobs))
