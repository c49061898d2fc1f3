"""A loaded kernel: a launch plan made from the manifest once, called many times.

`LoadedKernel(...)(*args)` checks every argument on every call. `prepare(*args)` fixes shapes, dtypes and scalars and
leaves a function that reads pointers only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from . import errors
from .artifact import Artifact
from .binding import Binder, Bound
from .dtypes import DTYPES, accepted_names, numpy_dtype, torch_dtype
from .expression import evaluate, to_text
from .launch_source import Backend, Writer
from .native import NativeEntry
from .tensor import _word, numpy_address, read, torch_dtype_name

Quicken = Callable[[Bound, Callable[..., Any]], Callable[..., Any]]
"""What a vendor knows to do faster than the prepared function of Python: of a call with all its outputs, a function that does
the same; that one itself where there is nothing faster."""


class _Mismatch(Exception):
    """Raised and caught inside a launcher: the fast part does not recognise the call."""


class LoadedKernel:
    """An artifact whose binaries are loaded; call it with all parameters, or with all but the outputs.

    Returns the output (several: a list; none declared: None), whether allocated or passed in. Positional arguments
    only. Raises the errors of tile_runtime.errors; a failed device assert raises KernelAssertError.
    `source` is the text of the generated launcher, `artifact` what it was made from. A call for which no variant was
    compiled goes to the kernel that `complete()` gives, if there is such a function; else it raises NoVariantError.
    """

    def __init__(
        self, artifact: Artifact, backend: Backend, resources: object = None, quicken: Quicken | None = None
    ) -> None:
        self.artifact = artifact
        self.manifest = artifact.manifest
        self.backend = backend
        self.resources = resources  # the vendor's handles (mapped code, modules): they live as long as the kernel
        self.complete: Callable[[], LoadedKernel] | None = None
        self._quicken = quicken
        self._binder = Binder(self.manifest, backend.device)
        self._namespace = self._make_namespace()
        writer = Writer(self.manifest, backend, self._namespace)
        self.source = writer.text()
        self._code = compile(self.source, f"<launcher of {self.manifest.name}>", "exec")
        exec(self._code, self._namespace)
        self._launch: Callable[..., Any] = self._namespace["launch"]
        self._native: NativeEntry | None = None

    def use_native(self, entry: NativeEntry) -> None:
        """From now on calls go to the native entry first."""
        self._native = entry
        self._launch = entry.launch(self._namespace["launch"])

    def __call__(self, *args: Any) -> Any:
        return self._launch(*args)

    def __repr__(self) -> str:
        target = self.manifest.target
        return f"<LoadedKernel {self.manifest.name} for {target.kind} {target.arch}>"

    def prepare(self, *args: Any) -> Callable[..., Any]:
        """Checks a call without running it and returns a function of its tensor arguments alone.

        The function takes tensors (or int addresses) in the same positions, scalars left out, outputs as here: passed
        or left out. It trusts that shapes, dtypes, strides and device are those of `args`; only the alignment of each
        address is checked. Scalars keep their value of this call.
        """
        bound = self._binder.bind(args)
        if self.complete is not None and not self._serves(bound):
            return self.complete().prepare(*args)
        self._learn(bound)
        namespace = dict(self._namespace)
        params = self.manifest.params
        namespace.update({f"d{k}": bound.dims[d.name] for k, d in enumerate(self.manifest.dims)})
        namespace.update({f"s{i}": bound.scalars[i] for i, p in enumerate(params) if p.kind == "scalar"})
        namespace["given"] = bound.given
        outputs = self._binder.outputs
        namespace["prepared_count"] = sum(
            1 for p in params if p.kind != "scalar" and (bound.given or p.name not in outputs)
        )
        exec(self._code, namespace)
        prepared: Callable[..., Any] = namespace["prepared"]
        if not (bound.given or not outputs):
            return prepared
        if self._quicken is not None:
            return self._quicken(bound, prepared)
        if self._native is None:
            return prepared
        scalars = [
            float(bound.scalars[i]) if DTYPES[p.dtype].kind == "float" else int(bound.scalars[i])
            for i, p in enumerate(params)
            if p.kind == "scalar"
        ]
        return self._native.prepared(prepared, [bound.dims[d.name] for d in self.manifest.dims], scalars)

    # -- what the generated text refers to ---------------------------------------------------------------------------

    def _make_namespace(self) -> dict[str, Any]:
        namespace: dict[str, Any] = {
            "ndarray": np.ndarray,
            "empty": np.empty,
            "word": _word,
            "address": numpy_address,
            "torch_types": set(),
            "Mismatch": _Mismatch,
            "slow": self._slow,
            "allocate": self._allocate,
            "workspace": self.backend.workspace,
            "check_failed": self._check_failed,
            "other_variant": self._other_variant,
            "pointer_of": self._pointer_of,
            "misaligned": self._misaligned,
            "prepared_mismatch": self._prepared_mismatch,
        }
        for i, param in enumerate(self.manifest.params):
            known = (numpy_dtype(name) for name in accepted_names(param.dtype, param.storage) if name != "bfloat16")
            namespace[f"nd{i}"] = {d for d in known if d is not None}
            namespace[f"td{i}"] = set()  # filled when torch is first seen: it is not imported here
            namespace[f"od{i}"] = numpy_dtype(param.storage) if param.name in self.manifest.outputs else None
        return namespace

    def _slow(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The complete check; its result is unpacked by the launcher in the order of Writer.bound_names."""
        bound = self._binder.bind(args)
        self._learn(bound)
        middle = [
            bound.scalars[i] if p.kind == "scalar" else bound.pointers[i] for i, p in enumerate(self.manifest.params)
        ]
        dims = [bound.dims[d.name] for d in self.manifest.dims]
        return (*bound.objects, *middle, *dims, bound.given, bound.keep)

    def _learn(self, bound: Bound) -> None:
        """Lets the fast part recognise the types of a call that was found right."""
        if self._native is not None:
            self._native.learn_torch()
        for i, view in enumerate(bound.views):
            if view is not None and view.library == "numpy":
                self._namespace[f"nd{i}"].add(bound.objects[i].dtype)
            elif view is not None and view.library == "torch":
                self._namespace[f"td{i}"].add(bound.objects[i].dtype)
                torch = sys.modules["torch"]
                self._namespace["torch_types"].update((torch.Tensor, torch.nn.Parameter))

    def _allocate(self, i: int, first: Any, shape: tuple[int, ...]) -> tuple[Any, int]:
        """Output i, on the library and device of the first tensor; without one, torch if it is loaded, else numpy."""
        param = self.manifest.params[i]
        torch = sys.modules.get("torch")
        if torch is not None and (first is None or isinstance(first, torch.Tensor) or self.backend.device != "cpu"):
            dtype = torch_dtype(param.storage)
            if dtype is None:
                raise errors.OutputError(
                    f"{self.manifest.name}.{param.name}: this torch has no dtype {param.storage}; "
                    "pass the output yourself"
                )
            device = (
                first.device if isinstance(first, torch.Tensor) else "cpu" if self.backend.device == "cpu" else "cuda"
            )
            output = torch.empty(shape, dtype=dtype, device=device)
            return output, output.data_ptr()
        if self.backend.device != "cpu":
            raise errors.OutputError(
                f"{self.manifest.name}.{param.name}: outputs on a GPU are allocated by torch; "
                "import it, or pass the output"
            )
        kind = numpy_dtype(param.storage)
        if kind is None:
            raise errors.OutputError(
                f"{self.manifest.name}.{param.name}: numpy has no dtype {param.storage}; "
                "install ml_dtypes, or pass the output yourself"
            )
        array = _aligned_empty(shape, kind, param.align)
        return array, numpy_address(array)

    def _pointer_of(self, i: int, value: Any) -> tuple[int, object]:
        if value is None and self.manifest.params[i].access == "none":
            return 0, None
        view = read(value)
        if view is None:
            raise errors.ArgumentTypeError(
                f"{self.manifest.name}.{self.manifest.params[i].name} is expected to be a tensor, but got {type(value)}"
            )
        return view.pointer, view.owner

    def _misaligned(self, i: int, pointer: int) -> Exception:
        param = self.manifest.params[i]
        return errors.ArgumentAlignmentError(
            f"{self.manifest.name}.{param.name} is at address {pointer:#x}, which is no multiple of {param.align} bytes"
        )

    def _prepared_mismatch(self, found: int, wanted: int) -> Exception:
        return errors.ArgumentCountError(
            f"{self.manifest.name}: the prepared call takes {wanted} tensors (scalars are fixed), "
            f"but {found} arguments are provided"
        )

    def _check_failed(self, k: int, dims: list[int], scalars: list[Any]) -> Exception:
        check = self.manifest.checks[k]
        said = check.message or "a declared fact does not hold"
        code = f" [{check.code}]" if check.code else ""
        return errors.CheckFailed(
            f"{self.manifest.name}: {said}{code}: {to_text(check.expr)} is false for {self._facts(dims, scalars)}"
        )

    def _other_variant(self, dims: list[int], scalars: list[Any], args: list[Any]) -> Any:
        """No guard holds: the call, with the outputs that it has by now, goes to the kernel with another variant."""
        if self.complete is None:
            raise self._no_variant(dims, scalars)
        return self.complete()(*args)

    def _serves(self, bound: Bound) -> bool:
        """Whether the guard of some variant holds; outputs that the call leaves out count as aligned."""
        params = {
            p.name: int(bound.scalars[i])
            for i, p in enumerate(self.manifest.params)
            if p.kind == "scalar" and DTYPES[p.dtype].kind != "float"
        }
        addresses = {p.name: bound.pointers[i] for i, p in enumerate(self.manifest.params) if p.kind == "tensor"}
        return any(v.guard is None or evaluate(v.guard, bound.dims, params, addresses) for v in self.manifest.variants)

    def _no_variant(self, dims: list[int], scalars: list[Any]) -> Exception:
        guards = (
            "; ".join(to_text(v.guard) for v in self.manifest.variants if v.guard is not None) or "none was compiled"
        )
        return errors.NoVariantError(
            f"{self.manifest.name} was not compiled for {self._facts(dims, scalars)}: "
            f"no variant's guard holds ({guards}); export the kernel again with all its variants (kernel.export), "
            "or pass aligned copies (.clone())"
        )

    def _facts(self, dims: list[int], scalars: list[Any]) -> str:
        names = [d.name for d in self.manifest.dims] + [p.name for p in self.manifest.params if p.kind == "scalar"]
        return ", ".join(f"{n} = {v}" for n, v in zip(names, [*dims, *scalars], strict=True)) or "these arguments"


def _aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any], align: int) -> np.ndarray[Any, Any]:
    """An uninitialised C-contiguous array whose address is a multiple of `align` bytes (numpy itself promises 16)."""
    if align <= 16:
        return np.empty(shape, dtype)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.empty(size + align, np.uint8)
    start = -numpy_address(raw) % align
    return raw[start : start + size].view(dtype).reshape(shape)


__all__ = ["Backend", "LoadedKernel", "torch_dtype_name"]
