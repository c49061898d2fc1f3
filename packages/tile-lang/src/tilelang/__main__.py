"""`python -m tilelang doctor` and `python -m tilelang cache ls|verify|clear`."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import os
import sys
import time
from typing import Any

from tilelang.errors import DistributionClash

_PACKAGES = (
    "tile-lang",
    "tile-compiler",
    "tile-runtime",
    "tile-runtime-cpu",
    "tile-runtime-cuda",
    "tile-runtime-rocm",
    "tile-ops",
    "apache-tvm",
    "apache-tvm-ffi",
    "numpy",
    "ml_dtypes",
    "torch",
)
# The wheel of apache-tvm admits newer releases of its FFI, with which saving IR crashes (docs/internals/tvm.md).
_PINS = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post1"}
_HOW = {
    "tile-compiler": "pip install tile-lang[cpu]",
    "tile-runtime-cpu": "pip install tile-lang[cpu]",
    "tile-runtime-cuda": "pip install tile-runtime-cuda",
    "tile-runtime-rocm": "pip install tile-runtime-rocm",
    "tile-ops": "pip install tile-ops",
    "torch": "pip install torch (optional: numpy arrays work everywhere)",
}


def doctor() -> int:
    """Print what is installed, which targets work, and how to get what is missing. 0 when the CPU target works."""
    print("packages")
    healthy = True
    for name in _PACKAGES:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            print(f"  {name:18} missing      {_HOW.get(name, f'pip install {name}')}")
            continue
        wanted = _PINS.get(name)
        note = ""
        if wanted and version != wanted:
            note = f"   this release needs {wanted}: pip install {name}=={wanted}"
            healthy = False
        print(f"  {name:18} {version:12}{note}")
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        other = importlib.metadata.version("tilelang")
        print(
            f"  {'tilelang':18} {other:12}   [{DistributionClash.code}] another distribution with a package `tilelang`:"
        )
        print("      pip uninstall tilelang; pip install --force-reinstall --no-deps tile-lang")
        healthy = False
    from tile_runtime import registry
    from tilelang import target

    print("targets")
    devices = registry.doctor()
    for kind, device in (("cpu", "cpu"), ("cuda", "cuda"), ("hip", "rocm")):
        compiler = target.compiler_for(kind)
        facts = devices.get(device, {"ok": False, "reason": f"tile-runtime-{device} is not installed"})
        can = "compiles" if compiler is not None else "no compiler"
        print(f"  {kind:5} {can}; {'runs' if facts['ok'] else 'does not run'}: {facts['reason']}")
        if kind == "cpu":
            healthy = healthy and compiler is not None and bool(facts["ok"])
            for name, value in facts.items():
                if name not in ("ok", "reason"):
                    print(f"          {name}: {value}")
    print(f"  auto  means {target.resolve('auto')}")
    print("settings")
    for name in sorted(n for n in os.environ if n.startswith("TILELANG_")):
        print(f"  {name}={os.environ[name]}")
    from tile_runtime.cache import Cache

    print(f"  kernel cache: {Cache().folder}")
    print("all is well" if healthy else "something above needs repair")
    return 0 if healthy else 1


def cache(action: str) -> int:
    """List, check or empty the kernel cache."""
    from tile_runtime.cache import Cache

    store = Cache()
    if action == "ls":
        entries = store.entries()
        for entry in entries:
            age = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.modified))
            print(f"{age}  {entry.bytes:9}  {entry.name or '?':24} {entry.target:16} {entry.problem or entry.key[:16]}")
        print(f"{len(entries)} kernels, {sum(e.bytes for e in entries)} bytes in {store.folder}")
    elif action == "verify":
        broken = store.verify()
        for entry in broken:
            print(f"removed {entry.path}: {entry.problem}")
        print(f"{len(store.entries())} kernels are sound, {len(broken)} files were removed")
    else:
        print(f"{store.clear()} files removed from {store.folder}")
    return 0


def main(arguments: list[str] | None = None) -> Any:
    parser = argparse.ArgumentParser(prog="python -m tilelang", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="what is installed, what works, what is missing")
    listing = commands.add_parser("cache", help="the kernel cache")
    listing.add_argument("action", choices=("ls", "verify", "clear"))
    chosen = parser.parse_args(arguments)
    return doctor() if chosen.command == "doctor" else cache(chosen.action)


if __name__ == "__main__":
    sys.exit(main())
