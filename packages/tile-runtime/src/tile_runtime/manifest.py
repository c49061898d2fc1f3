"""The manifest of an artifact: what a launch needs to know, as frozen values, to and from JSON.

`Manifest.from_json` takes what `json.loads` gives and checks all of it: types, ranges, references between parts, every
expression. What passes can be launched without further checks of the manifest; what does not raises ArtifactError.
docs/internals/runtime.md describes the fields.
"""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass, field
from typing import Any

from .errors import ArtifactError
from .expression import Expression
from .fields import Fields
from .manifest_check import check_manifest

FORMAT = 1
MANIFEST_FILE = "manifest.json"
BINARY_KINDS = ("elf", "cubin", "ptx", "hsaco", "source", "json", "text")
PARAM_KINDS = ("tensor", "scalar", "pointer")
ACCESSES = ("r", "w", "rw", "none")

#: Member names: relative, one or more plain path parts, no dot at the start of any.
FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,120}(/[A-Za-z0-9_][A-Za-z0-9_.+-]{0,120}){0,4}")
MAX_PARAMS = 256


@dataclass(frozen=True)
class Target:
    """What the binaries run on: kind ("cpu", "cuda", "hip"), arch ("x86-64-v3", "sm_90a") and further features."""

    kind: str
    arch: str = ""
    features: tuple[str, ...] = ()

    @staticmethod
    def read(data: Any) -> Target:
        f = Fields(data, "target")
        value = Target(f.name("kind"), f.text("arch", ""), f.texts("features", ()))
        f.done()
        return value


@dataclass(frozen=True)
class Param:
    """One parameter in call order. `shape` and `strides` are logical elements; `align` is in bytes."""

    name: str
    kind: str
    dtype: str
    storage: str
    shape: tuple[Expression, ...] = ()
    strides: tuple[Expression | None, ...] | None = None
    align: int = 1
    access: str = "rw"

    @staticmethod
    def read(data: Any, index: int) -> Param:
        f = Fields(data, f"params[{index}]")
        kind = f.choice("kind", PARAM_KINDS, "tensor")
        dtype = f.dtype("dtype")
        info = f.dtype_info(dtype)
        value = Param(
            name=f.name("name"),
            kind=kind,
            dtype=dtype,
            storage=f.dtype("storage", info.storage),
            shape=tuple(f.items("shape", ())),
            strides=None if f.peek("strides") is None else tuple(f.items("strides", ())),
            align=f.integer("align", info.itemsize, low=1, high=1 << 20),
            access=f.choice("access", ACCESSES, "rw"),
        )
        f.skip("strides")
        f.done()
        return value


@dataclass(frozen=True)
class Dim:
    """A symbolic extent: what `param` has at `axis` (of its shape or strides, in elements) is scale * dim + offset."""

    name: str
    param: str
    axis: int
    of: str = "shape"
    scale: int = 1
    offset: int = 0

    @staticmethod
    def read(data: Any, index: int) -> Dim:
        f = Fields(data, f"dims[{index}]")
        value = Dim(
            name=f.name("name"),
            param=f.name("param"),
            axis=f.integer("axis", low=0, high=63),
            of=f.choice("of", ("shape", "strides"), "shape"),
            scale=f.integer("scale", 1, low=1, high=1 << 40),
            offset=f.integer("offset", 0, low=-(1 << 40), high=1 << 40),
        )
        f.done()
        return value


@dataclass(frozen=True)
class Check:
    """A declared fact: `expr` is not zero on any call. `message` is for the user, `code` a stable name."""

    expr: Expression
    code: str = ""
    message: str = ""

    @staticmethod
    def read(data: Any, index: int) -> Check:
        f = Fields(data, f"checks[{index}]")
        value = Check(f.value("expr"), f.text("code", ""), f.text("message", ""))
        f.done()
        return value


@dataclass(frozen=True)
class Workspace:
    """Memory allocated for one call: `bytes` (an expression), set to zero or not, address a multiple of `align`."""

    bytes: Expression
    zero: bool = False
    align: int = 64

    @staticmethod
    def read(data: Any, index: int) -> Workspace:
        f = Fields(data, f"workspace[{index}]")
        value = Workspace(f.value("bytes"), f.boolean("zero", False), f.integer("align", 64, low=1, high=1 << 20))
        f.done()
        return value


