"""What a call costs before the kernel runs: plain and prepared, with 4 and with 19 tensors.

    python benchmarks/launch.py                              # here: on the GPU, or without one on a driver that does nothing
    python benchmarks/launch.py pack FOLDER [--arch sm_90]   # artifacts for a machine without the compiler
    python benchmarks/launch.py run FOLDER [--json FILE]     # there

The kernel does nothing; all checks are made. Beside it on a GPU: the driver's launch alone, by a loop of machine code;
`torch.add(out=)`; Triton where it is installed. Without a GPU the figures are those of the launcher alone: tensors lie in
host memory, and the driver's function is two instructions.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from paired import paired

from tile_runtime.artifact import Artifact
from tile_runtime.manifest import Manifest

COUNTS = (4, 19)
EXTENT = 1024
NOTHING = b"\x31\xc0\xc3"  # xor eax, eax; ret
KDL_CPU = 1
MAJOR, MINOR = 75, 76  # of the compute capability, as CUdevice_attribute numbers them
DRIVER, BATCH = "cuLaunchKernelEx alone", 100  # so many launches to a turn of the loop below
#: void loop(long n, f, a, b, c): n times f(a, b, c, 0), for n > 0; the calling convention of x86-64 but for Windows.
LOOP = bytes.fromhex(
    "53 4154 4155 4156 4157"  # push rbx, r12, r13, r14, r15
    "4889fb 4989f4 4989d5 4989ce 4d89c7"  # mov rbx, rdi; r12, rsi; r13, rdx; r14, rcx; r15, r8
    "4c89ef 4c89f6 4c89fa 31c9 41ffd4"  # again: mov rdi, r13; rsi, r14; rdx, r15; xor ecx, ecx; call r12
    "48ffcb 75ed"  # dec rbx; jnz again
    "415f 415e 415d 415c 5b c3"  # pop r15, r14, r13, r12, rbx; ret
)


def pack(folder: Path, arch: str) -> None:
    """An artifact for each number of tensors, as the compiler makes them: guarded, with a native entry."""
    from tile_compiler.compile import with_native_entry
    from tile_runtime import registry

    device: Any = registry.device("cuda")
    folder.mkdir(parents=True, exist_ok=True)
    for count in COUNTS:
        names = [f"A{i}" for i in range(count)]
        parameters = ", ".join(f"float *{name}" for name in names)
        text = f'extern "C" __global__ void nothing({parameters}, int n) {{}}\n'
        launch = {
            "binary": "kernel.cubin",
            "symbol": "nothing",
            "grid": [["ceildiv", ["dim", "n"], EXTENT], 1, 1],
            "block": [32, 1, 1],
            "shared": 0,
            "args": [*(["param", name] for name in names), ["value", "int32", ["dim", "n"]]],
        }
        aligned = ["and", *(["==", ["floormod", ["address", name], 16], 0] for name in names)]
        manifest = Manifest.from_json(
            {
                "format": 1,
                "name": "nothing",
                "target": {"kind": "cuda", "arch": arch},
                "params": [
                    {"name": n, "kind": "tensor", "dtype": "float32", "shape": [["dim", "n"]], "access": "rw"}
                    for n in names
                ],
                "dims": [{"name": "n", "param": "A0", "axis": 0}],
                "variants": [{"guard": aligned, "launches": [launch]}],
                "binaries": [{"file": "kernel.cubin", "kind": "cubin"}],
            }
        )
        cubin = device.build(text, arch=arch).data
        with_native_entry(Artifact(manifest, {"kernel.cubin": cubin})).save(folder / f"{count}.tile")


def contenders(artifact: Artifact, count: int) -> dict[str, Callable[[], object]]:
    """The calls to time, on this machine's GPU or on a driver that does nothing."""
    gpu = torch.cuda.is_available()
    kernel = on_gpu(artifact) if gpu else on_nothing(artifact)
    tensors = [torch.zeros(EXTENT, device="cuda" if gpu else "cpu") for _ in range(count)]
    found: dict[str, Callable[[], object]] = {}
    if kernel._native is not None:
        launch = kernel._launch
        prepared = kernel.prepare(*tensors) if gpu else kernel._native.prepared(_refuse, [EXTENT], [])
        found |= {"plain": lambda: launch(*tensors), "prepared": lambda: prepared(*tensors)}
    if not gpu:
        return found
    python = kernel._namespace["launch"]
    found["plain, Python launcher"] = lambda: python(*tensors)
    if platform.machine() == "x86_64":
        found[DRIVER] = driver_alone(kernel._namespace, tensors)
    if count == COUNTS[0]:
        a, b, c = tensors[:3]
        found["torch.add(out=)"] = lambda: torch.add(a, b, out=c)
    triton = triton_call(tensors)
    return {**found, "Triton": triton} if triton is not None else found


