from __future__ import annotations

import hashlib
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_runtime.artifact import Artifact
from tile_runtime.errors import ArtifactError
from tile_runtime.manifest import Manifest


@pytest.fixture
def artifact(add: dict[str, Any]) -> Artifact:
    add["binaries"] += [{"file": "src/add.c", "kind": "source"}, {"file": "report.json", "kind": "json"}]
    add |= {"source": "src/add.c", "report": "report.json"}
    files = {"add.o": b"\x7fELF", "src/add.c": b"int x;", "report.json": b'{"bound": "memory"}'}
    return Artifact(Manifest.from_json(add), files)


def test_file_round_trip(artifact: Artifact, tmp_path: Path) -> None:
    artifact.save(tmp_path / "add.tile")
    loaded = Artifact.load(tmp_path / "add.tile")
    assert loaded.manifest == artifact.manifest
    assert loaded.files == artifact.files
    assert loaded.read("add.o") == b"\x7fELF"
    assert loaded.source == "int x;"
    assert loaded.report == {"bound": "memory"}
    assert [p.name for p in tmp_path.iterdir()] == ["add.tile"]  # no temporary file stays


def test_equal_content_gives_equal_bytes_and_the_manifest_is_first(artifact: Artifact) -> None:
    again = Artifact(artifact.manifest, dict(reversed(artifact.files.items())))
    assert again.to_bytes() == artifact.to_bytes()
    with zipfile.ZipFile(io.BytesIO(artifact.to_bytes())) as archive:
        infos = archive.infolist()
        assert infos[0].filename == "manifest.json"
        assert {i.compress_type for i in infos} == {zipfile.ZIP_STORED}
        assert archive.testzip() is None


def test_a_manifest_built_by_hand_is_checked(artifact: Artifact) -> None:
    import dataclasses

    wrong = dataclasses.replace(artifact.manifest, outputs=("Z",))
    with pytest.raises(ArtifactError, match="output 'Z'"):
        Artifact(wrong, artifact.files)


def test_members_must_be_those_of_the_manifest(artifact: Artifact) -> None:
    with pytest.raises(ArtifactError, match=r"missing \['add.o'\], not listed \['b.o'\]"):
        Artifact(artifact.manifest, {"b.o": b"", "src/add.c": b"", "report.json": b""})
    with pytest.raises(ArtifactError, match=r"member add\.o is damaged"):
        Artifact(artifact.manifest, {**artifact.files, "add.o": b"other"})
    with pytest.raises(ArtifactError, match="has no member 'x'"):
        artifact.read("x")


def _zip(
    members: list[tuple[str, bytes]], comment: bytes | None = None, compression: int = zipfile.ZIP_STORED
) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, compression)
        digest = hashlib.sha256(members[0][1]).hexdigest().encode() if members else b""
        archive.comment = b"tile1 " + digest if comment is None else comment
    return buffer.getvalue()


def test_hostile_and_foreign_files_are_refused_with_a_reason(artifact: Artifact) -> None:
    text = artifact.manifest.to_text().encode()
    members = list(artifact.files.items())
    unsigned = artifact.manifest.to_text().replace(hashlib.sha256(b"\x7fELF").hexdigest(), "").encode()
    cases = {
        "not a readable .tile file": [b"", b"PK", pickle.dumps({"a": 1}), b"\x00" * 1000, artifact.to_bytes()[:-200]],
        "zip comment does not start": [_zip([("a", b"1")], comment=b"")],
        "first member is not manifest.json": [_zip([("a.o", b"1"), ("manifest.json", text)]), _zip([])],
        "is damaged: its sha256 is not the one": [
            _zip([("manifest.json", text), *members], comment=b"tile1 " + b"0" * 64)
        ],
        "is compressed": [_zip([("manifest.json", text), *members], compression=zipfile.ZIP_DEFLATED)],
        "members do not match": [
            _zip([("manifest.json", text)]),
            _zip([("manifest.json", text), *members, ("../../evil", b"x")]),
        ],
        "member add.o is damaged": [_zip([("manifest.json", text), ("add.o", b"\x7fELG"), *members[1:]])],
        "has no sha256": [_zip([("manifest.json", unsigned), *members])],
        "not readable JSON": [_zip([("manifest.json", b"{")])],
        "is missing": [_zip([("manifest.json", b"{}")])],
    }
    for expected, files in cases.items():
        for data in files:
            with pytest.raises(ArtifactError) as caught:
                Artifact.from_bytes(data)
            assert expected in str(caught.value)


