"""Consistency between the parts of a manifest: references exist, expressions are well formed, names are unique."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .dtypes import DTYPES, accepted_names
from .errors import ArtifactError, ExpressionError, TensorMapError
from .expression import Names, validate
from .tensor_map import TensorMap

if TYPE_CHECKING:
    from .manifest import Launch, Manifest, Param, TensorMapping


def check_manifest(manifest: Manifest) -> None:
    """Raises ArtifactError for the first contradiction."""
    params = {p.name: p for p in manifest.params}
    names = Names(
        dims=frozenset(d.name for d in manifest.dims),
        params=frozenset(p.name for p in manifest.params if p.kind == "scalar" and DTYPES[p.dtype].kind != "float"),
    )
    guarded = Names(names.dims, names.params, frozenset(p.name for p in manifest.params if p.kind == "tensor"))
    _unique("params", (p.name for p in manifest.params))
    _unique("dims", (d.name for d in manifest.dims))
    _unique("binaries", (b.file for b in manifest.binaries))
    _unique("outputs", manifest.outputs)
    if not manifest.name or not manifest.name.isprintable():
        raise ArtifactError("manifest.name is empty or not printable")
    for param in manifest.params:
        _check_param(param, names)
    for dim in manifest.dims:
        source = params.get(dim.param)
        if source is None or source.kind != "tensor":
            raise ArtifactError(f"dim {dim.name} is bound to {dim.param}, which is no tensor parameter")
        if dim.axis >= len(source.shape):
            raise ArtifactError(
                f"dim {dim.name} is bound to axis {dim.axis} of {dim.param}, whose rank is {len(source.shape)}"
            )
        if dim.of == "strides" and source.strides is None:
            raise ArtifactError(f"dim {dim.name} is bound to a stride of {dim.param}, which is contiguous")
    for name in manifest.outputs:
        if name not in params or params[name].kind != "tensor":
            raise ArtifactError(f"output {name[:80]!r} is no tensor parameter")
    for i, check in enumerate(manifest.checks):
        _expression(check.expr, guarded, f"checks[{i}].expr")
    for i, space in enumerate(manifest.workspace):
        _expression(space.bytes, names, f"workspace[{i}].bytes")
        _power_of_two(space.align, f"workspace[{i}].align")
    for i, mapping in enumerate(manifest.tensormaps):
        _check_tensor_map(mapping, params.get(mapping.param), names, f"tensormaps[{i}]")
    files = {b.file: b.kind for b in manifest.binaries}
    for member, kind in ((manifest.source, "source"), (manifest.report, "json"), (manifest.native, "elf")):
        if member is not None and files.get(member) != kind:
            raise ArtifactError(f"{member[:80]!r} is not listed in binaries with kind {kind!r}")
    for v, variant in enumerate(manifest.variants):
        if variant.guard is not None:
            _expression(variant.guard, guarded, f"variants[{v}].guard")
        for i, launch in enumerate(variant.launches):
            _check_launch(manifest, launch, names, files, f"variants[{v}].launches[{i}]")


def _check_param(param: Param, names: Names) -> None:
    where = f"param {param.name}"
    _power_of_two(param.align, f"{where}: align")
    if param.kind != "tensor":
        if param.shape or param.strides:
            raise ArtifactError(f"{where} is a {param.kind} and has a shape")
        if param.kind == "scalar" and DTYPES[param.dtype].bits < 8:
            raise ArtifactError(f"{where} is a scalar of the sub-byte type {param.dtype}")
        return
    if param.storage not in accepted_names(param.dtype, DTYPES[param.dtype].storage):
        raise ArtifactError(f"{where}: storage {param.storage} cannot carry {param.dtype}")
    if len(param.shape) > 64:
        raise ArtifactError(f"{where} has rank {len(param.shape)}; the limit is 64")
    if DTYPES[param.dtype].per_byte > 1 and not param.shape:
        raise ArtifactError(f"{where} of the packed type {param.dtype} has no axis to pack")
    if param.strides is not None and len(param.strides) != len(param.shape):
        raise ArtifactError(f"{where} has {len(param.shape)} extents and {len(param.strides)} strides")
    for axis, extent in enumerate(param.shape):
        _expression(extent, names, f"{where}: shape[{axis}]")
    for axis, stride in enumerate(param.strides or ()):
        if stride is not None:
            _expression(stride, names, f"{where}: strides[{axis}]")


def _check_tensor_map(mapping: TensorMapping, param: Param | None, names: Names, where: str) -> None:
    """Its expressions, and the rules that can be checked before the tensor is known."""
    if param is None or param.kind != "tensor" or not param.shape:
        raise ArtifactError(f"{where}.param {_text(mapping.param)} is no tensor parameter with a shape")
    if param.strides is not None and not mapping.shape and (None in param.strides or param.strides[-1] != 1):
        raise ArtifactError(
            f"{where} takes its strides from {param.name}, whose strides are not all known and 1 at last"
        )
    shape, strides = mapping.dimensions(param)
    for axis, expression in enumerate((*shape, *strides)):
        _expression(expression, names, f"{where}: extent or stride {axis}")
    size = DTYPES[mapping.dtype].itemsize
    known = TensorMap(
        address=0,
        dtype=mapping.dtype,
        shape=tuple(e if isinstance(e, int) else 1 for e in shape),
        strides=tuple(s * size if isinstance(s, int) else 0 for s in strides),
        box=mapping.box,
        element_strides=mapping.element_strides,
        swizzle=mapping.swizzle,
        interleave=mapping.interleave,
        l2_promotion=mapping.l2_promotion,
        fill=mapping.fill,
    )
    try:
        known.check(mapping.param)
    except TensorMapError as error:
        raise ArtifactError(f"{where}: {error}") from None


def _check_launch(manifest: Manifest, launch: Launch, names: Names, files: dict[str, str], where: str) -> None:
    if launch.binary not in files:
        raise ArtifactError(f"{where}.binary {launch.binary[:80]!r} is not listed in binaries")
    if not launch.symbol or not launch.symbol.isprintable():
        raise ArtifactError(f"{where}.symbol is empty or not printable")
    for axis in range(3):
        _expression(launch.grid[axis], names, f"{where}.grid[{axis}]")
        _expression(launch.block[axis], names, f"{where}.block[{axis}]")
    _expression(launch.shared, names, f"{where}.shared")
    if launch.cluster is not None and not all(
        isinstance(c, int) and not isinstance(c, bool) and 1 <= c <= 64 for c in launch.cluster
    ):
        raise ArtifactError(f"{where}.cluster is not three integers between 1 and 64")
    params = {p.name for p in manifest.params}
    counts = {"workspace": len(manifest.workspace), "tensormap": len(manifest.tensormaps)}
    for i, (kind, *rest) in enumerate(launch.args):
        here = f"{where}.args[{i}]"
        if kind == "param":
            if rest[0] not in params:
                raise ArtifactError(f"{here}: {_text(rest[0])} is no parameter")
        elif kind == "dim":
            _expression(("dim", rest[0]), names, here)
        elif kind == "value":
            if (
                not isinstance(rest[0], str)
                or rest[0] not in DTYPES
                or DTYPES[rest[0]].kind == "float"
                or DTYPES[rest[0]].bits < 8
            ):
                raise ArtifactError(f"{here}: {_text(rest[0])} is no integer dtype")
            _expression(rest[1], names, here)
        elif not isinstance(rest[0], int) or isinstance(rest[0], bool) or not 0 <= rest[0] < counts[kind]:
            raise ArtifactError(f"{here}: there is no {kind} {_text(rest[0])}")


def _expression(expression: Any, names: Names, where: str) -> None:
    try:
        validate(expression, names)
    except ExpressionError as error:
        raise ArtifactError(f"{where}: {error}") from None


def _unique(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ArtifactError(f"{what} holds {name[:80]!r} twice")
        seen.add(name)


def _power_of_two(value: int, where: str) -> None:
    if value & (value - 1):
        raise ArtifactError(f"{where} is {value}, which is no power of two")


def _text(value: object) -> str:
    return repr(value)[:80]
