"""Entry points read off metadata folders agree with importlib.metadata."""

from __future__ import annotations

import sys
from importlib import metadata

import pytest

from tile_runtime.entry_points import distribution_versions, entry_points


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on sys.path that holds one package with entry points."""
    info = tmp_path / "demo_pkg-1.2.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: demo-pkg\nVersion: 1.2.3\n")
    (info / "entry_points.txt").write_text(
        "# a remark\n[console_scripts]\nrun = demo:main\n\n[demo.plugins]\nfirst = json:dumps\nsecond = os.path:join [extra]\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def test_names_values_and_loading(site):
    found = {e.name: e for e in entry_points("demo.plugins")}
    assert set(found) == {"first", "second"}
    assert found["first"].load() is __import__("json").dumps
    assert found["second"].value == "os.path:join"


def test_agrees_with_importlib_metadata(site):
    for group in ("demo.plugins", "tile_runtime.devices", "tile_compiler.targets"):
        theirs = {(e.name, f"{e.module}:{e.attr}") for e in metadata.entry_points(group=group)}
        assert {tuple(e) for e in entry_points(group)} == theirs


def test_first_folder_on_the_path_wins(site, tmp_path_factory, monkeypatch):
    other = tmp_path_factory.mktemp("other")
    info = other / "demo_pkg-0.9.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[demo.plugins]\nfirst = json:loads\n")
    monkeypatch.setattr(sys, "path", [str(other), *sys.path])
    assert next(e for e in entry_points("demo.plugins") if e.name == "first").value == "json:loads"


def test_a_package_installed_later_is_seen(site):
    assert entry_points("late.plugins") == []
    info = site / "late-1.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[late.plugins]\nlate = json:dumps\n")
    assert [e.name for e in entry_points("late.plugins")] == ["late"]


def test_versions_come_from_folder_names(site):
    assert distribution_versions(("demo_pkg", "absent")) == {"demo_pkg": "1.2.3"}


def test_unknown_group_is_empty():
    assert entry_points("nobody.announces.this") == []
