"""What an import loads, seen from a fresh process. Who may import whom stands in pyproject.toml (import-linter)."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

TVM = {"tvm", "tvm_ffi"}
HEAVY = {*TVM, "torch", "matplotlib", "tile_compiler"}
VENDORS = {"tile_runtime_cpu", "tile_runtime_cuda", "tile_runtime_rocm"}


def loaded_by(statements: str) -> set[str]:
    """Top-level names in sys.modules after the statements ran in a fresh interpreter."""
    program = f"import sys\n{statements}\nprint('\\n'.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


# What to run, and the modules that it must not load.
LOADS: list[tuple[str, set[str]]] = [
    ("import tilelang", HEAVY | VENDORS),
    ("import tilelang.language as T", HEAVY | VENDORS),
    (
        "import tilelang.language as T\nassert T.ceildiv(10, 4) == 3\nstr(T.float16)\nT.dynamic('m')",
        HEAVY | VENDORS,
    ),
    ("import tile_runtime", HEAVY | VENDORS | {"tilelang"}),
    ("import tile_runtime.registry, tile_runtime.cache, tile_runtime.artifact", HEAVY | VENDORS | {"tilelang"}),
    ("import tile_runtime_cpu.plugin", HEAVY | {"tilelang"}),
    ("import tile_runtime_cuda.plugin", HEAVY | {"tilelang"}),
    ("import tile_runtime_rocm.plugin", HEAVY | {"tilelang"}),
    ("import tile_ops", {*TVM, "tilelang", "tile_compiler"}),
]


@pytest.mark.parametrize(("statements", "absent"), LOADS, ids=[statements.splitlines()[-1] for statements, _ in LOADS])
def test_import_loads_only_what_it_needs(statements: str, absent: set[str]) -> None:
    assert not loaded_by(statements) & absent


def test_asking_for_a_device_loads_neither_tvm_nor_compiler() -> None:
    statements = "from tile_runtime import registry\nassert registry.device('cpu').is_available().ok"
    assert not loaded_by(statements) & (HEAVY | {"tilelang"})


@pytest.mark.parametrize(
    ("group", "names"),
    [("tile_runtime.devices", {"cpu", "cuda", "rocm"}), ("tile_compiler.targets", {"cpu", "cuda", "hip"})],
)
def test_installed_backends_are_found_by_entry_point(group: str, names: set[str]) -> None:
    found = {entry.name: entry for entry in importlib.metadata.entry_points(group=group)}
    assert names <= found.keys()
    for entry in found.values():
        assert entry.load() is not None
