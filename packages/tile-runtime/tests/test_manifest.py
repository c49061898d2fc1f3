from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_runtime.errors import ArtifactError
from tile_runtime.manifest import Manifest


def test_json_round_trip(add: dict[str, Any]) -> None:
    manifest = Manifest.from_json(add)
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert Manifest.from_text(manifest.to_text()) == manifest
    assert manifest.to_text() == Manifest.from_text(manifest.to_text()).to_text()
    assert next(iter(manifest.to_json())) == "format"


def test_defaults_follow_the_dtype(add: dict[str, Any]) -> None:
    add["params"] += [
        {"name": "D", "dtype": "int4", "shape": [16]},
        {"name": "E", "dtype": "tfloat32", "shape": [16]},
        {"name": "F", "dtype": "float16", "shape": [16]},
    ]
    d, e, f = Manifest.from_json(add).params[3:]
    assert (d.storage, d.align, e.storage, e.align, f.storage, f.align) == ("int8", 1, "float32", 4, "float16", 2)


def _change(path: list[Any], value: Any) -> Any:
    return path, value


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (["format"], 2, "manifest has format 2, this tile-runtime reads format 1: rebuild"),
        (["format"], "1", "manifest.format is not an integer"),
        (["surprise"], 1, "manifest has unknown field(s) surprise"),
        (["name"], "", "manifest.name is empty"),
        (["target"], [], "target is not an object but tuple"),
        (["target", "kind"], "../x", "target.kind is not a name"),
        (["params", 0, "name"], "a; import os", "params[0].name is not a name"),
        (["params", 0, "dtype"], "float99", "'float99' is not a dtype of a kernel parameter"),
        (["params", 0, "storage"], "int64", "storage int64 cannot carry float32"),
        (["params", 0, "align"], 12, "no power of two"),
        (["params", 0, "align"], True, "is not an integer between"),
        (["params", 0, "access"], "x", "expected one of r, w, rw, none"),
        (["params", 0, "strides"], [1], "2 extents and 1 strides"),
        (["params", 1, "name"], "A", "params holds 'A' twice"),
        (["params", 0, "shape"], [["dim", "q"], 64], "dim 'q' is not one that may be used here"),
        (["params", 0, "shape"], 64, "shape is not a list"),
        (["dims", 0, "param"], "Z", "bound to Z, which is no tensor parameter"),
        (["dims", 0, "axis"], 2, "axis 2 of A, whose rank is 2"),
        (["dims", 0, "of"], "strides", "bound to a stride of A, which is contiguous"),
        (["outputs"], ["Z"], "output 'Z' is no tensor parameter"),
        (["checks"], [{"expr": ["dim", "q"]}], "checks[0].expr"),
        (["workspace"], [{"bytes": ["+", 1]}], "workspace[0].bytes"),
        (["source"], "k.cu", "'k.cu' is not listed in binaries with kind 'source'"),
        (["binaries", 0, "file"], "../../etc/passwd", "not an acceptable member name"),
        (["binaries", 0, "file"], "/abs", "not an acceptable member name"),
        (["binaries", 0, "file"], "manifest.json", "not an acceptable member name"),
        (["binaries", 0, "sha256"], "zz", "not 64 lower-case hexadecimal digits"),
        (["binaries", 0, "kind"], "exe", "expected one of elf"),
        (["variants", 0, "guard"], "1", "expected an integer or a list"),
        (["variants", 0, "launches", 0, "binary"], "b.o", "is not listed in binaries"),
        (["variants", 0, "launches", 0, "grid"], [1, 1], "has 2 entries; expected three"),
        (["variants", 0, "launches", 0, "cluster"], [0, 1, 1], "cluster is not three integers"),
        (["variants", 0, "launches", 0, "args"], [["eval", "x"]], "is not [kind, ...]"),
        (["variants", 0, "launches", 0, "args"], [["param", "Z"]], "'Z' is no parameter"),
        (["variants", 0, "launches", 0, "args"], [["param", []]], "is no parameter"),
        (["variants", 0, "launches", 0, "args"], [["workspace", 0]], "there is no workspace 0"),
        (["variants", 0, "launches", 0, "args"], [["value", "float32", 1]], "is no integer dtype"),
        (["variants", 0, "launches", 0, "symbol"], 3, "symbol is not a text"),
    ],
)
def test_contradictions_are_named(add: dict[str, Any], path: list[Any], value: Any, text: str) -> None:
    place: Any = add
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(ArtifactError, match="TLR001") as caught:
        Manifest.from_json(add)
    assert text in str(caught.value)


