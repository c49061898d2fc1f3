"""The kernel cache on disk: two levels of keys, one file per entry, no locks.

    <folder>/tile1/links/ab/ab….json     level-1 key (hash of source, specialisation, options) -> level-2 key
    <folder>/tile1/kernels/cd/cd….tile   level-2 key (hash of the canonical IR) -> artifact

Keys are any text; file names are their sha256. Entries are written under a temporary name and renamed, so any number of
processes can share the folder: the worst that a race costs is a compilation done twice. A file that is truncated,
foreign or hostile is noticed (every part has a sha256, every entry repeats its key), removed and counted as a miss.
A folder that others can write to is refused: its content would be code that they choose.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .artifact import Artifact
from .atomic_file import write_atomically
from .errors import ArtifactError, CacheFolderError

_LOG = logging.getLogger("tile_runtime.cache")
_VERSION = "tile1"
_MAX_LINK_BYTES = 1 << 20


@dataclass(frozen=True)
class Link:
    """What a level-1 key leads to: the level-2 key and whatever small JSON object the caller stored with it."""

    key: str
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """One stored file, for listings. `problem` is empty if the file is sound."""

    path: Path
    bytes: int
    modified: float
    key: str
    name: str
    target: str
    problem: str = ""


def default_folder() -> Path:
    """TILELANG_CACHE_DIR, else ~/.tilelang/cache."""
    configured = os.environ.get("TILELANG_CACHE_DIR")
    return Path(configured).expanduser() if configured else Path.home() / ".tilelang" / "cache"


def enabled_by_environment() -> bool:
    """False if TILELANG_DISABLE_CACHE is set to something other than 0, false, no or nothing."""
    return os.environ.get("TILELANG_DISABLE_CACHE", "").lower() in ("", "0", "false", "no", "off")


class Cache:
    """A cache folder. With `enabled` false (default: TILELANG_DISABLE_CACHE) look-ups miss and nothing is written.

    The folder is created, for the owner alone, at the first write. Raises CacheFolderError, at the first use, if
    others can write to it or it belongs to another user. Safe to use from many threads and processes.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, enabled: bool | None = None) -> None:
        self.folder = Path(folder) if folder is not None else default_folder()
        self.enabled = enabled_by_environment() if enabled is None else enabled
        self._checked = False

    # -- level 2: artifacts ------------------------------------------------------------------------------------------

    def put(self, key: str, artifact: Artifact) -> bool:
        """Stores an artifact whose manifest has that key. False if nothing was stored (disabled, full, read-only)."""
        if artifact.manifest.key != key:
            raise ValueError(f"artifact {artifact.manifest.name} has key {artifact.manifest.key!r}, not {key!r}")
        return self._write(self._kernel_path(key), artifact.to_bytes())

    def get(self, key: str) -> Artifact | None:
        """The artifact stored under a level-2 key, or None."""
        if not self._usable():
            return None
        path = self._kernel_path(key)
        artifact, problem = _load(path)
        if artifact is not None and artifact.manifest.key != key:
            artifact, problem = None, "it holds another kernel's key"
        if problem:
            self._discard(path, problem)
        return artifact

    # -- level 1: links ----------------------------------------------------------------------------------------------

    def link(self, key1: str, key2: str, extra: dict[str, Any] | None = None) -> bool:
        """Notes that a level-1 key leads to a level-2 key. `extra` is a small JSON object for the caller's use."""
        text = json.dumps(
            {"format": 1, "from": key1, "to": key2, "extra": extra or {}}, sort_keys=True, allow_nan=False
        )
        return self._write(self._link_path(key1), text.encode())

    def lookup(self, key1: str) -> Link | None:
        """Where a level-1 key leads, or None."""
        if not self._usable():
            return None
        path = self._link_path(key1)
        link, problem = _load_link(path, key1)
        if problem:
            self._discard(path, problem)
        return link

    def find(self, key1: str) -> Artifact | None:
        """The artifact that a level-1 key leads to, or None."""
        link = self.lookup(key1)
        return None if link is None else self.get(link.key)

    # -- for a command line ------------------------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """All stored kernels, oldest first. Files that are not sound are listed with their problem, and left alone."""
        if not self._usable():
            return []
        return sorted((_entry(p) for p in self._files("kernels", ".tile")), key=lambda e: (e.modified, e.path))

    def verify(self) -> list[Entry]:
        """Checks every kernel and link; removes those that are not sound and returns them."""
        if not self._usable():
            return []
        broken = [entry for entry in self.entries() if entry.problem]
        for path in self._files("links", ".json"):
            problem = _load_link(path, None)[1]
            if problem:
                broken.append(Entry(path, _size(path), 0.0, "", "", "", problem))
        for entry in broken:
            self._discard(entry.path, entry.problem)
        return broken

    def clear(self, older_than_seconds: float = 0.0) -> int:
        """Removes all entries (or those not written for that long). Returns the number of files removed."""
        if not self._usable():
            return 0
        limit = time.time() - older_than_seconds
        removed = 0
        for path in [*self._files("links", ""), *self._files("kernels", "")]:
            with contextlib.suppress(OSError):
                if older_than_seconds <= 0 or path.stat().st_mtime < limit:
                    path.unlink()
                    removed += 1
        if older_than_seconds <= 0:
            import shutil  # brings the archive formats: 9 ms that loading a kernel does not need

            shutil.rmtree(self.folder / _VERSION, ignore_errors=True)
        return removed

    # -- inside ------------------------------------------------------------------------------------------------------

    def _kernel_path(self, key: str) -> Path:
        return self._path("kernels", key, ".tile")

    def _link_path(self, key: str) -> Path:
        return self._path("links", key, ".json")

    def _path(self, level: str, key: str, suffix: str) -> Path:
        digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        return self.folder / _VERSION / level / digest[:2] / (digest + suffix)

    def _files(self, level: str, suffix: str) -> Iterator[Path]:
        for path in sorted((self.folder / _VERSION / level).glob("??/*" if suffix else "??/.*") or ()):
            if path.name.endswith(suffix):
                yield path
        if not suffix:
            yield from sorted((self.folder / _VERSION / level).glob("??/[!.]*"))

    def _usable(self) -> bool:
        if not self.enabled:
            return False
        if not self._checked:
            try:
                info = os.stat(self.folder)
            except FileNotFoundError:
                return False
            _refuse_unsafe(self.folder, info)
            self._checked = True
        return True

    def _write(self, path: Path, data: bytes) -> bool:
        if not self.enabled:
            return False
        try:
            if not self._usable():
                os.makedirs(self.folder.parent, exist_ok=True)
                with contextlib.suppress(FileExistsError):
                    os.mkdir(self.folder, 0o700)
                self._usable()
            for folder in (path.parents[2], path.parents[1], path.parents[0]):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, 0o700)
            write_atomically(path, data, 0o600)
        except CacheFolderError:
            raise
        except OSError as error:
            # A full or read-only disk must not stop a kernel that is already compiled.
            _LOG.warning("kernel cache: cannot write %s: %s", path, error)
            return False
        return True

    def _discard(self, path: Path, problem: str) -> None:
        _LOG.warning("kernel cache: removing %s: %s", path, problem)
        with contextlib.suppress(OSError):
            path.unlink()


