"""Entry points of installed packages, read off their `entry_points.txt`.

`importlib.metadata` answers the same question and costs 20 ms of CPU to import (it brings the email package), which
is more than loading a cached kernel takes. What it alone can see, such as packages in a zip file, is asked of it when
the folders on `sys.path` hold nothing of the group.
"""

from __future__ import annotations

import importlib
import os
import sys
from functools import lru_cache
from typing import Any, NamedTuple


class EntryPoint(NamedTuple):
    """One announcement: `value` is "module:attribute"."""

    name: str
    value: str

    def load(self) -> Any:
        """Import the module and give the attribute. Raises whatever the import raises."""
        module, _, attribute = self.value.partition(":")
        found = importlib.import_module(module.strip())
        for part in filter(None, attribute.strip().split(".")):
            found = getattr(found, part)
        return found


def entry_points(group: str) -> list[EntryPoint]:
    """What installed packages announce in a group, in the order of `sys.path`; the first of each name counts."""
    found: dict[str, EntryPoint] = {}
    for folder in sys.path:
        for name, value in _of_folder(folder or os.curdir, _modified(folder or os.curdir)).get(group, ()):
            found.setdefault(name, EntryPoint(name, value))
    if not found:
        from importlib import metadata

        for entry in metadata.entry_points(group=group):
            found.setdefault(entry.name, EntryPoint(entry.name, entry.value))
    return list(found.values())


def distribution_versions(folder_names: tuple[str, ...]) -> dict[str, str]:
    """Versions of distributions by normalised name ("apache_tvm"), read off the names of their metadata folders."""
    found: dict[str, str] = {}
    for folder in sys.path:
        try:
            names = os.listdir(folder or os.curdir)
        except OSError:
            continue
        for name in names:
            if name.endswith(".dist-info"):
                distribution, _, version = name[: -len(".dist-info")].partition("-")
                normal = distribution.lower().replace("-", "_").replace(".", "_")
                if normal in folder_names:
                    found.setdefault(normal, version)
    return found


def _modified(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return -1


@lru_cache(maxsize=256)
def _of_folder(folder: str, modified: int) -> dict[str, list[tuple[str, str]]]:
    """group -> (name, value) of the packages whose metadata lies in a folder; read again when the folder changes."""
    groups: dict[str, list[tuple[str, str]]] = {}
    if modified < 0:
        return groups
    try:
        names = [n for n in os.listdir(folder) if n.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return groups
    for name in sorted(names):
        try:
            with open(os.path.join(folder, name, "entry_points.txt"), encoding="utf-8") as file:
                lines = file.read().splitlines()
        except OSError:
            continue
        group = ""
        for line in lines:
            line = line.strip()
            if line.startswith("["):
                group = line.strip("[]").strip()
            elif "=" in line and not line.startswith(("#", ";")):
                key, _, value = line.partition("=")
                groups.setdefault(group, []).append((key.strip(), value.split("[")[0].strip()))
    return groups