MAP = {"param": "A", "dtype": "float32", "box": [32, 8]}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"param": "Z"}, "tensormaps[0].param 'Z' is no tensor parameter with a shape"),
        ({"box": [32]}, "extents of ranks [1, 2]; expected one rank of 1 to 5"),
        ({"box": [32, 300]}, "box (32, 300); expected extents of 1 to 256"),
        ({"box": [32, "8"]}, "tensormaps[0].box is not a list of integers"),
        ({"box": [3, 8]}, "rows of 12 bytes; expected a multiple of 16"),
        ({"swizzle": 64}, "rows of 128 bytes; expected at most the swizzle of 64"),
        ({"swizzle": 48}, "swizzle 48; expected 0, 32, 64 or 128"),
        ({"interleave": 32}, "interleave of rank 2; expected rank 3 or more"),
        ({"fill": "one"}, "fill 'one'; expected 'zero' or 'nan'"),
        ({"l2_promotion": 512}, "L2 promotion 512"),
        ({"element_strides": [1, 9]}, "element strides (1, 9); expected 1 to 8"),
        ({"dtype": "int4"}, "elements of type int4; expected one of uint8"),
        ({"shape": [64, ["dim", "q"]], "strides": [64]}, "dim 'q' is not one that may be used here"),
        ({"shape": [64, 8], "strides": [3]}, "strides of (12,) bytes; expected multiples of 16 bytes"),
        ({"shape": [64, 8]}, "extents of ranks [1, 2]"),
        ({"colour": 1}, "tensormaps[0] has unknown field(s) colour"),
    ],
)
def test_tensor_maps_that_cannot_be(add: dict[str, Any], change: dict[str, Any], text: str) -> None:
    Manifest.from_json({**add, "tensormaps": [MAP]})
    with pytest.raises(ArtifactError) as caught:
        Manifest.from_json({**add, "tensormaps": [{**MAP, **change}]})
    assert text in str(caught.value)


def test_a_tensor_map_of_a_parameter_with_strides(add: dict[str, Any]) -> None:
    add["params"][0]["strides"] = [["dim", "n"], 1]
    manifest = Manifest.from_json({**add, "tensormaps": [MAP]})
    assert manifest.tensormaps[0].dimensions(manifest.params[0])[1] == (("dim", "n"),)
    add["params"][0]["strides"] = [None, 1]
    with pytest.raises(ArtifactError, match="takes its strides from A, whose strides are not all known"):
        Manifest.from_json({**add, "tensormaps": [MAP]})
    explicit = {"shape": [64, ["dim", "n"]], "strides": [128]}
    assert Manifest.from_json({**add, "tensormaps": [{**MAP, **explicit}]}).tensormaps[0].strides == (128,)


@pytest.mark.parametrize("field", ["format", "name", "target"])
def test_missing_fields_are_named(add: dict[str, Any], field: str) -> None:
    del add[field]
    with pytest.raises(ArtifactError, match=f"manifest.{field} is missing"):
        Manifest.from_json(add)


@pytest.mark.parametrize(
    "text", ["", "[", "NaN", '{"format": 1e999}', "[" * 100_000, "9" * 10_000, "\x00", '{"a": Infinity}']
)
def test_text_that_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(ArtifactError):
        Manifest.from_text(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.data())
def test_any_value_in_any_place_is_accepted_or_refused_but_never_a_crash(data: st.DataObject) -> None:
    from json import loads

    manifest = copy.deepcopy(loads(json.dumps(_BASE)))
    place: Any = manifest
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(json_values)
    try:
        accepted = Manifest.from_json(manifest)
    except ArtifactError:
        return
    assert Manifest.from_json(accepted.to_json()) == accepted


_BASE: dict[str, Any] = {
    "format": 1,
    "name": "k",
    "target": {"kind": "cpu", "arch": "", "features": []},
    "params": [
        {"name": "A", "kind": "tensor", "dtype": "int4", "shape": [["dim", "n"], 8], "strides": [["dim", "t"], 1]},
        {"name": "s", "kind": "scalar", "dtype": "int32"},
    ],
    "dims": [
        {"name": "n", "param": "A", "axis": 0, "of": "shape", "scale": 2, "offset": 0},
        {"name": "t", "param": "A", "axis": 0, "of": "strides"},
    ],
    "checks": [{"expr": [">", ["param", "s"], 0], "code": "c", "message": "m"}],
    "outputs": ["A"],
    "workspace": [{"bytes": ["*", ["dim", "n"], 4], "zero": True}],
    "variants": [
        {
            "guard": ["==", ["floormod", ["address", "A"], 16], 0],
            "launches": [
                {"binary": "a.o", "symbol": "s", "grid": [1, 1, 1], "args": [["param", "A"], ["workspace", 0]]}
            ],
        }
    ],
    "binaries": [{"file": "a.o", "kind": "elf"}],
}