def _refuse_unsafe(folder: Path, info: os.stat_result) -> None:
    if not stat.S_ISDIR(info.st_mode):
        raise CacheFolderError(f"kernel cache {folder} is not a folder; set TILELANG_CACHE_DIR to one")
    if not hasattr(os, "geteuid"):  # no owner or mode to judge by
        return
    if info.st_uid != os.geteuid():
        raise CacheFolderError(
            f"kernel cache {folder} belongs to user {info.st_uid}, not to you ({os.geteuid()}): its owner could put "
            "code there that you would run. Set TILELANG_CACHE_DIR to a folder of your own, or TILELANG_DISABLE_CACHE=1"
        )
    if info.st_mode & 0o022:
        raise CacheFolderError(
            f"kernel cache {folder} has mode {stat.S_IMODE(info.st_mode):o}: others can write to it and could put code "
            f"there that you would run. Repair: chmod go-w {folder}"
        )


def _load(path: Path) -> tuple[Artifact | None, str]:
    """The artifact at `path` and "" — or None and what is wrong with the file ("" if there is none)."""
    try:
        return Artifact.load(path), ""
    except FileNotFoundError:
        return None, ""
    except (ArtifactError, OSError) as error:
        return None, str(error)


def _load_link(path: Path, key1: str | None) -> tuple[Link | None, str]:
    try:
        if _size(path) > _MAX_LINK_BYTES:
            return None, "it is too large for a link"
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError, RecursionError) as error:
        return None, f"it is not readable JSON: {error}"
    if not isinstance(data, dict) or data.get("format") != 1:
        return None, "it is not a link of this format"
    origin, target, extra = data.get("from"), data.get("to"), data.get("extra")
    if not isinstance(origin, str) or not isinstance(target, str) or not isinstance(extra, dict):
        return None, "it lacks a field"
    if key1 is not None and origin != key1:
        return None, "it is the link of another key"
    return Link(target, extra), ""


def _entry(path: Path) -> Entry:
    artifact, problem = _load(path)
    try:
        info = path.stat()
    except OSError:
        return Entry(path, 0, 0.0, "", "", "", problem or "it has just been removed")
    if artifact is None:
        return Entry(path, info.st_size, info.st_mtime, "", "", "", problem)
    m = artifact.manifest
    if path.stem != hashlib.sha256(m.key.encode("utf-8", "surrogatepass")).hexdigest():
        problem = "it holds another kernel's key"
    return Entry(path, info.st_size, info.st_mtime, m.key, m.name, f"{m.target.kind} {m.target.arch}".strip(), problem)


def _size(path: Path) -> int:
    return path.stat().st_size
