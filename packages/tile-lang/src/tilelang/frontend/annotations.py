"""What a parameter's annotation says: `T.Tensor(shape, dtype)`, strides, scalars. No TVM needed to write one."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilelang.errors import BadAnnotation, DtypeError
from tilelang.ir.dtypes import DType, aliases, dtype_of, scalar_names


@dataclass(frozen=True)
class TensorSpec:
    """A tensor parameter: shape (ints, dimensions, expressions of them), element type, strides if not row-major."""

    shape: tuple[Any, ...]
    dtype: DType
    strides: tuple[Any, ...] | None = None

    def describe(self) -> str:
        shape = ", ".join(map(str, self.shape)) + ("," if len(self.shape) == 1 else "")
        return f"T.Tensor(({shape}), {str(self.dtype)!r})"


def known_dtype(spec: Any, what: str) -> DType:
    """The element type that `spec` names; DtypeError, with the nearest spelling, when nobody knows it."""
    try:
        return dtype_of(spec)
    except (ValueError, TypeError):
        near = difflib.get_close_matches(str(spec), [*scalar_names(), *aliases()], 1)
        raise DtypeError(
            f"{what}: unknown element type {spec!r}",
            found=f"{spec!r}",
            expected="a name such as 'float16', T.float16, or a torch or numpy dtype",
            repair=f"did you mean {near[0]!r}?" if near else "dtype='float32'",
        ) from None


def _shape(value: Any) -> tuple[Any, ...]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(value)
    return (value,)


class TensorAnnotation:
    """`T.Tensor`: `T.Tensor((M, K), "float16")`, `T.Tensor[[M, K], T.float16]`, `T.Tensor[M, K, T.float16]`.

    Alone, as a bare `T.Tensor`, it means a tensor whose shape and type come from the first call's argument.
    """

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, shape: Any, dtype: Any = "float32", *, strides: Any = None) -> TensorSpec:
        kind = known_dtype(dtype, f"T.{self.__name__}")
        return TensorSpec(_shape(shape), kind, None if strides is None else _shape(strides))

    def __getitem__(self, items: Any) -> TensorSpec:
        if isinstance(items, tuple) and len(items) == 2 and isinstance(items[0], (list, tuple)):
            return self(items[0], items[1])
        if isinstance(items, tuple) and len(items) >= 2:
            return self(items[:-1], items[-1])
        raise BadAnnotation(
            f"T.{self.__name__}[...] needs a shape and an element type",
            found=f"{items!r}",
            expected="T.Tensor[[M, K], T.float16]",
            repair="give both",
        )

    def __repr__(self) -> str:
        return f"T.{self.__name__}"


class StridedTensorAnnotation(TensorAnnotation):
    """`T.StridedTensor((M, K), (sm, sk), "float16")`: strides in elements, numbers or dimensions."""

    def __call__(self, shape: Any, strides: Any = None, dtype: Any = "float32") -> TensorSpec:  # type: ignore[override]
        kind = known_dtype(dtype, "T.StridedTensor")
        return TensorSpec(_shape(shape), kind, None if strides is None else _shape(strides))

    def __getitem__(self, items: Any) -> TensorSpec:
        if isinstance(items, tuple) and len(items) == 3:
            return self(*items)
        raise BadAnnotation(
            "T.StridedTensor[...] needs a shape, strides and an element type",
            found=f"{items!r}",
            expected="T.StridedTensor[[M, K], [sm, sk], T.float16]",
            repair="give all three",
        )


Tensor = TensorAnnotation("Tensor")
BufferAnnotation = TensorAnnotation("Buffer")
StridedTensor = StridedTensorAnnotation("StridedTensor")
SharedBuffer = TensorAnnotation("SharedBuffer")
FragmentBuffer = TensorAnnotation("FragmentBuffer")


def is_bare_tensor(annotation: Any) -> bool:
    return isinstance(annotation, TensorAnnotation)
