"""Folders of prebuilt kernels: which one is taken, which are refused, and what is said where none is left."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tile_ops
from tile_ops.errors import KernelUnavailable
from tile_ops.kernel import KernelSpec, Target, prebuilt, resolve
from tile_ops.kernel.resolve import origin
from tile_ops.kernel.spec import source_digest, text_digest
from tile_runtime.artifact import Artifact
from tile_runtime.manifest import Manifest

SPEC = KernelSpec.of("normalization", "rms_norm", dtype="float16", number=0)


def artifact(arch: str) -> bytes:
    manifest = {"format": 1, "name": "rms_norm", "target": {"kind": "cuda", "arch": arch}}
    return prebuilt.packed(Artifact(Manifest.from_json(manifest), {}).to_bytes())


def folder(path: Path, archs: list[str], **changes: Any) -> Path:
    """A folder with SPEC for each architecture; `changes` go into the index or, if it knows them, into its entries."""
    entries = {}
    for arch in archs:
        content = artifact(arch)
        (path / f"{arch}.tile.xz").write_bytes(content)
        entry = {
            "file": f"{arch}.tile.xz",
            "sha256": hashlib.sha256(content).hexdigest(),
            "source": SPEC.source_digest(),
        }
        entries[SPEC.key(arch)] = entry | {k: v for k, v in changes.items() if k in entry}
    index = {"format": prebuilt.FORMAT, "version": tile_ops.__version__, "kernels": entries}
    (path / prebuilt.INDEX).write_text(json.dumps(index | {k: v for k, v in changes.items() if k in index}))
    return path


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """`installed(archs, **changes)` makes a folder the only one that is looked into."""
    monkeypatch.setattr(prebuilt.importlib.metadata, "entry_points", lambda group: [])
    monkeypatch.setenv("TILE_OPS_COMPILE", "0")
    monkeypatch.setattr(importlib.import_module("tile_ops.kernel.resolve"), "_loaded", {})

    def install(archs: list[str], **changes: Any) -> Path:
        monkeypatch.setenv("TILE_OPS_PREBUILT", str(folder(tmp_path, archs, **changes)))
        return tmp_path

    monkeypatch.setenv("TILE_OPS_PREBUILT", "")
    prebuilt._folders.cache_clear()
    yield install
    prebuilt._folders.cache_clear()


@pytest.mark.parametrize(
    ("device", "taken"),
    [
        ("sm_80", "sm_80"),
        ("sm_86", "sm_86"),
        ("sm_87", "sm_86"),
        ("sm_90a", "sm_89"),
        ("sm_120", "sm_89"),
        ("sm_75", ""),
    ],
)
def test_the_nearest_architecture_is_taken(installed, device, taken):
    installed(["sm_80", "sm_86", "sm_89"])
    found, reason = prebuilt.find(SPEC, Target("cuda", device))
    assert (found.arch if found else "") == taken
    assert reason == ("" if taken else "not among the prebuilt kernels")
    if found:
        assert found.load().manifest.target.arch == taken
        assert origin(SPEC, Target("cuda", device)) == ("prebuilt", f"{taken}.tile.xz for {taken}")


def test_a_wheel_that_is_installed_is_found(installed, monkeypatch, tmp_path):
    package = tmp_path / "own_prebuilt"
    package.mkdir()
    (package / "__init__.py").touch()
    folder(package, ["sm_80"])
    monkeypatch.syspath_prepend(str(tmp_path))
    entry = prebuilt.importlib.metadata.EntryPoint("cuda", "own_prebuilt", prebuilt.GROUP)
    monkeypatch.setattr(
        prebuilt.importlib.metadata, "entry_points", lambda group: [entry] if group == prebuilt.GROUP else []
    )
    found, _ = prebuilt.find(SPEC, Target("cuda", "sm_80"))
    assert found is not None
    assert found.path == package / "sm_80.tile.xz"


def test_a_kernel_of_other_source_is_refused(installed):
    path = installed(["sm_80"], source="0" * 64)
    found, reason = prebuilt.find(SPEC, Target("cuda", "sm_80"))
    assert found is None
    assert reason == f"the prebuilt one in {path} was made from another normalization/kernels.py"


def test_a_damaged_file_is_refused(installed):
    path = installed(["sm_80"])
    found, _ = prebuilt.find(SPEC, Target("cuda", "sm_80"))
    (path / "sm_80.tile.xz").write_bytes(artifact("sm_80")[:-1])
    with pytest.raises(KernelUnavailable, match=r"sm_80.tile.xz is damaged: its sha256 is .* install the wheel again"):
        found.load()


def test_a_python_without_liblzma_is_told_so(installed, monkeypatch):
    installed(["sm_80"])
    found, _ = prebuilt.find(SPEC, Target("cuda", "sm_80"))
    monkeypatch.setitem(sys.modules, "lzma", None)
    with pytest.raises(
        KernelUnavailable, match="this Python was built without liblzma .* use one with the module lzma"
    ):
        found.load()


def test_variants_that_are_alike_take_little_room():
    """Farther apart than deflate, which packs wheels, looks back."""
    variant = hashlib.shake_256(b"a variant").digest(1 << 17)
    assert len(prebuilt.packed(variant * 3)) < 1.1 * len(variant)
    assert prebuilt.unpacked(prebuilt.packed(variant * 3)) == variant * 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": "0.0.1"}, "are of format 2, version 0.0.1; tile_ops .* install both at one version"),
        ({"format": 1}, "are of format 1, version .*; tile_ops .* needs format 2"),
    ],
)
def test_a_folder_of_another_version_is_refused(installed, change, said):
    installed(["sm_80"], **change)
    with pytest.raises(KernelUnavailable, match=said):
        prebuilt.find(SPEC, Target("cuda", "sm_80"))


def test_a_folder_without_an_index_is_refused(installed, monkeypatch, tmp_path):
    monkeypatch.setenv("TILE_OPS_PREBUILT", str(tmp_path))
    with pytest.raises(KernelUnavailable, match="holds no index of prebuilt kernels"):
        prebuilt.find(SPEC, Target("cuda", "sm_80"))


def test_without_kernel_and_compiler_the_error_says_what_to_install(installed):
    with pytest.raises(KernelUnavailable) as caught:
        resolve(SPEC, Target("cuda", "sm_80"))
    assert str(caught.value) == (
        "no kernel normalization.rms_norm(dtype='float16', number=0) for cuda -arch=sm_80: no prebuilt kernels are "
        "installed, and none can be compiled; install tile-ops[compile], or unset TILE_OPS_COMPILE if it is 0"
    )
    assert origin(SPEC, Target("cuda", "sm_80"))[0] == "unavailable"


def test_the_emulator_takes_no_prebuilt_kernel(installed):
    installed(["sm_80"])
    found, reason = origin(SPEC, Target("cuda", "sm_80", "emulate"))
    assert found == "unavailable"
    assert reason.startswith("shipped kernels run on devices only; ")


def test_explain_prints_kernel_origin_and_reason(installed):
    x = torch.ones(2, 48)
    said = str(tile_ops.explain(tile_ops.rms_norm, x, x[0], eps=0.25))
    first, second = said.splitlines()
    assert first.startswith("rms_norm on cpu (x86-64-v")
    assert "rows of 48 are read from memory once and then from a cache (measured: " in first
    assert second.startswith("  forward: normalization.rms_norm_cached(activation=None, block_columns=")
    assert second.endswith(
        "from unavailable (no prebuilt kernels are installed; install tile-ops[compile], or unset "
        "TILE_OPS_COMPILE if it is 0)"
    )


def test_the_text_of_a_kernel_is_its_function_and_what_that_names(monkeypatch):
    parts = {
        "imports": "import math\n",
        "WIDTH": "WIDTH = 4\n",
        "OTHER": "OTHER = 8\n",
        "helper": "def helper(x):\n    return x * WIDTH\n",
        "made": "@helper\ndef made(n=1):\n    return helper(n)\n",
        "beside": "def beside():\n    return OTHER\n",
    }

    def digest(**changed: str) -> str:
        text = "\n".join((parts | changed).values())
        monkeypatch.setattr(spec_module, "text_of", lambda family: text.encode())
        spec_module.source_digest.cache_clear()
        return KernelSpec.of("normalization", "made").source_digest()

    spec_module = importlib.import_module("tile_ops.kernel.spec")
    first = digest()
    assert digest(OTHER="OTHER = 9\n", beside="def beside(x):\n    return x\n") == first
    changes = {"imports": "import struct\n", "WIDTH": "WIDTH = 5\n", "helper": "def helper(x):\n    return x + WIDTH\n"}
    changes["made"] = parts["made"].replace("n=1", "n=2")
    assert len({digest(**{name: text}) for name, text in changes.items()} | {first}) == 5
    spec_module.source_digest.cache_clear()


def test_the_text_of_a_kernel_holds_that_of_functions_of_other_families(monkeypatch):
    made = "from tile_ops.other.kernels import helper as of_other, unused\n\n\ndef made():\n    return of_other()\n"
    helper, unused = "def helper():\n    return 1\n", "def unused():\n    return 2\n"

    def digests(*other: str) -> tuple[str, str]:
        texts = {"family": made, "other": "\n\n".join(other)}
        monkeypatch.setattr(spec_module, "text_of", lambda family: texts[family].encode())
        spec_module.source_digest.cache_clear()
        spec_module.text_digest.cache_clear()
        return KernelSpec.of("family", "made").source_digest(), spec_module.text_digest("family")

    spec_module = importlib.import_module("tile_ops.kernel.spec")
    source, text = digests(helper, unused)
    assert digests(helper.replace("1", "3"), unused)[0] != source
    found = digests(helper, unused.replace("2", "3"))
    assert found[0] == source
    assert found[1] != text, "so that the function is looked at"
    spec_module.source_digest.cache_clear()
    spec_module.text_digest.cache_clear()


def test_where_the_texts_are_the_same_no_function_is_looked_for(installed, monkeypatch):
    """And where they are not, the kernel's own text counts."""
    path = installed(["sm_80"])
    index = json.loads((path / prebuilt.INDEX).read_text())
    for texts, looked in (({SPEC.family: text_digest(SPEC.family)}, 0), ({SPEC.family: "another"}, 1), ({}, 1)):
        (path / prebuilt.INDEX).write_text(json.dumps(index | {"texts": texts}))
        prebuilt._folders.cache_clear()
        asked = []
        monkeypatch.setattr(
            KernelSpec, "source_digest", lambda spec: asked.append(spec) or source_digest(spec.family, spec.function)
        )
        found, _ = prebuilt.find(SPEC, Target("cuda", "sm_80"))
        assert found is not None
        assert len(asked) == looked
