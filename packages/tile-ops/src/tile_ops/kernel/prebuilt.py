"""Prebuilt kernels: wheels that hold `.tile.xz` files and an index of what each one is.

A data-only wheel `tile-ops-prebuilt-<vendor>` names its package, which holds no code, by an entry
point of the group `tile_ops.prebuilt`. Beside its `__init__.py` lies `index.json`:

    {"format": 2, "version": "<tile_ops version>", "texts": {<family>: <digest>},
     "kernels": {<KernelSpec.key>: {"file", "sha256", "source", "family", "function", "spec", "arch"}}}

`source` is the digest of the text that the kernel was made from (`KernelSpec.source_digest`), `sha256` that of the file, which
is a `.tile` file, packed: variants of a kernel have much in common, farther apart than what a wheel's own compression sees.
`texts` are the families' `kernels.py` in which all sources are those of the entries: where they are the same here, none is
read for its functions. What writes such a folder is `tile_ops.prebuild`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tile_ops.errors import KernelUnavailable
from tile_runtime.artifact import Artifact

from .spec import KernelSpec, text_digest
from .target import Target

GROUP = "tile_ops.prebuilt"
FORMAT = 2
INDEX = "index.json"
SUFFIX = ".tile.xz"
#: Bytes that a repetition may lie back: all of a kernel with its variants. What unpacks takes as much memory.
WINDOW = 1 << 20


@dataclass(frozen=True)
class Folder:
    """One wheel's kernels."""

    path: Path
    version: str
    texts: dict[str, str]
    kernels: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Prebuilt:
    """A kernel that was shipped: where it lies and for which architecture it was compiled."""

    path: Path
    sha256: str
    arch: str

    def load(self) -> Artifact:
        """The artifact. Raises KernelUnavailable if the file is not the one that was shipped."""
        content = self.path.read_bytes()
        found = hashlib.sha256(content).hexdigest()
        if found != self.sha256:
            raise KernelUnavailable(
                f"{self.path} is damaged: its sha256 is {found}, the index says {self.sha256}; install the wheel again"
            )
        return Artifact.from_bytes(unpacked(content))


def packed(content: bytes) -> bytes:
    """The shipped form of a `.tile` file's content. Without a check of its own: the index has the file's sha256."""
    import lzma

    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": WINDOW}]
    return lzma.compress(content, lzma.FORMAT_XZ, lzma.CHECK_NONE, filters=filters)


def unpacked(content: bytes) -> bytes:
    """What `packed` was given. Raises KernelUnavailable where Python was built without liblzma."""
    try:
        import lzma
    except ImportError as error:
        raise KernelUnavailable(
            f"prebuilt kernels are packed, and this Python was built without liblzma ({error}); use one with the module lzma"
        ) from None
    return lzma.decompress(content, lzma.FORMAT_XZ)


def find(spec: KernelSpec, target: Target) -> tuple[Prebuilt | None, str]:
    """The shipped kernel that runs on `target`, and why there is none."""
    folders = _folders(os.environ.get("TILE_OPS_PREBUILT", ""))
    if not folders:
        return None, "no prebuilt kernels are installed"
    reason = "not among the prebuilt kernels"
    for arch in target.runs():
        key = spec.key(arch)
        for folder in folders:
            entry = folder.kernels.get(key)
            if entry is None:
                continue
            if folder.texts.get(spec.family) != text_digest(spec.family) and entry["source"] != spec.source_digest():
                reason = f"the prebuilt one in {folder.path} was made from another {spec.family}/kernels.py"
                continue
            return Prebuilt(folder.path / entry["file"], entry["sha256"], arch), ""
    return None, reason


@cache
def _folders(named: str) -> tuple[Folder, ...]:
    """The folders of installed wheels; those that TILE_OPS_PREBUILT names (separated as in PATH) come first."""
    paths = [Path(part) for part in named.split(os.pathsep) if part]
    paths += [Path(str(entry.load().__file__)).parent for entry in importlib.metadata.entry_points(group=GROUP)]
    return tuple(_read(path) for path in paths)


def _read(path: Path) -> Folder:
    import tile_ops

    try:
        index = json.loads((path / INDEX).read_text())
    except (OSError, ValueError) as error:
        raise KernelUnavailable(f"{path} holds no index of prebuilt kernels: {error}") from None
    if index.get("format") != FORMAT or index.get("version") != tile_ops.__version__:
        raise KernelUnavailable(
            f"the prebuilt kernels in {path} are of format {index.get('format')}, version {index.get('version')}; "
            f"tile_ops {tile_ops.__version__} needs format {FORMAT} and its own version: install both at one version"
        )
    return Folder(path, index["version"], index.get("texts", {}), index["kernels"])