def test_huge_declared_sizes_are_refused_before_anything_is_read(artifact: Artifact) -> None:
    data = bytearray(artifact.to_bytes())
    directory = data.rindex(b"PK\x01\x02")  # the central directory's last entry: compressed and full size at 20 and 24
    data[directory + 20 : directory + 28] = (0xFFFFFFF0).to_bytes(4, "little") * 2
    with pytest.raises(ArtifactError):
        Artifact.from_bytes(bytes(data))


def test_two_members_of_one_name_are_refused(artifact: Artifact) -> None:
    text = artifact.manifest.to_text().encode()
    with pytest.warns(UserWarning, match="Duplicate name"):
        data = _zip([("manifest.json", text), *artifact.files.items(), ("add.o", b"second")])
    with pytest.raises(ArtifactError, match="same name"):
        Artifact.from_bytes(data)


@given(st.data())
def test_one_flipped_byte_is_noticed_or_harmless(data: st.DataObject) -> None:
    manifest = Manifest.from_json(
        {"format": 1, "name": "k", "target": {"kind": "cpu"}, "binaries": [{"file": "a", "kind": "text"}]}
    )
    original = Artifact(manifest, {"a": b"content of a member"})
    whole = bytearray(original.to_bytes())
    position = data.draw(st.integers(0, len(whole) - 1))
    whole[position] ^= data.draw(st.integers(1, 255))
    try:
        found = Artifact.from_bytes(bytes(whole))
    except ArtifactError:
        return
    assert (found.manifest, found.files) == (original.manifest, original.files)  # a timestamp, say


def test_load_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.tile").write_bytes(b"no zip")
    with pytest.raises(ArtifactError, match=r"x\.tile: not a readable"):
        Artifact.load(tmp_path / "x.tile")
    with pytest.raises(FileNotFoundError):
        Artifact.load(tmp_path / "missing.tile")


def test_joined_compilations_keep_their_own_binaries(artifact: Artifact) -> None:
    first, second = artifact.manifest.to_json(), artifact.manifest.to_json()
    first["variants"][0]["guard"] = ["==", ["floormod", ["address", "A"], 16], 0]
    second["binaries"] = [{k: v for k, v in b.items() if k != "sha256"} for b in second["binaries"]]
    second["params"][0]["access"], first["params"][0]["access"] = "r", "none"
    other = Artifact(Manifest.from_json(second), {**artifact.files, "add.o": b"\x7fELF general"})
    both = Artifact(Manifest.from_json(first), artifact.files).joined(other)
    guarded, general = both.manifest.variants
    assert guarded.guard is not None
    assert general.guard is None
    assert both.read(guarded.launches[0].binary) == b"\x7fELF"
    assert both.read(general.launches[0].binary) == b"\x7fELF general"
    assert both.manifest.params[0].access == "r"
    assert both.source == "int x;"
    assert Artifact.from_bytes(both.to_bytes()).manifest == both.manifest


def test_different_kernels_are_not_joined(artifact: Artifact) -> None:
    with pytest.raises(ArtifactError, match="two compilations of add differ in outputs: they cannot be joined"):
        artifact.joined(Artifact(artifact.manifest.replace(outputs=[]), artifact.files))


def test_joined_compilations_share_their_tensor_maps(artifact: Artifact) -> None:
    """A map that both declare stands once; launches of the second name what it became."""

    def declaring(*widths: int) -> Artifact:
        manifest = artifact.manifest.to_json()
        manifest["tensormaps"] = [{"param": "A", "dtype": "float32", "box": [w, 1]} for w in widths]
        manifest["variants"][0]["launches"][0]["args"] = [["tensormap", n] for n in range(len(widths))]
        return Artifact(Manifest.from_json(manifest), artifact.files)

    both = declaring(4, 8).joined(declaring(16, 8)).manifest
    assert [m.box for m in both.tensormaps] == [(4, 1), (8, 1), (16, 1)]
    assert [v.launches[0].args for v in both.variants] == [
        (("tensormap", 0), ("tensormap", 1)),
        (("tensormap", 2), ("tensormap", 1)),
    ]
