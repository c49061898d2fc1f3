"""Compiles the kernels that wheels ship: `python -m tile_ops.prebuild FOLDER [--arch ARCH] [--family NAME]`.

For each vendor FOLDER gets a package of data (`cpu/tile_ops_prebuilt_cpu`, ...): `<arch>/<function>-<key>.tile.xz` and
`index.json` (kernel/prebuilt.py). No device is needed, the compiler is. Each file holds all variants of its kernel, so that
any call is served where there is no compiler, and neither source nor report. Binaries that a newer architecture runs as
they are serve it too (docs/decisions/0017-prebuilt-binaries.md).

A run goes on where one before it ended: what the same compiler made of the same text of a kernel is not made again, what is
of an older text is removed. So is what no plan asks for any more, by a run for all architectures of a vendor.

A kernel that the device's compiler spills or serializes (SlowDeviceCode, TL210) is a fault of the library: the run names each
with its spec, goes on, and fails at its end. The index keeps what was said of a kernel, so that later runs fail as well.
One that the compiler refuses for another reason than the architecture is a fault, too: it is named the same way.
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
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tile_ops
from tile_ops.family import families
from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.prebuilt import FORMAT, INDEX, SUFFIX, packed
from tile_ops.kernel.spec import source_digest
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
#: What compiles and launches for a kind, beside the compiler.
RUNTIMES = {"cpu": "tile_runtime_cpu", "cuda": "tile_runtime_cuda", "hip": "tile_runtime_rocm"}
#: The architecture whose kernels carry PTX, which drivers compile for cards newer than any of these: the highest one whose
#: PTX is not for itself alone (as that of sm_90a is). Its kernels need no more shared memory than any newer card has.
PTX = "sm_89"
#: The warning SlowDeviceCode (docs/errors.md).
SLOW = "TL210"


@dataclass(frozen=True)
class Job:
    """One kernel for one architecture; `serves` are others whose plans take the same binary."""

    spec: KernelSpec
    kind: str
    arch: str
    serves: tuple[str, ...] = ()


@dataclass(frozen=True)
class Made:
    """What became of a job: the file's content and the architectures that it is for; for the others, why not; what of it is
    slow. `failure`: what the compiler says of a kernel that it should have compiled."""

    job: Job
    content: bytes
    archs: tuple[str, ...]
    refusals: tuple[tuple[str, str], ...]
    seconds: float
    slow: tuple[str, ...] = ()
    failure: str = ""


def make(job: Job) -> Made:
    """Compile it. What an architecture cannot hold (too much shared memory, say) is a refusal, what else the compiler says of
    it a failure."""
    from tile_ops.kernel.kernels import Refused, Unsupported, build, check_holds

    begin = time.perf_counter()
    asked = (job.arch, *job.serves)
    refusals: dict[str, str] = {}
    content = b""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            artifact = build(job.spec, job.kind, job.arch, ptx=PTX in asked)
            content = packed(artifact.stripped().to_bytes())
        except Unsupported as error:
            refusals = dict.fromkeys(asked, str(error).splitlines()[0])
        except Refused as error:
            return Made(job, b"", (), (), time.perf_counter() - begin, failure=str(error))
    slow = [w for w in said if getattr(w.category, "code", "") == SLOW]
    for other in (w for w in said if w not in slow):
        warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
    for arch in job.serves if content else ():
        try:
            check_holds(artifact, job.kind, arch)
        except Unsupported as error:
            refusals[arch] = str(error)
    archs = tuple(arch for arch in asked if arch not in refusals)
    notes = tuple(dict.fromkeys(str(w.message).splitlines()[0] for w in slow))
    return Made(job, content, archs, tuple(refusals.items()), time.perf_counter() - begin, notes)


def jobs(kind: str, archs: Sequence[str], names: Sequence[str]) -> list[Job]:
    """Every kernel that the families ship for these architectures, each compiled for the oldest one whose binaries the
    others run; a CPU's levels each have their own."""
    known = {family.name: family for family in families()}
    unknown = sorted(set(names) - known.keys())
    if unknown:
        raise SystemExit(f"no family {unknown[0]}; these are: {', '.join(known)}")
    found: dict[tuple[KernelSpec, str], list[str]] = {}
    for arch in archs:
        target = Target(kind, arch)
        older = [other for other in archs if other in target.runs()] if kind == "cuda" else [arch]
        for spec in dict.fromkeys(spec for name in names or known for spec in known[name].shipped(target)):
            made_for = next((other for other in older if (spec, other) in found), arch)
            found.setdefault((spec, made_for), []).append(arch)
    return [Job(spec, kind, arch, tuple(a for a in served if a != arch)) for (spec, arch), served in found.items()]


