"""What names a kernel: the function that writes it and the numbers that it is written for."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

Scalar = bool | int | float | str | None


@dataclass(frozen=True)
class KernelSpec:
    """`function` of `tile_ops.<family>.kernels`, called with `arguments` (plain values, sorted by name).

    Equal specs mean equal kernels on a target, so that a spec is the key under which prebuilt kernels are found.
    `pass_configs` are the compiler's options by name.
    """

    family: str
    function: str
    arguments: tuple[tuple[str, Scalar], ...]
    pass_configs: tuple[tuple[str, Scalar], ...] = ()

    @classmethod
    def of(
        cls, family: str, function: str, pass_configs: dict[str, Scalar] | None = None, **arguments: Scalar
    ) -> KernelSpec:
        """The spec of a call of `function` with keyword `arguments`."""
        return cls(family, function, tuple(sorted(arguments.items())), tuple(sorted((pass_configs or {}).items())))

    def key(self, arch: str) -> str:
        """Hexadecimal sha256 that names this kernel, compiled for `arch`, in an index of prebuilt kernels."""
        content: list[Any] = [self.family, self.function, self.arguments, self.pass_configs, arch]
        return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()

    def source_digest(self) -> str:
        """sha256 of the text that writes the kernel: a prebuilt kernel made from other text is not this one."""
        return source_digest(self.family, self.function)

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.arguments)
        return f"{self.family}.{self.function}({values})"


@cache
def text_of(family: str) -> bytes:
    """A family's `kernels.py`, which is not loaded."""
    found = importlib.util.find_spec(f"tile_ops.{family}")
    assert found is not None
    assert found.origin is not None
    return (Path(found.origin).parent / "kernels.py").read_bytes()


@cache
def text_digest(family: str) -> str:
    """sha256 of a family's `kernels.py`, and of those that it takes functions of."""
    digest = hashlib.sha256(text_of(family))
    for other in sorted({other for other, _ in _borrowed(ast.parse(text_of(family))).values()}):
        digest.update(text_digest(other).encode())
    return digest.hexdigest()


@cache
def source_digest(family: str, function: str) -> str:
    """sha256 of what of a family's `kernels.py` writes this kernel: the function, what it names in that file, and so on, and
    all that defines no name (imports), the same of functions that it takes of another family's file. A change of another
    kernel's function is none of this one."""
    text = text_of(family).decode()
    lines, named, parts = text.splitlines(), dict[str, list[ast.stmt]](), list[ast.stmt]()
    tree = ast.parse(text)
    borrowed, others = _borrowed(tree), set[tuple[str, str]]()
    for statement in tree.body:
        names = _defines(statement)
        for name in names:
            named.setdefault(name, []).append(statement)
        if not names:
            parts.append(statement)
    waiting, seen = [function], set[str]()
    while waiting:
        name = waiting.pop()
        if name in borrowed:
            others.add(borrowed[name])
        if name in named and name not in seen:
            seen.add(name)
            parts += named[name]
            waiting += [x.id for part in named[name] for x in ast.walk(part) if isinstance(x, ast.Name)]
    digest = hashlib.sha256()
    for part in sorted(set(parts), key=lambda part: part.lineno):
        first = min([part.lineno, *(d.lineno for d in getattr(part, "decorator_list", ()))])
        digest.update("\n".join([*lines[first - 1 : part.end_lineno], ""]).encode())
    for other in sorted(others):
        digest.update(source_digest(*other).encode())
    return digest.hexdigest()


def _borrowed(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """The functions that a `kernels.py` takes of another family's: by the name here, the family and the name there."""
    found: dict[str, tuple[str, str]] = {}
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom):
            module = (statement.module or "").split(".")
            if len(module) == 3 and (module[0], module[2]) == ("tile_ops", "kernels"):
                found |= {alias.asname or alias.name: (module[1], alias.name) for alias in statement.names}
    return found


def _defines(statement: ast.stmt) -> list[str]:
    """The names that a function, a class or an assignment gives a meaning; none for any other statement."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return [statement.name]
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return [x.id for x in ast.walk(statement) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)]
    return []
