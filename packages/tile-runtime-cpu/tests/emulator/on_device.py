"""The same tests on hardware. Every launch of the instruction, type and kernel tests is packed with what the emulator gave:

    python packages/tile-runtime-cpu/tests/emulator/on_device.py pack FOLDER                # here, no GPU: NVRTC
    python packages/tile-runtime-cpu/tests/emulator/on_device.py run FOLDER [--json FILE]   # there: numpy, a driver

`run` needs the sources of tile-runtime and tile-runtime-cuda on PYTHONPATH, neither compiler nor emulator. It compares bit for
bit (any NaN is a NaN) and lists what differs; sums of random floats and approximate functions may, by rounding.

What the header does for an older architecture runs on a newer device as PTX, which the driver compiles. `older` leaves of
a packed folder the launches whose texts that architecture has everything for, as its PTX:

    python packages/tile-runtime-cpu/tests/emulator/on_device.py older FOLDER --arch sm_75             # no GPU: NVRTC

With nvcc on the machine of the GPU the tests can also run there as they are:

    TILELANG_TEST_DEVICE=cuda python -m pytest packages/tile-runtime-cpu/tests/emulator -k "instructions or types or kernels"

A launch that the emulator refuses for its coordinates is packed too: there the device must refuse it.

What only an emulator can know (findings, counters) is not asked of hardware: `only_emulated` skips those tests. This is how
the header's inline assembly and the emulator's reading of the manual are held together.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import functools
import hashlib
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tile_runtime.tensor_map import BYTES, TensorMap

HERE = Path(__file__).resolve().parent
INCLUDE = HERE.parents[2] / "tile-compiler" / "src" / "tile_compiler" / "targets" / "cuda" / "include"
TESTS = "(instructions or types or arithmetic or atomics or kernels or copies or clusters or wgmma) and not hip"
_SCALARS: dict[str, Any] = {
    "int": ctypes.c_int32,
    "unsigned": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}
#: Relative to the largest value: what rounding may do to sums of random floats and to approximate functions.
TOLERANCE = 2e-3


def parameter_types(source: str, symbol: str) -> list[str]:
    """The C types of a kernel's parameters."""
    parameters = re.search(rf"\b{symbol}\(([^)]*)\)", source)
    assert parameters is not None, symbol
    return [" ".join(p.split()[:-1]).removeprefix("const ") for p in parameters[1].split(",") if p.strip()]


@dataclasses.dataclass
class Region:
    """Memory of a launch: its bytes before, and how to compare them afterwards."""

    address: int
    before: bytes
    dtype: str
    writable: bool


@dataclasses.dataclass
class Case:
    """One launch. `args`: ["at", region, offset], ["number", C type, value] or ["map", region, offset, fields]."""

    symbol: str
    grid: Sequence[int]
    block: Sequence[int]
    cluster: Sequence[int]
    shared: int
    args: list[list[Any]]


def case_of(
    source: str, symbol: str, grid: Any, block: Any, shared: int, args: Any, options: Any
) -> tuple[Case, list[Region]]:
    """A launch of the tests as data, with its memory as it is now."""
    dtypes = {a.ctypes.data: str(a.dtype) for a in args if isinstance(a, np.ndarray)}
    dtypes |= {a.address: a.dtype for a in args if isinstance(a, TensorMap)}
    memory = [(a.ctypes.data, a.nbytes, "", a.flags.writeable) for a in args if isinstance(a, np.ndarray)]
    buffers = options.get("buffers")
    regions = [
        Region(at, ctypes.string_at(at, size), dtypes.get(at, "uint8"), bool(writable))
        for at, size, _, writable, *_ in (memory if buffers is None else buffers)
    ]

    def place(address: int) -> list[int]:
        for i, r in enumerate(regions):
            if r.address <= address < r.address + max(1, len(r.before)):
                return [i, address - r.address]
        raise ValueError(f"{symbol}: an argument is in none of the buffers")

    described: list[list[Any]] = []
    for kind, value in zip(parameter_types(source, symbol), args):
        if isinstance(value, TensorMap):
            described.append(["map", *place(value.address), dataclasses.asdict(value)])
        elif isinstance(value, np.ndarray):
            described.append(["at", *place(value.ctypes.data)])
        else:
            described.append(["number", kind, float(value) if kind in ("float", "double") else int(value)])
    three = [[*extents, 1, 1][:3] for extents in (grid, block, options.get("cluster", (1, 1, 1)))]
    return Case(symbol, *three, shared, described), regions