def driver_alone(namespace: dict[str, Any], tensors: list[torch.Tensor]) -> Callable[[], object]:
    """`BATCH` launches of the configuration that the Python launcher has filled in, and nothing else."""
    namespace["launch"](*tensors)
    slot = namespace["free0"][-1]
    launch = ctypes.cast(namespace["cu_launch"], ctypes.c_void_p).value
    return lambda: looped(BATCH, launch, slot.config, namespace["fn0"], slot.params)


def looped(n: int, function: int | None, a: int, b: int, c: int) -> None:
    """`function(a, b, c, 0)`, n > 0 times, without Python between them."""
    ctypes.CFUNCTYPE(None, ctypes.c_long, *[ctypes.c_void_p] * 4)(_loop().address)(n, function, a, b, c)


@functools.cache
def _loop() -> Any:
    from tile_runtime.memory import map_code

    return map_code(LOOP)


def on_gpu(artifact: Artifact) -> Any:
    from tile_runtime import registry
    from tile_runtime.errors import DeviceNotFound

    try:
        device: Any = registry.device("cuda")
    except DeviceNotFound:  # the packages are on the path, not installed
        from tile_runtime_cuda.plugin import DEVICE as device
    return device.load(artifact)


def on_nothing(artifact: Artifact) -> Any:
    """Loaded on a driver whose launch returns at once, with host memory for its device."""
    from tile_runtime.memory import map_code
    from tile_runtime.native_source import State
    from tile_runtime_cuda.driver import Driver
    from tile_runtime_cuda.launch import load

    code = map_code(NOTHING)
    number = int("".join(filter(str.isdigit, artifact.manifest.target.arch)))

    class Library:
        def __init__(self) -> None:
            self.cuLaunchKernelEx = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(code.address)
            self.keep = code

        def __getattr__(self, name: str) -> Callable[..., int]:
            if not name.startswith("cu"):
                raise AttributeError(name)
            return lambda *arguments: _answer(name, arguments, number)

    kernel = load(artifact, Driver(Library()))
    if kernel._native is None:
        raise SystemExit("no native entry on this machine, and without a GPU nothing else to measure")
    kernel._native._table[State.DEVICE_TYPE] = KDL_CPU
    kernel._native.set_ready(0, 0)
    kernel._launch = kernel._native.launch(_refuse)
    return kernel


def _answer(function: str, arguments: tuple[Any, ...], number: int) -> int:
    """Of one device, of the architecture sm_{number}."""
    if function == "cuDeviceGetCount":
        arguments[0]._obj.value = 1
    if function == "cuDeviceGetAttribute":
        arguments[0]._obj.value = {MAJOR: number // 10, MINOR: number % 10}.get(arguments[1].value, 0)
    return 0


def _refuse(*arguments: Any) -> None:
    raise AssertionError("the native entry did not recognise the call")


def triton_call(tensors: list[torch.Tensor]) -> Callable[[], object] | None:
    """A Triton kernel that does nothing with as many tensors; None where Triton is not installed."""
    try:
        import triton
    except ImportError:
        return None
    names = ", ".join(f"A{i}" for i in range(len(tensors)))
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:  # triton reads a kernel's source file
        file.write(f"def nothing({names}, n):\n    pass\n")
    space: dict[str, Any] = {}
    exec(compile(Path(file.name).read_text(), file.name, "exec"), space)
    kernel = triton.jit(space["nothing"])
    return lambda: kernel[(1,)](*tensors, EXTENT)


def run(folder: Path, report: Path | None) -> None:
    lines = []
    for count in COUNTS:
        # Turns long enough that waking up after the pause before does not show.
        times = paired(contenders(Artifact.load(folder / f"{count}.tile"), count), seconds=3.0, rounds=9, turn=0.02)
        for name, whole in times.items():
            seconds = whole / BATCH if name == DRIVER else whole
            lines.append({"tensors": count, "what": name, "us": seconds * 1e6})
            print(f"{count:3} tensors  {name:24} {seconds * 1e6:6.2f} us")
    if report is not None:
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
        report.write_text(json.dumps({"gpu": gpu, "torch": torch.__version__, "lines": lines}, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("pack", "run"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.what is None:
        with tempfile.TemporaryDirectory() as folder:
            pack(Path(folder), arguments.arch)
            run(Path(folder), arguments.json)
    elif arguments.what == "pack":
        pack(arguments.folder, arguments.arch)
    else:
        run(arguments.folder, arguments.json)


if __name__ == "__main__":
    main()
