"""Every package has the same outside, and declares what its sources import."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
IMPORT_NAMES = {"tile-lang": "tilelang", "apache-tvm": "tvm", "apache-tvm-ffi": "tvm_ffi"}
# Libraries that a user may bring: read where they are present, in functions, never required.
GUESTS = {"torch"}


def tables(package: Path) -> dict[str, Any]:
    return tomllib.loads((package / "pyproject.toml").read_text())


def project(package: Path) -> dict[str, Any]:
    found: dict[str, Any] = tables(package)["project"]
    return found


def import_name(requirement: str) -> str:
    """`tile-lang[cpu]==0.1.0` -> `tilelang`."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None, requirement
    return IMPORT_NAMES.get(name[0], name[0].replace("-", "_"))


def imports(tree: ast.AST, inside_function: bool = False) -> Iterator[tuple[str, int, bool]]:
    """(top-level name, line, whether only a call runs it) of every absolute import."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], node.lineno, inside_function) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0], node.lineno, inside_function
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            yield from imports(node, inside_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


@pytest.fixture(params=PACKAGES, ids=lambda path: path.name)
def package(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_the_planned_packages_exist() -> None:
    vendors = {f"tile-runtime-{vendor}" for vendor in ("cpu", "cuda", "rocm")}
    assert {path.name for path in PACKAGES} == {"tile-lang", "tile-compiler", "tile-runtime", "tile-ops"} | vendors


def test_package_has_the_common_outside(package: Path) -> None:
    module = IMPORT_NAMES.get(package.name, package.name.replace("-", "_"))
    assert project(package)["name"] == package.name
    assert project(package)["requires-python"] == ">=3.10"
    assert project(package)["license"] == "Apache-2.0"
    assert tables(package)["build-system"]["build-backend"] == "hatchling.build"  # noxfile.py installs only that one
    for path in ["README.md", "tests", f"src/{module}/__init__.py", f"src/{module}/py.typed"]:
        assert (package / path).exists(), f"{package.name}/{path}"


@pytest.mark.parametrize("vendor", ["cpu", "cuda", "rocm"])
def test_packages_of_kernels_hold_data_alone(vendor: str) -> None:
    package = ROOT / "packages" / "tile-ops" / "prebuilt" / vendor
    name = f"tile-ops-prebuilt-{vendor}"
    module = import_name(name)
    assert project(package)["name"] == name
    assert project(package)["version"] == project(PACKAGES[0])["version"]
    assert project(package)["entry-points"] == {"tile_ops.prebuilt": {vendor: module}}
    assert "dependencies" not in project(package)
    (init,) = package.rglob("*.py")
    assert init.parent.name == module
    assert [type(node) for node in ast.parse(init.read_text()).body] == [ast.Expr]
    extras = project(ROOT / "packages" / "tile-ops")["optional-dependencies"]
    assert f"{name}=={project(package)['version']}" in extras[vendor]


def test_versions_move_together(package: Path) -> None:
    version = project(PACKAGES[0])["version"]
    assert project(package)["version"] == version
    extras = project(package).get("optional-dependencies", {}).values()
    for requirement in [*project(package).get("dependencies", []), *(r for extra in extras for r in extra)]:
        if requirement.startswith("tile-"):
            assert requirement.endswith(f"=={version}"), requirement


def test_package_declares_what_it_imports(package: Path) -> None:
    required = {import_name(r) for r in project(package).get("dependencies", [])}
    extras = project(package).get("optional-dependencies", {}).values()
    optional = {import_name(r) for extra in extras for r in extra}
    own = {path.name for path in (package / "src").iterdir()}
    undeclared = []
    for file in sorted((package / "src").rglob("*.py")):
        for name, line, inside_function in imports(ast.parse(file.read_text())):
            known = own | required | optional | sys.stdlib_module_names
            if name not in known and not (inside_function and name in GUESTS):
                undeclared.append(f"{file.relative_to(ROOT)}:{line} imports {name}")
    assert not undeclared


def test_every_package_is_known_to_the_checks() -> None:
    workspace = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    modules = {IMPORT_NAMES.get(path.name, path.name.replace("-", "_")) for path in PACKAGES}
    assert set(workspace["importlinter"]["root_packages"]) == modules
    assert set(workspace["mypy"]["packages"]) == modules
    assert set(workspace["ruff"]["lint"]["isort"]["known-first-party"]) == modules
    assert set(workspace["mypy"]["mypy_path"]) == {f"packages/{path.name}/src" for path in PACKAGES}


def test_change_fragments_are_named_for_issue_and_kind() -> None:
    for file in (ROOT / "changes").iterdir():
        assert re.fullmatch(r"\d+(\.[a-z]+)?\.(added|changed|fixed|removed)", file.name), file.name
        assert file.read_text().strip(), f"{file.name} is empty"