class Recorder:
    """Stands in for EmulatedModule in the tests: keeps each launch that the emulator found nothing wrong with, and those
    with a fault that a device is known to refuse."""

    REFUSED = ("bad-coordinates",)

    def __init__(self, module: Any, folder: Path) -> None:
        self._module, self._folder = module, folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def launch(self, symbol: str, grid: Any, block: Any, shared: int, args: Any, **options: Any) -> Any:
        source = self._module.source
        case, regions = case_of(source, symbol, grid, block, shared, args, options)
        report = self._module.launch(symbol, grid, block, shared, args, **options)
        text = json.dumps([source, dataclasses.asdict(case)]).encode()
        key = hashlib.sha256(b"".join([text, *(r.before for r in regions)])).hexdigest()[:24]
        refused = report.errors[0].kind if report.errors and report.errors[0].kind in self.REFUSED else ""
        if (report.ok or refused) and not (self._folder / f"{key}.npz").exists():
            name = hashlib.sha256(source.encode()).hexdigest()[:24]
            (self._folder / f"{name}.cu").write_text(source)
            arrays = {f"before{i}": np.frombuffer(r.before, "u1") for i, r in enumerate(regions)}
            after = [ctypes.string_at(r.address, len(r.before)) for r in regions]
            arrays |= {
                f"after{i}": np.frombuffer(a, "u1") for i, (a, r) in enumerate(zip(after, regions)) if r.writable
            }
            np.savez(self._folder / f"{key}.npz", **arrays)
            entry = {
                "test": os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[2].partition(" (")[0],
                "source": name,
                "case": dataclasses.asdict(case),
                "dtypes": [r.dtype for r in regions],
                "refused": refused,
            }
            (self._folder / f"{key}.json").write_text(json.dumps(entry))
        return report


@functools.lru_cache
def headers() -> dict[str, str]:
    return {str(p.relative_to(INCLUDE).as_posix()): p.read_text() for p in sorted(INCLUDE.rglob("*.cuh"))}


def pack(folder: Path) -> None:
    """Run the tests in the emulator, keep their launches, build their texts."""
    import pytest

    from tile_runtime_cuda.build import build

    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TILELANG_TEST_DEVICE"], os.environ["TILELANG_TEST_RECORD"] = "record", str(folder.resolve())
    status = pytest.main([str(HERE), "-q", "-k", TESTS, "-p", "no:cacheprovider"])
    if status:
        raise SystemExit("the tests must pass in the emulator first")
    texts = sorted(folder.glob("*.cu"))
    for path in texts:
        path.with_suffix(".cubin").write_bytes(build(path.read_text(), arch="sm_90a", headers=headers()).data)
    print(f"{len(list(folder.glob('*.json')))} launches of {len(texts)} texts packed")


def older(folder: Path, arch: str) -> None:
    """PTX of an older architecture in the place of the cubins."""
    from tile_runtime_cuda.build import BuildError, build

    for path in sorted(folder.glob("*.cu")):
        binary = path.with_suffix(".cubin")
        try:
            ptx = build(path.read_text(), arch=arch, headers=headers()).ptx
        except BuildError:  # a function or an operand that this architecture lacks
            binary.unlink(missing_ok=True)
        else:  # the compiler may be newer than the driver, which refuses its version; none of the instructions is new
            binary.write_bytes(re.sub(rb"\.version \d+\.\d+", b".version 8.0", ptx, count=1))
    for path in folder.glob("*.json"):
        if not (folder / f"{json.loads(path.read_text())['source']}.cubin").exists():
            path.unlink()
    print(f"{len(list(folder.glob('*.json')))} launches of {len(list(folder.glob('*.cubin')))} texts are PTX of {arch}")