@dataclass(frozen=True)
class TensorMapping:
    """A tensor map that launches make of `param` (tile_runtime.tensor_map says what a map is).

    Dimensions run from the fastest to the slowest. `shape` and `strides` (one less, of dimensions 1, 2, ...) are expressions
    in elements of `dtype`; empty ones are those of the parameter.
    """

    param: str
    dtype: str
    box: tuple[int, ...]
    shape: tuple[Expression, ...] = ()
    strides: tuple[Expression, ...] = ()
    element_strides: tuple[int, ...] = ()
    swizzle: int = 0
    interleave: int = 0
    l2_promotion: int = 128
    fill: str = "zero"

    @staticmethod
    def read(data: Any, index: int) -> TensorMapping:
        f = Fields(data, f"tensormaps[{index}]")
        value = TensorMapping(
            param=f.name("param"),
            dtype=f.dtype("dtype"),
            box=f.integers("box"),
            shape=tuple(f.items("shape", ())),
            strides=tuple(f.items("strides", ())),
            element_strides=f.integers("element_strides", ()),
            swizzle=f.integer("swizzle", 0),
            interleave=f.integer("interleave", 0),
            l2_promotion=f.integer("l2_promotion", 128),
            fill=f.text("fill", "zero"),
        )
        f.done()
        return value

    def dimensions(self, param: Param) -> tuple[tuple[Expression, ...], tuple[Expression, ...]]:
        """Shape and strides as expressions in elements, fastest first; `param` is the parameter of that name."""
        shape = self.shape or param.shape[::-1]
        if self.strides or self.shape:
            return shape, self.strides
        if param.strides is not None:
            return shape, tuple(s for s in param.strides[-2::-1] if s is not None)
        strides: list[Expression] = []
        for extent in shape[:-1]:
            strides.append(("*", strides[-1], extent) if strides else extent)
        return shape, tuple(strides)


@dataclass(frozen=True)
class Launch:
    """One kernel launch: a symbol of a binary over a grid. `args` are (kind, ...) tuples as the doc page lists them."""

    binary: str
    symbol: str
    grid: tuple[Expression, Expression, Expression] = (1, 1, 1)
    block: tuple[Expression, Expression, Expression] = (1, 1, 1)
    cluster: tuple[int, int, int] | None = None
    shared: Expression = 0
    args: tuple[tuple[Any, ...], ...] = ()
    cooperative: bool = False
    pdl: bool = False
    prints: tuple[dict[str, Any], ...] = ()
    errors: tuple[str, ...] = ()

    @staticmethod
    def read(data: Any, where: str) -> Launch:
        f = Fields(data, where)
        cluster = None if f.peek("cluster") is None else f.three("cluster")
        f.skip("cluster")
        value = Launch(
            binary=f.text("binary"),
            symbol=f.text("symbol"),
            grid=f.three("grid", (1, 1, 1)),
            block=f.three("block", (1, 1, 1)),
            cluster=cluster,
            shared=f.value("shared", 0),
            args=tuple(f.argument(x, i) for i, x in enumerate(f.items("args", ()))),
            cooperative=f.boolean("cooperative", False),
            pdl=f.boolean("pdl", False),
            prints=f.dicts("prints"),
            errors=f.texts("errors", ()),
        )
        f.done()
        return value


@dataclass(frozen=True)
class Variant:
    """Launches that are right where `guard` (an expression, or None for always) holds."""

    guard: Expression | None = None
    launches: tuple[Launch, ...] = ()

    @staticmethod
    def read(data: Any, index: int) -> Variant:
        f = Fields(data, f"variants[{index}]")
        launches = f.items("launches", ())
        value = Variant(
            f.value("guard", None),
            tuple(Launch.read(x, f"variants[{index}].launches[{i}]") for i, x in enumerate(launches)),
        )
        f.done()
        return value


@dataclass(frozen=True)
class Binary:
    """A member file. An empty sha256 is filled in by Artifact; in a stored manifest it is always there."""

    file: str
    kind: str
    sha256: str = ""

    @staticmethod
    def read(data: Any, index: int) -> Binary:
        f = Fields(data, f"binaries[{index}]")
        value = Binary(f.text("file"), f.choice("kind", BINARY_KINDS), f.text("sha256", ""))
        if not FILE_NAME.fullmatch(value.file) or value.file == MANIFEST_FILE:
            raise ArtifactError(f"binaries[{index}].file is not an acceptable member name: {value.file[:200]!r}")
        if value.sha256 and not re.fullmatch(r"[0-9a-f]{64}", value.sha256):
            raise ArtifactError(f"binaries[{index}].sha256 is not 64 lower-case hexadecimal digits")
        f.done()
        return value


