from __future__ import annotations

import logging
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tile_runtime.artifact import Artifact
from tile_runtime.cache import Cache, default_folder, enabled_by_environment
from tile_runtime.errors import CacheFolderError
from tile_runtime.manifest import Manifest


def artifact(key: str, content: bytes = b"code") -> Artifact:
    data: dict[str, Any] = {"format": 1, "name": "k", "key": key, "target": {"kind": "cpu", "arch": "x86-64-v3"}}
    data["binaries"] = [{"file": "a.o", "kind": "elf"}]
    return Artifact(Manifest.from_json(data), {"a.o": content})


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", enabled=True)


def kernel_file(cache: Cache) -> Path:
    return next(cache.folder.glob("tile1/kernels/*/*.tile"))


def test_two_levels(cache: Cache) -> None:
    assert cache.find("one") is None
    assert cache.put("two", artifact("two"))
    assert cache.link("one", "two", {"seconds": 0.5})
    found = cache.find("one")
    assert found is not None
    assert found.read("a.o") == b"code"
    link = cache.lookup("one")
    assert link is not None
    assert (link.key, link.extra) == ("two", {"seconds": 0.5})
    assert cache.get("other") is None


def test_keys_are_any_text(cache: Cache) -> None:
    for key in ("../../escape", "a" * 4000, "", "ключ\n\udcff"):
        assert cache.put(key, artifact(key))
        assert cache.get(key) is not None
    assert {p.name for p in cache.folder.parent.iterdir()} == {"cache"}
    with pytest.raises(ValueError, match="not 'x'"):
        cache.put("x", artifact("y"))


def test_listing_verify_and_clear(cache: Cache) -> None:
    for key in "abc":
        cache.put(key, artifact(key))
        cache.link(f"1{key}", key)
    assert {(e.key, e.name, e.target, e.problem) for e in cache.entries()} == {
        (k, "k", "cpu x86-64-v3", "") for k in "abc"
    }
    kernel_file(cache).write_bytes(b"broken")
    next(cache.folder.glob("tile1/links/*/*.json")).write_text("{}")
    assert sum(bool(e.problem) for e in cache.entries()) == 1
    assert len(cache.verify()) == 2
    assert cache.verify() == []
    assert len(cache.entries()) == 2
    assert cache.clear(older_than_seconds=3600) == 0
    assert cache.clear() == 4
    assert cache.entries() == []
    assert cache.put("a", artifact("a"))  # usable after clear


@pytest.mark.parametrize("damage", ["truncated", "empty", "foreign", "folder"])
def test_damaged_files_are_removed_and_count_as_misses(
    cache: Cache, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    cache.put("a", artifact("a"))
    file = kernel_file(cache)
    whole = file.read_bytes()
    if damage == "folder":
        file.unlink()
        file.mkdir()
    else:
        foreign = artifact("b").to_bytes()
        file.write_bytes({"truncated": whole[: len(whole) // 2], "empty": b"", "foreign": foreign}[damage])
    with caplog.at_level(logging.WARNING, "tile_runtime.cache"):
        assert cache.get("a") is None
    assert "removing" in caplog.text
    assert damage == "folder" or not file.exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 2}', b'{"format": 1}', b"[" * 100_000, b"\xff"])
def test_damaged_links_are_misses(cache: Cache, content: bytes) -> None:
    cache.link("one", "two")
    file = next(cache.folder.glob("tile1/links/*/*.json"))
    file.write_bytes(content)
    assert cache.lookup("one") is None
    assert not file.exists()


def test_the_link_of_another_key_is_a_miss(cache: Cache) -> None:
    cache.link("one", "two")
    file = next(cache.folder.glob("tile1/links/*/*.json"))
    file.write_text(file.read_text().replace('"one"', '"uno"'))
    assert cache.lookup("one") is None


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o722])
def test_a_folder_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    cache = Cache(folder, enabled=True)
    for use in (lambda: cache.get("a"), lambda: cache.put("a", artifact("a")), cache.entries, cache.clear):
        with pytest.raises(CacheFolderError, match=r"TLR003.*others can write to it.*chmod go-w"):
            use()


def test_the_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(CacheFolderError, match=r"belongs to user .* TILELANG_CACHE_DIR"):
        Cache(tmp_path, enabled=True).get("a")


def test_new_folders_are_private(cache: Cache) -> None:
    cache.put("a", artifact("a"))
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    assert kernel_file(cache).stat().st_mode & 0o777 == 0o600


def test_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path / "here"))
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "1")
    assert default_folder() == tmp_path / "here"
    assert not enabled_by_environment()
    off = Cache()
    assert not off.put("a", artifact("a"))
    assert off.get("a") is None
    assert off.entries() == []
    assert not (tmp_path / "here").exists()
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "0")
    assert Cache().enabled
    monkeypatch.delenv("TILELANG_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".tilelang" / "cache"


def test_a_disk_that_refuses_to_write_only_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    assert not Cache(blocker / "cache", enabled=True).put("a", artifact("a"))
    assert "cannot write" in caplog.text


def _race(folder: str, worker: int, problems: Any) -> None:
    cache = Cache(folder, enabled=True)
    content = {key: f"code of {key}".encode() * 2000 for key in "abcd"}
    stop = time.monotonic() + 0.8
    while time.monotonic() < stop:
        for key, code in content.items():
            cache.put(key, artifact(key, code))
            cache.link("1" + key, key)
            found = cache.find("1" + key)
            if found is not None and found.read("a.o") != code:
                problems.put(f"{worker}: {key} holds something else")
            if worker == 0:
                cache.verify()


def test_many_processes_share_a_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    context = multiprocessing.get_context("spawn")
    problems = context.Queue()
    folder = str(tmp_path / "cache")
    workers = [context.Process(target=_race, args=(folder, i, problems)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
        assert worker.exitcode == 0
    assert problems.empty()
    cache = Cache(folder, enabled=True)
    assert cache.verify() == []
    assert len(cache.entries()) == 4
    assert not list(Path(folder).rglob(".tmp-*"))