class Gpu:
    """The first device, through the driver of tile-runtime-cuda."""

    def __init__(self) -> None:
        from tile_runtime_cuda.driver import Driver

        self.driver = Driver()
        assert self.driver.device_count()
        self.driver.use_device(0)

    @contextmanager
    def memory(self, contents: Sequence[bytes]) -> Iterator[list[int]]:
        """Copies of the contents on the device, at addresses that are multiples of 256."""
        places: list[ctypes.c_uint64] = []
        for data in contents:
            place = ctypes.c_uint64()
            self.driver._call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(max(1, len(data))))
            if data:
                self.driver._call("cuMemcpyHtoD_v2", place, ctypes.c_char_p(data), ctypes.c_size_t(len(data)))
            places.append(place)
        try:
            yield [p.value for p in places]
        finally:
            for place in places:
                self.driver._call("cuMemFree_v2", place)

    def run(self, cubin: bytes, case: Case, contents: Sequence[bytes]) -> list[bytes]:
        """The contents after the launch. RuntimeError is the driver's."""
        from tile_runtime_cuda.packing import CONFIG

        library = self.driver.load(cubin)
        kernel = self.driver.kernel(library, case.symbol)
        if case.shared > 48 << 10:
            self.driver.allow_shared(kernel, case.shared, 0)
        attribute = ctypes.create_string_buffer(struct.pack("<I4x3I52x", 4, *case.cluster))  # cluster dimension
        count = int(tuple(case.cluster) != (1, 1, 1))
        where = ctypes.addressof(attribute) if count else 0
        config = ctypes.create_string_buffer(struct.pack(CONFIG, *case.grid, *case.block, case.shared, 0, where, count))
        with self.memory(contents) as places:
            cells = [self._cell(arg, places) for arg in case.args]
            pointers = (ctypes.c_void_p * max(1, len(cells)))(*[c[1] for c in cells])
            status = self.driver.launch(ctypes.addressof(config), kernel, ctypes.addressof(pointers), 0)
            if status:
                raise RuntimeError(f"cuLaunchKernelEx: {self.driver.words(status)}")
            self.driver.synchronize()
            after = []
            for place, data in zip(places, contents):
                out = ctypes.create_string_buffer(max(1, len(data)))
                if data:
                    self.driver._call("cuMemcpyDtoH_v2", out, ctypes.c_uint64(place), ctypes.c_size_t(len(data)))
                after.append(out.raw[: len(data)])
        self.driver.unload(library)
        return after

    def _cell(self, arg: list[Any], places: list[int]) -> tuple[Any, int]:
        """What holds an argument, and its address."""
        kind, *rest = arg
        if kind == "number":
            number = _SCALARS[rest[0]](rest[1])
            return number, ctypes.addressof(number)
        if kind == "at":
            pointer = ctypes.c_uint64(places[rest[0]] + rest[1])
            return pointer, ctypes.addressof(pointer)
        fields = {k: tuple(v) if isinstance(v, list) else v for k, v in rest[2].items()}
        data = self.driver.encode_tensor_map(TensorMap(**{**fields, "address": places[rest[0]] + rest[1]}))
        memory = ctypes.create_string_buffer(BYTES + 64)
        place = ctypes.addressof(memory) + -ctypes.addressof(memory) % 64
        ctypes.memmove(place, data, BYTES)
        return memory, place


class DeviceModule:
    """Stands in for EmulatedModule, built by nvcc. Its reports are empty; an error of the driver raises."""

    def __init__(self, source: str, arch: str = "sm_90a") -> None:
        self.source, self._gpu = source, Gpu()
        with tempfile.TemporaryDirectory() as folder:
            text, cubin = Path(folder, "kernel.cu"), Path(folder, "kernel.cubin")
            text.write_text(source)
            subprocess.run(["nvcc", f"-arch={arch}", "-cubin", f"-I{INCLUDE}", str(text), "-o", str(cubin)], check=True)
            self._cubin = cubin.read_bytes()

    def launch(self, symbol: str, grid: Any, block: Any, shared: int, args: Any, **options: Any) -> Any:
        """Copy memory in, run, copy it back."""
        from tile_runtime_cpu.emulator import Report

        case, regions = case_of(self.source, symbol, grid, block, shared, args, options)
        for region, data in zip(regions, self._gpu.run(self._cubin, case, [r.before for r in regions])):
            if region.writable:
                ctypes.memmove(region.address, data, len(data))
        return Report([], {})


def difference(have: bytes, want: bytes, dtype: str) -> float:
    """0 for equal bits (any NaN equals any); of floats the largest difference relative to the largest value; else infinity."""
    if have == want:
        return 0.0
    if not dtype.startswith(("float", "bfloat", "tfloat")):
        return float("inf")
    if dtype == "bfloat16":
        a, b = ((np.frombuffer(x, "u2").astype("u4") << 16).view("f4").astype("f8") for x in (have, want))
    else:
        kind = {"tfloat32": "float32"}.get(dtype, dtype)
        if kind not in ("float16", "float32", "float64"):
            return float("inf")
        a, b = (np.frombuffer(x, kind).astype("f8") for x in (have, want))
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        return float("inf")
    a, b = np.nan_to_num(a), np.nan_to_num(b)
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))