@dataclass(frozen=True)
class Manifest:
    """All that a launch and the cache know about a kernel. Construct through `from_json` to have it checked."""

    name: str
    target: Target
    key: str = ""
    min_driver: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    params: tuple[Param, ...] = ()
    dims: tuple[Dim, ...] = ()
    checks: tuple[Check, ...] = ()
    outputs: tuple[str, ...] = ()
    workspace: tuple[Workspace, ...] = ()
    tensormaps: tuple[TensorMapping, ...] = ()
    variants: tuple[Variant, ...] = ()
    binaries: tuple[Binary, ...] = ()
    resources: dict[str, Any] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    source: str | None = None
    report: str | None = None
    native: str | None = None
    format: int = FORMAT

    @staticmethod
    def from_json(data: Any) -> Manifest:
        """Checked manifest of a decoded JSON value; ArtifactError says which field is wrong and why."""
        try:
            return _read(data)
        except RecursionError:
            raise ArtifactError("manifest is nested too deeply") from None

    @staticmethod
    def from_text(text: str | bytes) -> Manifest:
        """Checked manifest of JSON text."""

        def refuse(constant: str) -> Any:
            raise ValueError(f"{constant} is not allowed")

        try:
            data = json.loads(text, parse_constant=refuse)
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"{MANIFEST_FILE} is not readable JSON: {error}") from None
        return Manifest.from_json(data)

    def to_json(self) -> dict[str, Any]:
        """The manifest as plain dicts and lists; `from_json` of it is equal to this manifest."""
        data = dataclasses.asdict(self)
        # The format stands first so that a reader of another version sees it at once.
        plain: dict[str, Any] = _plain({"format": data.pop("format"), **data})
        return plain

    def to_text(self) -> str:
        """JSON text; equal manifests give equal text."""
        return json.dumps(self.to_json(), indent=1, ensure_ascii=True, allow_nan=False) + "\n"

    def param(self, name: str) -> Param:
        """The parameter of that name; KeyError if there is none."""
        return next((p for p in self.params if p.name == name), None) or _missing(name)

    def replace(self, **changes: Any) -> Manifest:
        """A checked copy with other field values (as JSON or as the classes here)."""
        return Manifest.from_json(_plain({**self.to_json(), **{k: _as_plain(v) for k, v in changes.items()}}))


def _read(data: Any) -> Manifest:
    f = Fields(data, "manifest")
    found = f.integer("format")
    if found != FORMAT:
        raise ArtifactError(
            f"manifest has format {found}, this tile-runtime reads format {FORMAT}: "
            "rebuild the artifact, or install the tile-runtime version that matches it"
        )
    driver = f.value("min_driver", None)
    if driver is not None and (not isinstance(driver, int) or isinstance(driver, bool)):
        raise ArtifactError("manifest.min_driver is neither null nor an integer")
    manifest = Manifest(
        name=f.text("name"),
        target=Target.read(f.value("target")),
        key=f.text("key", ""),
        min_driver=driver,
        versions=f.text_dict("versions"),
        params=tuple(Param.read(x, i) for i, x in enumerate(f.items("params", ()))),
        dims=tuple(Dim.read(x, i) for i, x in enumerate(f.items("dims", ()))),
        checks=tuple(Check.read(x, i) for i, x in enumerate(f.items("checks", ()))),
        outputs=f.texts("outputs", ()),
        workspace=tuple(Workspace.read(x, i) for i, x in enumerate(f.items("workspace", ()))),
        tensormaps=tuple(TensorMapping.read(x, i) for i, x in enumerate(f.items("tensormaps", ()))),
        variants=tuple(Variant.read(x, i) for i, x in enumerate(f.items("variants", ()))),
        binaries=tuple(Binary.read(x, i) for i, x in enumerate(f.items("binaries", ()))),
        resources=f.plain_dict("resources"),
        assumed=f.texts("assumed", ()),
        source=f.optional_text("source"),
        report=f.optional_text("report"),
        native=f.optional_text("native"),
    )
    f.done()
    if len(manifest.params) > MAX_PARAMS:
        raise ArtifactError(f"manifest has {len(manifest.params)} params; the limit is {MAX_PARAMS}")
    check_manifest(manifest)
    return manifest


def _plain(value: Any) -> Any:
    """Tuples to lists, all the way down, as JSON would give them back."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _as_plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return [_as_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _missing(name: str) -> Param:
    raise KeyError(name)
