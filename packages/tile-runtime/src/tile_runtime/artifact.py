"""The `.tile` file: a manifest and its member files in one stored zip with a sha256 for every part.

Equal content gives equal bytes (fixed member order and timestamps). Loading verifies names, sizes and hashes before
anything is used; nothing is pickled or executed. The zip comment is `tile1 <sha256 of manifest.json>`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .atomic_file import write_atomically
from .errors import ArtifactError
from .manifest import MANIFEST_FILE, Manifest

_MAGIC = b"tile1 "
_TIMESTAMP = (1980, 1, 1, 0, 0, 0)  # the earliest a zip can say
_FOLDER = re.compile(r"^.*[/\\](?=[^/\\]+:\d+: )")  # of "folder/file:line: text"
MAX_FILE_BYTES = 1 << 30
MAX_MANIFEST_BYTES = 16 << 20


class Artifact:
    """A manifest and the bytes of its members, checked against each other. Not to be changed afterwards.

    Members: `manifest`, with the sha256 of every binary filled in, and `files`, name to bytes. A manifest that was
    built by hand is checked as a stored one is, so that whatever can be saved can be loaded. Raises ArtifactError.
    """

    def __init__(self, manifest: Manifest, files: Mapping[str, bytes]) -> None:
        self._assemble(Manifest.from_json(manifest.to_json()), files)

    def _assemble(self, manifest: Manifest, files: Mapping[str, bytes]) -> None:
        listed = {b.file for b in manifest.binaries}
        if listed != set(files):
            missing, extra = sorted(listed - set(files)), sorted(set(files) - listed)
            raise ArtifactError(f"members do not match the manifest's binaries: missing {missing}, not listed {extra}")
        binaries = []
        for binary in manifest.binaries:
            found = hashlib.sha256(files[binary.file]).hexdigest()
            if binary.sha256 and binary.sha256 != found:
                raise ArtifactError(
                    f"member {binary.file} is damaged: its sha256 is {found}, the manifest says {binary.sha256}"
                )
            binaries.append(dataclasses.replace(binary, sha256=found))
        self.manifest = dataclasses.replace(manifest, binaries=tuple(binaries))
        self.files: dict[str, bytes] = dict(files)

    def read(self, file: str) -> bytes:
        """Bytes of a member; ArtifactError if there is none of that name."""
        try:
            return self.files[file]
        except KeyError:
            raise ArtifactError(f"artifact {self.manifest.name} has no member {file!r}") from None

    @property
    def source(self) -> str | None:
        """The device source text that the manifest names, if any."""
        return None if self.manifest.source is None else self.read(self.manifest.source).decode("utf-8", "replace")

    @property
    def report(self) -> dict[str, Any] | None:
        """The compiler's report on the first variant, if any."""
        return None if self.manifest.report is None else self._object(self.manifest.report)

    @property
    def reports(self) -> list[dict[str, Any]]:
        """The compiler's reports, one for each compilation that was joined, in the order of the variants."""
        if self.manifest.report is None:
            return []
        later = (_variant_prefix(n) + self.manifest.report for n in range(1, len(self.manifest.variants)))
        return [self._object(name) for name in (self.manifest.report, *later) if name in self.files]

    def _object(self, name: str) -> dict[str, Any]:
        """A member that is a JSON object."""
        try:
            data = json.loads(self.read(name))
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"the report of {self.manifest.name} is not readable JSON: {error}") from None
        if not isinstance(data, dict):
            raise ArtifactError(f"the report of {self.manifest.name} is not an object")
        return data

    def joined(self, other: Artifact) -> Artifact:
        """This artifact and, after its own variants, those of `other`: the same kernel compiled for more calls.

        Members of `other` and its entries of `resources` are renamed; native entries, which know their variants, are left
        out. Raises ArtifactError if the two are not called in the same way.
        """
        mine, theirs = self.manifest.to_json(), other.manifest.to_json()
        for here, there in zip(mine["params"], theirs["params"], strict=False):  # what either variant does with it
            both = here["access"] + there["access"]
            here["access"] = there["access"] = "".join(x for x in "rw" if x in both.replace("none", "")) or "none"
        for name in ("name", "target", "params", "dims", "checks", "outputs", "workspace"):
            if mine[name] != theirs[name]:
                raise ArtifactError(f"two compilations of {self.manifest.name} differ in {name}: they cannot be joined")
        natives = {mine["native"]}, {theirs["native"]}
        maps = mine["tensormaps"] + [m for m in theirs["tensormaps"] if m not in mine["tensormaps"]]
        numbers = [maps.index(m) for m in theirs["tensormaps"]]
        prefix = _variant_prefix(len(mine["variants"]))
        for launch in (launch for variant in theirs["variants"] for launch in variant["launches"]):
            launch["binary"] = prefix + launch["binary"]
            launch["args"] = [[k, numbers[n]] if k == "tensormap" else [k, n, *rest] for k, n, *rest in launch["args"]]
        kept = [b for b in mine["binaries"] if b["file"] not in natives[0]]
        added = [{**b, "file": prefix + b["file"]} for b in theirs["binaries"] if b["file"] not in natives[1]]
        together = {
            **mine,
            "variants": [*mine["variants"], *theirs["variants"]],
            "binaries": [*kept, *added],
            "tensormaps": maps,
            "native": None,
            "resources": {**mine["resources"], **{prefix + name: used for name, used in theirs["resources"].items()}},
            "assumed": [*mine["assumed"], *(a for a in theirs["assumed"] if a not in mine["assumed"])],
        }
        files = {name: data for name, data in self.files.items() if name not in natives[0]}
        files |= {prefix + name: data for name, data in other.files.items() if name not in natives[1]}
        return Artifact(Manifest.from_json(together), files)

    def with_native(self, name: str, data: bytes) -> Artifact:
        """This artifact with a native entry (native_source.py) as its member `name`."""
        manifest = self.manifest.to_json()
        manifest["binaries"].append({"file": name, "kind": "elf"})
        return Artifact(Manifest.from_json({**manifest, "native": name}), {**self.files, name: data})

    def stripped(self) -> Artifact:
        """What launching needs: without source, report and tables for debuggers, and without a trace of the machine that
        compiled it. What is assumed names files without their folders; the key, which caches know an artifact of one
        installation by, is that of the content."""
        manifest = self.manifest.to_json()
        used = [b for b in manifest["binaries"] if b["kind"] not in ("source", "json", "text")]
        files = {b["file"]: self.files[b["file"]] for b in used}
        manifest |= {"binaries": used, "source": None, "report": None, "key": ""}
        manifest["assumed"] = [_FOLDER.sub("", text) for text in manifest["assumed"]]
        manifest["key"] = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
        return Artifact(Manifest.from_json(manifest), files)

    def to_bytes(self) -> bytes:
        """The `.tile` file."""
        text = self.manifest.to_text().encode()
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            for name, data in ((MANIFEST_FILE, text), *sorted(self.files.items())):
                info = zipfile.ZipInfo(name, _TIMESTAMP)
                info.create_system = 3  # else the byte differs between platforms
                info.external_attr = 0o644 << 16
                archive.writestr(info, data)
            archive.comment = _MAGIC + hashlib.sha256(text).hexdigest().encode()
        return buffer.getvalue()

    @staticmethod
    def from_bytes(data: bytes) -> Artifact:
        """Verified artifact of the bytes of a `.tile` file. Raises ArtifactError whatever is wrong with them."""
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                return _read_archive(archive)
        except (
            zipfile.BadZipFile,
            zipfile.LargeZipFile,
            EOFError,
            OSError,
            ValueError,
            RuntimeError,
            NotImplementedError,
        ) as error:
            if isinstance(error, ArtifactError):
                raise
            raise ArtifactError(f"not a readable .tile file: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file under a temporary name beside `path`, then renames it: readers see all of it or nothing."""
        write_atomically(Path(path), self.to_bytes())

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Artifact:
        """Reads and verifies a `.tile` file. OSError if it cannot be opened, ArtifactError if it is not sound."""
        if os.stat(path).st_size > MAX_FILE_BYTES:
            raise ArtifactError(f"{os.fspath(path)} is larger than {MAX_FILE_BYTES} bytes")
        try:
            return Artifact.from_bytes(Path(path).read_bytes())
        except ArtifactError as error:
            raise ArtifactError(f"{os.fspath(path)}: {str(error).removeprefix(error.code + ': ')}") from None


def _variant_prefix(number: int) -> str:
    """What the members of a variant that was joined begin with."""
    return f"variant{number}."


def _read_archive(archive: zipfile.ZipFile) -> Artifact:
    members = archive.infolist()
    if not archive.comment.startswith(_MAGIC):
        raise ArtifactError("not a .tile file: its zip comment does not start with 'tile1'")
    if not members or members[0].filename != MANIFEST_FILE:
        raise ArtifactError(f"not a .tile file: its first member is not {MANIFEST_FILE}")
    if len({m.filename for m in members}) != len(members):
        raise ArtifactError("two members have the same name")
    total = 0
    for member in members:
        # Stored only: a member cannot unpack to more than the file holds, whatever its header says.
        if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
            raise ArtifactError(f"member {member.filename[:80]!r} is compressed; .tile members are stored")
        total += member.file_size
    if total > MAX_FILE_BYTES or members[0].file_size > MAX_MANIFEST_BYTES:
        raise ArtifactError(f"declared sizes are beyond the limit of {MAX_FILE_BYTES} bytes")
    text = archive.read(members[0])
    if archive.comment != _MAGIC + hashlib.sha256(text).hexdigest().encode():
        raise ArtifactError(f"{MANIFEST_FILE} is damaged: its sha256 is not the one in the zip comment")
    manifest = Manifest.from_text(text)
    if any(not binary.sha256 for binary in manifest.binaries):
        raise ArtifactError("a member has no sha256 in the manifest")
    listed = {b.file for b in manifest.binaries}
    if listed != {m.filename for m in members[1:]}:
        raise ArtifactError("members do not match the manifest's binaries")
    artifact = Artifact.__new__(Artifact)
    artifact._assemble(manifest, {m.filename: archive.read(m) for m in members[1:]})
    return artifact
