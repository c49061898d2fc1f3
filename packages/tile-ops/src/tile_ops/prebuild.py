"""Compiles the kernels that wheels ship: `python -m tile_ops.prebuild FOLDER [--arch ARCH] [--family NAME]`.

For each vendor FOLDER gets a package of data (`cpu/tile_ops_prebuilt_cpu`, ...): `<arch>/<function>-<key>.tile` and
`index.json` (kernel/prebuilt.py). No device is needed, the compiler is. Each file holds all variants of its kernel, so that
any call is served where there is no compiler, and neither source nor report. Kernels that are there already stay if their
family's `kernels.py` is still the same; other files are removed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tile_ops
from tile_ops.family import families
from tile_ops.kernel import KernelSpec
from tile_ops.kernel.prebuilt import FORMAT, INDEX
from tile_runtime.atomic_file import write_atomically

#: What each wheel is compiled for. Binaries of sm_80 run on 8.x, those of sm_90a on 9.0 alone.
ARCHS = {
    "cpu": ("x86-64-v3", "x86-64-v4", "x86-64-v4+bf16+vnni", "x86-64-v4+bf16+vnni+amx"),
    "cuda": ("sm_80", "sm_86", "sm_89", "sm_90a"),
    "hip": ("gfx942",),
}
#: The packages of data, below FOLDER.
PACKAGES = {
    "cpu": "cpu/tile_ops_prebuilt_cpu",
    "cuda": "cuda/tile_ops_prebuilt_cuda",
    "hip": "rocm/tile_ops_prebuilt_rocm",
}
#: The architecture whose kernels carry PTX, which drivers compile for cards newer than any of these: the highest one whose
#: PTX is not for itself alone (as that of sm_90a is). Its kernels need no more shared memory than any newer card has.
PTX = "sm_89"


@dataclass(frozen=True)
class Job:
    """One kernel for one architecture."""

    spec: KernelSpec
    kind: str
    arch: str


@dataclass(frozen=True)
class Made:
    """What became of a job: the file's content, or why the architecture cannot hold the kernel."""

    job: Job
    content: bytes
    refusal: str
    seconds: float


def make(job: Job) -> Made:
    """Compile it. What an architecture cannot hold (too much shared memory, say) is a refusal, anything else raises."""
    from tile_ops.kernel.kernels import Unsupported, build

    begin = time.perf_counter()
    try:
        artifact = build(job.spec, job.kind, job.arch, ptx=job.arch == PTX)
    except Unsupported as error:
        return Made(job, b"", str(error).splitlines()[0], time.perf_counter() - begin)
    return Made(job, artifact.stripped().to_bytes(), "", time.perf_counter() - begin)


def jobs(kind: str, archs: Sequence[str], names: Sequence[str]) -> list[Job]:
    """Every kernel of the families for every architecture."""
    known = {family.name: family for family in families()}
    unknown = sorted(set(names) - known.keys())
    if unknown:
        raise SystemExit(f"no family {unknown[0]}; these are: {', '.join(known)}")
    specs = dict.fromkeys(spec for name in names or known for spec in known[name].shipped(kind))  # some families share
    return [Job(spec, kind, arch) for arch in archs for spec in specs]


def prebuild(folder: Path, work: Sequence[Job], processes: int = 1) -> list[Made]:
    """Compile everything into `folder`; returns what was refused."""
    entries = _kept(folder)
    refused = []
    for made in _all(work, processes):
        job, key = made.job, made.job.spec.key(made.job.arch)
        entries.pop(key, None)
        if made.refusal:
            print(f"{job.arch} {job.spec}: left out, {made.refusal}", flush=True)
            refused.append(made)
            continue
        file = f"{job.arch}/{job.spec.function}-{key[:16]}.tile"
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(made.content)
        entries[key] = {
            "file": file,
            "sha256": hashlib.sha256(made.content).hexdigest(),
            "source": job.spec.source_digest(),
            "family": job.spec.family,
            "spec": str(job.spec),
            "arch": job.arch,
        }
        _write_index(folder, entries)  # after each kernel: a run that is cut off leaves what it has
        print(f"{job.arch} {job.spec}: {len(made.content) / 1024:.0f} KiB in {made.seconds:.1f} s", flush=True)
    known = {entry["file"] for entry in entries.values()}
    for path in folder.rglob("*.tile"):
        if path.relative_to(folder).as_posix() not in known:
            path.unlink()
    _write_index(folder, entries)
    return refused


def _all(work: Sequence[Job], processes: int) -> Iterator[Made]:
    if processes == 1:
        yield from map(make, work)
        return
    # Fresh processes: TVM's threads do not survive a fork.
    with concurrent.futures.ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(make, work)


def _kept(folder: Path) -> dict[str, dict[str, Any]]:
    """What the folder has of this version, as far as its families' kernels are still those it was made from."""
    try:
        index = json.loads((folder / INDEX).read_text())
    except FileNotFoundError:
        return {}
    if (index["format"], index["version"]) != (FORMAT, tile_ops.__version__):
        return {}
    current = {family.name: family.source_digest() for family in families()}
    return {key: e for key, e in index["kernels"].items() if e["source"] == current.get(e["family"])}


def _write_index(folder: Path, entries: dict[str, dict[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    index = {"format": FORMAT, "version": tile_ops.__version__, "kernels": dict(sorted(entries.items()))}
    write_atomically(folder / INDEX, json.dumps(index, indent=1).encode())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    every = [arch for archs in ARCHS.values() for arch in archs]
    parser.add_argument("--arch", action="append", choices=every, help="only these architectures")
    parser.add_argument("--family", action="append", help="only these families")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    for kind, archs in ARCHS.items():
        chosen = [arch for arch in archs if arch in (given.arch or every)]
        if not chosen:
            continue
        folder = given.folder / PACKAGES[kind]
        work = jobs(kind, chosen, given.family or [])
        refused = prebuild(folder, work, given.processes)
        size = sum(path.stat().st_size for path in folder.rglob("*.tile")) / 2**20
        print(
            f"{folder}: {len(work) - len(refused)} kernels made, {len(refused)} left out, {size:.1f} MiB in all",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