def compared(path: Path) -> dict[str, Any]:
    """One packed launch on the device: how far its results are from the emulator's."""
    entry = json.loads(path.read_text())
    with np.load(path.with_suffix(".npz")) as packed:
        data = dict(packed)
    contents = [data[f"before{i}"].tobytes() for i in range(len(entry["dtypes"]))]
    cubin = (path.parent / f"{entry['source']}.cubin").read_bytes()
    worst, said = 0.0, ""
    try:
        after = Gpu().run(cubin, Case(**entry["case"]), contents)
    except Exception as error:
        worst, said = 0.0 if entry["refused"] else float("inf"), str(error)
    else:
        if entry["refused"]:
            worst, said = float("inf"), f"done, but the emulator says {entry['refused']}"
        for i, dtype in enumerate(entry["dtypes"]):
            if f"after{i}" in data:
                worst = max(worst, difference(after[i], data[f"after{i}"].tobytes(), dtype))
    verdict = "exact" if worst == 0 else "close" if worst < TOLERANCE else "WRONG"
    return {"test": entry["test"], "key": path.stem, "verdict": verdict, "difference": worst, "error": said}


def one_after_another(paths: Sequence[Path]) -> None:
    """Prints the verdict on each launch, as JSON, up to the first that the device refuses: it takes the context with it."""
    for path in paths:
        verdict = compared(path)
        print(json.dumps(verdict), flush=True)
        if verdict["error"]:
            return


def isolated(paths: Sequence[Path], seconds: float = 60.0) -> list[dict[str, Any]]:
    """`compared` in processes of their own, a new one after each launch that fails; one may hang."""
    verdicts: list[dict[str, Any]] = []
    while len(verdicts) < len(paths):
        rest = paths[len(verdicts) :]
        try:
            command = [sys.executable, __file__, "some", *map(str, rest)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
            said, why = done.stdout, f"the process ended with {done.returncode}: {done.stderr[-200:]}"
        except subprocess.TimeoutExpired as late:
            said, why = (late.stdout or b"").decode(), f"no answer within {seconds:.0f} s"
        found = [json.loads(line) for line in said.splitlines() if line.endswith("}")]
        if len(found) < len(rest) and not (found and found[-1]["error"]):  # it ended at the next launch
            path = rest[len(found)]
            test = json.loads(path.read_text())["test"]
            verdict = {"test": test, "key": path.stem, "verdict": "WRONG", "difference": float("inf"), "error": why}
            found.append(verdict)
        verdicts += found
    return verdicts


def run(folder: Path, report: Path | None, launch: Any = isolated) -> None:
    """Launch everything on the device and compare; `launch` gives the verdicts on some of them."""
    paths = sorted(folder.glob("*.json"))
    parts = min(len(paths), os.cpu_count() or 1)
    with ThreadPoolExecutor(parts) as pool:
        lines = [verdict for found in pool.map(launch, (paths[i::parts] for i in range(parts))) for verdict in found]
    for line in lines:
        if line["verdict"] == "WRONG":
            print(f"WRONG {line['test']} ({line['key']}): {line['error'] or line['difference']}")
    for verdict in ("exact", "close", "WRONG"):
        print(f"{verdict}: {sum(line['verdict'] == verdict for line in lines)} of {len(lines)}")
    for line in sorted(lines, key=lambda x: -x["difference"]):
        if line["verdict"] == "close":
            print(f"  close {line['test']}: {line['difference']:.1e}")
    if report is not None:
        report.write_text(json.dumps(lines, indent=1).replace("Infinity", '"infinity"'))
    sys.exit(any(line["verdict"] == "WRONG" for line in lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = ("pack", "older", "run", "some")
    parser.add_argument("action", choices=actions, help="some: packed launches, to their first failure")
    parser.add_argument("folder", type=Path, nargs="+")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--arch", default="sm_75")
    chosen = parser.parse_args()
    if chosen.action == "some":
        one_after_another(chosen.folder)
    elif chosen.action == "pack":
        pack(chosen.folder[0])
    elif chosen.action == "older":
        older(chosen.folder[0], chosen.arch)
    else:
        run(chosen.folder[0], chosen.json)
