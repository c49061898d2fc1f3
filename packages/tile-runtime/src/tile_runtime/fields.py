"""Reading the fields of one JSON object strictly: each getter checks the type, `done` refuses what nobody asked for.

Every complaint is an ArtifactError that names the field by its path, such as `params[2].align`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .dtypes import DTYPES, DType
from .errors import ArtifactError

_MISSING: Any = object()
_MAX_TEXT = 4096
ARGUMENT_KINDS = {"param": 2, "dim": 2, "value": 3, "workspace": 2, "tensormap": 2}


class Fields:
    """One JSON object being read. `where` is its path in the manifest."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, dict):
            raise ArtifactError(f"{where} is not an object but {type(data).__name__}")
        self.data = data
        self.where = where
        self.asked: set[str] = set()

    def value(self, key: str, default: Any = _MISSING) -> Any:
        self.asked.add(key)
        value = self.data.get(key, default)
        if value is _MISSING:
            raise ArtifactError(f"{self.where}.{key} is missing")
        return _frozen(value)

    def peek(self, key: str) -> Any:
        return self.data.get(key)

    def skip(self, key: str) -> None:
        self.asked.add(key)

    def done(self) -> None:
        """Refuses unknown fields: a typing error must not pass as a default."""
        unknown = sorted(str(k)[:80] for k in self.data.keys() - self.asked)
        if unknown:
            raise ArtifactError(f"{self.where} has unknown field(s) {', '.join(unknown)}")

    def text(self, key: str, default: Any = _MISSING) -> str:
        value = self.value(key, default)
        if not isinstance(value, str) or len(value) > _MAX_TEXT:
            raise ArtifactError(f"{self.where}.{key} is not a text of at most {_MAX_TEXT} characters")
        return value

    def optional_text(self, key: str) -> str | None:
        return None if self.value(key, None) is None else self.text(key)

    def name(self, key: str) -> str:
        value = self.text(key)
        if not value.isidentifier() or len(value) > 200:
            raise ArtifactError(f"{self.where}.{key} is not a name: {value[:80]!r}")
        return value

    def choice(self, key: str, choices: Sequence[str], default: Any = _MISSING) -> str:
        value = self.text(key, default)
        if value not in choices:
            raise ArtifactError(f"{self.where}.{key} is {value[:80]!r}; expected one of {', '.join(choices)}")
        return value

    def dtype(self, key: str, default: Any = _MISSING) -> str:
        value = self.text(key, default)
        if value not in DTYPES:
            raise ArtifactError(f"{self.where}.{key}: {value[:80]!r} is not a dtype of a kernel parameter")
        return value

    def dtype_info(self, name: str) -> DType:
        return DTYPES[name]

    def integer(self, key: str, default: Any = _MISSING, low: int = 0, high: int = 2**63 - 1) -> int:
        value = self.value(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ArtifactError(f"{self.where}.{key} is not an integer between {low} and {high}")
        return value

    def boolean(self, key: str, default: Any = _MISSING) -> bool:
        value = self.value(key, default)
        if not isinstance(value, bool):
            raise ArtifactError(f"{self.where}.{key} is not true or false")
        return value

    def items(self, key: str, default: Any = _MISSING) -> tuple[Any, ...]:
        value = self.value(key, default)
        if not isinstance(value, tuple):
            raise ArtifactError(f"{self.where}.{key} is not a list")
        return value

    def integers(self, key: str, default: Any = _MISSING) -> tuple[int, ...]:
        value = self.items(key, default)
        if not all(isinstance(x, int) and not isinstance(x, bool) for x in value):
            raise ArtifactError(f"{self.where}.{key} is not a list of integers")
        return value

    def texts(self, key: str, default: Any = _MISSING) -> tuple[str, ...]:
        value = self.items(key, default)
        if not all(isinstance(x, str) and len(x) <= _MAX_TEXT for x in value):
            raise ArtifactError(f"{self.where}.{key} is not a list of texts")
        return value

    def three(self, key: str, default: Any = _MISSING) -> tuple[Any, Any, Any]:
        value = self.items(key, default)
        if len(value) != 3:
            raise ArtifactError(f"{self.where}.{key} has {len(value)} entries; expected three (x, y, z)")
        return value[0], value[1], value[2]

    def dicts(self, key: str) -> tuple[dict[str, Any], ...]:
        value = self.items(key, ())
        if not all(isinstance(x, dict) for x in value):
            raise ArtifactError(f"{self.where}.{key} is not a list of objects")
        return value

    def plain_dict(self, key: str) -> dict[str, Any]:
        value = self.value(key, {})
        if not isinstance(value, dict):
            raise ArtifactError(f"{self.where}.{key} is not an object")
        return value

    def text_dict(self, key: str) -> dict[str, str]:
        value = self.plain_dict(key)
        if not all(isinstance(x, str) for x in value.values()):
            raise ArtifactError(f"{self.where}.{key} is not an object of texts")
        return value

    def argument(self, entry: Any, index: int) -> tuple[Any, ...]:
        """A launch argument: one of the lists in the table of docs/internals/runtime.md, such as ["param", name]."""
        ok = isinstance(entry, tuple) and entry and isinstance(entry[0], str)
        if not ok or len(entry) != ARGUMENT_KINDS.get(entry[0], 0):
            kinds = ", ".join(ARGUMENT_KINDS)
            raise ArtifactError(
                f"{self.where}.args[{index}] is not [kind, ...] with a kind of {kinds}: {repr(entry)[:120]}"
            )
        return entry


def _frozen(value: Any) -> Any:
    """Lists to tuples, all the way down: frozen dataclasses must not hold lists that a caller can change."""
    if isinstance(value, dict):
        return {k: _frozen(v) for k, v in value.items()}
    return tuple(_frozen(v) for v in value) if isinstance(value, (list, tuple)) else value