class Package:
    """A folder of kernels with its index, as it is filled."""

    def __init__(self, folder: Path, toolchain: str) -> None:
        self.folder = folder
        self.toolchain = toolchain
        self.entries = _kept(folder)

    def has(self, job: Job) -> bool:
        """Whether this compiler has made the kernel, for all that it serves."""
        for arch in (job.arch, *job.serves):
            entry = self.entries.get(job.spec.key(arch))
            if entry is None or (entry["arch"], entry["toolchain"]) != (job.arch, self.toolchain):
                return False
            if hashlib.sha256((self.folder / entry["file"]).read_bytes()).hexdigest() != entry["sha256"]:
                return False
        return True

    def add(self, made: Made) -> None:
        """Write a kernel, and the index: a run that is cut off leaves what it has."""
        job = made.job
        for arch in (job.arch, *job.serves):
            self.entries.pop(job.spec.key(arch), None)
        if not made.archs:
            return
        file = f"{job.arch}/{job.spec.function}-{job.spec.key(job.arch)[:16]}{SUFFIX}"
        (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / file, made.content)
        for arch in made.archs:
            self.entries[job.spec.key(arch)] = {
                "file": file,
                "sha256": hashlib.sha256(made.content).hexdigest(),
                "source": job.spec.source_digest(),
                "toolchain": self.toolchain,
                "family": job.spec.family,
                "function": job.spec.function,
                "spec": str(job.spec),
                "arch": job.arch,
                **({"slow": made.slow} if made.slow else {}),
            }
        self.write_index()

    def keep(self, work: Sequence[Job], names: Sequence[str]) -> None:
        """Forget the kernels of these families (none: of all) that are not in `work`."""
        wanted = {job.spec.key(arch) for job in work for arch in (job.arch, *job.serves)}
        others = {entry["family"] for entry in self.entries.values()} - set(names) if names else set()
        self.entries = {key: e for key, e in self.entries.items() if key in wanted or e["family"] in others}

    def slow(self) -> list[str]:
        """What the device's compiler spills or serializes, each kernel once."""
        notes = (f"{e['arch']} {e['spec']}: {note}" for e in self.entries.values() for note in e.get("slow", ()))
        return list(dict.fromkeys(notes))

    def clean(self) -> None:
        """Remove files that the index does not name."""
        known = {entry["file"] for entry in self.entries.values()}
        for path in self.folder.rglob(f"*{SUFFIX}"):
            if path.relative_to(self.folder).as_posix() not in known:
                path.unlink()
        self.write_index()

    def write_index(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        index = {
            "format": FORMAT,
            "version": tile_ops.__version__,
            "texts": {family.name: family.text_digest() for family in families()},
            "kernels": dict(sorted(self.entries.items())),
        }
        write_atomically(self.folder / INDEX, json.dumps(index, indent=1).encode())


def prebuild(
    folders: Mapping[str, Path],
    work: Sequence[Job],
    processes: int = 1,
    minutes: float = float("inf"),
    whole: Mapping[str, Sequence[str]] | None = None,
) -> list[Made]:
    """Compile what is not in the folders, of which each kind has its own; returns what was refused or failed. After `minutes`
    no kernel is begun. `whole`: the kinds, and families of them (none: all), of which `work` is everything; other kernels of
    these are removed."""
    packages = {kind: Package(folder, compiler_digest(kind)) for kind, folder in folders.items()}
    for kind, names in (whole or {}).items():
        packages[kind].keep([job for job in work if job.kind == kind], names)
    missing = [job for job in work if not packages[job.kind].has(job)]
    if len(missing) < len(work):
        print(f"{len(work) - len(missing)} of {len(work)} kernels are there", flush=True)
    refused, begin = [], time.monotonic()
    for number, made in enumerate(_all(missing, processes, begin + 60 * minutes), 1):
        job = made.job
        packages[job.kind].add(made)
        for arch, why in made.refusals:
            print(f"{arch} {job.spec}: left out, {why}", flush=True)
        for note in made.slow:
            print(f"{job.arch} {job.spec}: slow, {note}", flush=True)
        if made.failure:
            print(f"FAILED {job.arch} {job.spec}: {made.failure}", flush=True)
        if made.refusals or made.failure:
            refused.append(made)
        if made.archs:
            left = (time.monotonic() - begin) / number * (len(missing) - number) / 60
            print(
                f"[{number}/{len(missing)}, {left:.0f} min left] {', '.join(made.archs)} {job.spec}: "
                f"{len(made.content) / 1024:.0f} KiB in {made.seconds:.1f} s",
                flush=True,
            )
    for package in packages.values():
        package.clean()
    return refused


def _all(work: Sequence[Job], processes: int, end: float) -> Iterator[Made]:
    """Each as it is done."""
    if processes == 1:
        for job in work:
            if time.monotonic() < end:
                yield make(job)
        return
    # Fresh processes: TVM's threads do not survive a fork.
    with concurrent.futures.ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        todo = iter(work)
        running = {pool.submit(make, job) for _, job in zip(range(processes), todo, strict=False)}
        while running:
            done, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                following = next(todo, None)
                if following is not None and time.monotonic() < end:
                    running.add(pool.submit(make, following))
                yield future.result()


def compiler_digest(kind: str) -> str:
    """sha256 of the files and versions of everything that turns a kernel into a binary for a kind of target: language,
    compiler, runtimes, without what is for the other kinds alone."""
    import importlib.metadata
    import importlib.util

    digest = hashlib.sha256()
    others = tuple(f"targets/{other}/" for other in ARCHS if other != kind)
    for package in ("tilelang", "tile_compiler", "tile_runtime", RUNTIMES[kind]):
        found = importlib.util.find_spec(package)
        for place in (found.submodule_search_locations or ()) if found is not None else ():
            for path in sorted(p for p in Path(place).rglob("*") if p.suffix in (".py", ".h", ".cuh", ".ll")):
                name = path.relative_to(place).as_posix()
                if not name.startswith(others):
                    digest.update(f"{package} {name}\0".encode() + path.read_bytes())
    for name in ("apache-tvm", "nvidia-cuda-nvrtc", "ziglang"):
        try:
            digest.update(f"{name} {importlib.metadata.version(name)}\0".encode())
        except importlib.metadata.PackageNotFoundError:
            continue
    return digest.hexdigest()


def _kept(folder: Path) -> dict[str, dict[str, Any]]:
    """What the folder has of this version, as far as the text that wrote the kernels is still what it was."""
    try:
        index = json.loads((folder / INDEX).read_text())
    except FileNotFoundError:
        return {}
    if (index["format"], index["version"]) != (FORMAT, tile_ops.__version__):
        return {}
    known = {family.name for family in families()}
    entries: dict[str, dict[str, Any]] = index["kernels"]
    return {
        key: e
        for key, e in entries.items()
        if e["family"] in known
        and e["source"] == source_digest(e["family"], e.get("function", ""))
        and (folder / e["file"]).exists()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if a kernel does not compile, or one in the folder is slow."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    every = [arch for archs in ARCHS.values() for arch in archs]
    parser.add_argument("--arch", action="append", choices=every, help="only these architectures")
    parser.add_argument("--family", action="append", help="only these families")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="begin no kernel later; the next run goes on"
    )
    given = parser.parse_args(arguments)
    work = []
    for kind, archs in reversed(ARCHS.items()):
        work += jobs(kind, [arch for arch in archs if arch in (given.arch or every)], given.family or [])
    folders = {kind: given.folder / PACKAGES[kind] for kind in ARCHS if any(job.kind == kind for job in work)}
    asked = given.arch or every
    whole = {kind: given.family or [] for kind in folders if set(ARCHS[kind]) <= set(asked)}
    refused = prebuild(folders, work, given.processes, given.minutes, whole)
    for folder in folders.values():
        files = list(folder.rglob(f"*{SUFFIX}"))
        print(
            f"{folder}: {len(files)} kernels, {sum(path.stat().st_size for path in files) / 2**20:.1f} MiB", flush=True
        )
    failed = [made for made in refused if made.failure]
    print(f"{len(refused) - len(failed)} kernels left out of an architecture", flush=True)
    for made in failed:
        print(f"FAILED {made.job.arch} {made.job.spec}: {made.failure.splitlines()[0]}", flush=True)
    slow = [note for folder in folders.values() for note in Package(folder, "").slow()]
    for note in slow:
        print(f"SLOW {note}", flush=True)
    return int(bool(failed or slow))


if __name__ == "__main__":
    sys.exit(main())
