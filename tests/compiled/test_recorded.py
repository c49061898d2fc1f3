"""A dozen kernels as they compile for sm_80, sm_89 and gfx942: the lowered form, the text, and what they take of a chip.

`pytest tests/compiled --update-golden --full` (in one process) records what changed; read it before committing.
"""

from __future__ import annotations

import difflib
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

from tile_compiler.compile import LoweredModule, lower
from tile_compiler.errors import SlowDeviceCode
from tilelang.target import parse

from . import resources
from .subjects import SUBJECTS, Subject

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "golden"
SAME = "The same as for sm_80.\n"
CASES = [(name, arch) for name, subject in SUBJECTS.items() for arch in subject.archs]


def compiled(name: str, arch: str) -> LoweredModule:
    subject = SUBJECTS[name]
    recorded = [row for key, row in resources.read().items() if key[:2] == (name, arch)]
    with warnings.catch_warnings():
        if any(row["spills"] or row["stack"] for row in recorded):  # the table allows for it, and says how much
            warnings.simplefilter("ignore", SlowDeviceCode)
        module = _lowered(subject, arch)
        module.built()
    return module


def _lowered(subject: Subject, arch: str) -> LoweredModule:
    kind = "hip" if arch.startswith("gfx") else "cuda"
    return lower(subject.make(arch), parse({"kind": kind, "arch": arch}), dict(subject.options))


def texts(module: LoweredModule) -> dict[str, str]:
    """The recorded texts by the ends of their files' names."""
    built = module.built().texts
    (text, end) = (built["cuda"], "cu") if "cuda" in built else (built["hip"], "hip")
    return {"tir": module.text().rstrip() + "\n", end: text.rstrip() + "\n"}


def case(name: str, arch: str) -> Any:
    """A point of the grid; what sm_89 has in common with sm_80 is left to whole runs."""
    path = GOLDEN / name / f"{arch}.cu"
    marks = [pytest.mark.full] if arch == "sm_89" and path.exists() and path.read_text() == SAME else []
    return pytest.param(name, arch, marks=marks, id=f"{name}-{arch}")


@pytest.mark.parametrize(("name", "arch"), [case(name, arch) for name, arch in CASES])
def test_kernel_is_as_recorded(name: str, arch: str, request: pytest.FixtureRequest) -> None:
    """Compiled once, compared in three ways."""
    module = compiled(name, arch)
    update = bool(request.config.getoption("--update-golden"))
    assert not (update and "PYTEST_XDIST_WORKER" in os.environ), "--update-golden writes one table: use one process"
    faults = []
    for end, text in texts(module).items():
        path = GOLDEN / name / f"{arch}.{end}"
        first = GOLDEN / name / f"sm_80.{end}"
        shown = SAME if arch == "sm_89" and first.exists() and first.read_text() == text else text
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(shown)
        elif not path.exists():
            faults.append(f"no golden file {path.relative_to(HERE)}: record it by --update-golden and read it")
        elif path.read_text() != shown:
            faults.append(difference(path, shown))
    faults += figures(name, arch, module, update)
    assert not faults, "\n".join(faults)


def figures(name: str, arch: str, module: LoweredModule, update: bool) -> list[str]:
    """What is worse than in the table."""
    known = resources.read()
    got = {(name, arch, n): resources.taken(facts) for n, facts in module.context.report.kernels.items()}
    if update:
        others = {row: figures for row, figures in known.items() if row[:2] != (name, arch)}
        resources.write({**others, **got})
        return []
    assert got.keys() == {row for row in known if row[:2] == (name, arch)}
    return [f"launch {row[2]}: {fault}" for row, taken in got.items() for fault in resources.worse(taken, known[row])]


def difference(path: Path, text: str) -> str:
    """The first lines that differ."""
    kept = path.read_text().splitlines()
    lines = list(
        difflib.unified_diff(kept, text.splitlines(), f"recorded {path.relative_to(HERE)}", "now", lineterm="", n=1)
    )
    return "\n".join(lines[:60])


def test_every_recorded_file_belongs_to_a_kernel() -> None:
    wanted = {
        f"{name}/{arch}.{end}" for name, arch in CASES for end in ("tir", "hip" if arch.startswith("gfx") else "cu")
    }
    assert {str(p.relative_to(GOLDEN)) for p in GOLDEN.rglob("*.*")} == wanted
    assert {row[:2] for row in resources.read()} == set(CASES)


def test_a_figure_that_grows_is_said() -> None:
    before = {"registers": 128, "spills": 0, "stack": 0, "shared": 49152}
    assert resources.worse(dict(before), before) == []
    assert resources.worse({**before, "registers": 127}, before) == []
    now: dict[str, Any] = {**before, "registers": 130, "spills": 8}
    assert resources.worse(now, before) == ["registers: 130, at most 128 before", "spills: 8, at most 0 before"]
