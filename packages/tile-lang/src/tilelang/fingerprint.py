"""The identity of a kernel's source, without tracing it: level 1 of the cache's keys.

A function's fingerprint covers its text, the values it closes over, the globals it mentions and, in turn, the
functions among them. Where a value has no stable identity the answer is None and the kernel is traced instead.
"""

from __future__ import annotations

import enum
import hashlib
import importlib.util
import inspect
import os
import sys
import types
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tilelang.ir.dtypes import DType


class _NoIdentity(Exception):
    pass


def of_function(function: Callable[..., Any]) -> str | None:
    """A hex digest, or None when some value that the function uses has no stable identity."""
    digest = hashlib.sha256()
    try:
        _function(function, digest, set())
    except _NoIdentity:
        return None
    return digest.hexdigest()


def of_values(values: Mapping[str, Any]) -> str | None:
    """A text that is equal for equal compile-time values, or None."""
    digest = hashlib.sha256()
    try:
        for name in sorted(values):
            digest.update(name.encode() + b"=")
            _value(values[name], digest, set())
    except _NoIdentity:
        return None
    return digest.hexdigest()


def _function(function: Any, digest: Any, seen: set[int]) -> None:
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is None:
        raise _NoIdentity
    if id(function) in seen:  # not its code: two functions of one text may close over different values
        digest.update(b"again")
        return
    seen.add(id(function))
    from tilelang.errors import SourceUnavailable
    from tilelang.frontend.rewrite import source_of

    try:
        text, _, _ = source_of(code)
    except SourceUnavailable:
        raise _NoIdentity from None
    digest.update(text.encode())
    names = _global_names(code)
    closure = dict(zip(code.co_freevars, function.__closure__ or ()))
    for name in sorted(closure):
        try:
            value = closure[name].cell_contents
        except ValueError:
            digest.update(b"unset")
            continue
        digest.update(name.encode() + b":")
        if isinstance(value, types.ModuleType):
            _module(value, names, digest, seen)
        else:
            _value(value, digest, seen)
    for name, note in (getattr(function, "__annotations__", None) or {}).items():
        digest.update(name.encode() + b"->")
        if isinstance(note, str) and not isinstance(note, DType):  # text: what it mentions is looked up like a global
            names |= _names_in(note)
        else:
            _value(note, digest, seen)
    for name in sorted(names):
        if name in function.__globals__:
            digest.update(name.encode() + b"@")
            value = function.__globals__[name]
            if isinstance(value, types.ModuleType):
                _module(value, names, digest, seen)
            else:
                _value(value, digest, seen)
    for value in (function.__defaults__ or ()) + tuple((function.__kwdefaults__ or {}).values()):
        _value(value, digest, seen)


def _global_names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names


def _names_in(annotation: str) -> set[str]:
    try:
        return _global_names(compile(annotation, "<annotation>", "eval"))
    except SyntaxError:
        return set()


_LIBRARIES = {*sys.stdlib_module_names, "tilelang", "tvm", "tvm_ffi", "torch", "numpy", "ml_dtypes"}


def _module(module: types.ModuleType, names: set[str], digest: Any, seen: set[int]) -> None:
    """A library by name and version; of a module of the user's, the attributes that the kernel's text may mention."""
    digest.update(f"module {module.__name__} {getattr(module, '__version__', '')};".encode())
    if module.__name__.partition(".")[0] in _LIBRARIES or id(module) in seen:
        return
    seen.add(id(module))
    for name in sorted(names):
        if name in vars(module):
            digest.update(name.encode() + b".")
            value = vars(module)[name]
            if isinstance(value, types.ModuleType):
                _module(value, names, digest, seen)
            else:
                _value(value, digest, seen)


def _class(value: type, digest: Any, seen: set[int]) -> None:
    """A class of the user's by what stands in it: sizes, methods, and its bases."""
    digest.update(f"class {value.__module__}.{value.__qualname__}(".encode())
    if value.__module__.partition(".")[0] in _LIBRARIES or id(value) in seen:
        return
    seen.add(id(value))
    for base in value.__bases__:
        _class(base, digest, seen)
    for name, item in sorted(vars(value).items()):
        if not (name.startswith("__") and name.endswith("__")):
            digest.update(name.encode() + b"=")
            _value(item.__func__ if isinstance(item, (staticmethod, classmethod)) else item, digest, seen)


def _value(value: Any, digest: Any, seen: set[int]) -> None:
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        digest.update(f"{type(value).__name__} {value!r};".encode())
    elif isinstance(value, enum.Enum):
        digest.update(f"{type(value).__name__}.{value.name} ".encode())
        _value(value.value, digest, seen)
    elif isinstance(value, (tuple, list)):
        digest.update(f"{type(value).__name__}(".encode())
        for item in value:
            _value(item, digest, seen)
        digest.update(b")")
    elif isinstance(value, (set, frozenset)):
        _value(sorted(map(repr, value)), digest, seen)
    elif isinstance(value, dict):
        digest.update(b"{")
        for key, item in value.items():
            _value(key, digest, seen)
            _value(item, digest, seen)
        digest.update(b"}")
    elif isinstance(value, np.generic):
        digest.update(f"{value.dtype} {value!r};".encode())
    elif isinstance(value, types.ModuleType):
        # Reached through a value, so nobody knows which of its attributes are used.
        if value.__name__.partition(".")[0] not in _LIBRARIES:
            raise _NoIdentity
        _module(value, set(), digest, seen)
    elif isinstance(value, type):
        _class(value, digest, seen)
    elif isinstance(value, types.MethodType):
        _value(value.__self__, digest, seen)
        _value(value.__func__, digest, seen)
    elif isinstance(value, types.BuiltinFunctionType):
        digest.update(f"{getattr(value, '__module__', '')}.{value.__qualname__};".encode())
    elif isinstance(value, np.dtype):
        digest.update(f"dtype {value.str};".encode())
    elif type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        digest.update(f"{value};".encode())
    elif hasattr(value, "to_json"):  # layouts
        digest.update(f"{type(value).__name__} {value.to_json()};".encode())
    elif hasattr(value, "fingerprint_parts"):
        for part in value.fingerprint_parts():
            _value(part, digest, seen)
    elif type(value).__name__ == "Dynamic":
        digest.update(f"dynamic {value.name} {value.dtype};".encode())
    elif type(value).__name__ == "TensorSpec":
        _value((value.shape, str(value.dtype), value.strides), digest, seen)
    elif (
        callable(value)
        and (getattr(value, "__module__", "") or "").split(".")[0] == "tilelang"
        and hasattr(value, "__qualname__")
    ):
        digest.update(f"tilelang.{value.__qualname__};".encode())  # covered by `toolchain`
    elif callable(value) and hasattr(inspect.unwrap(value), "__code__"):
        _function(value, digest, seen)
    elif getattr(type(value), "__module__", "").split(".")[0] == "tilelang" and hasattr(value, "__name__"):
        digest.update(f"tilelang.{value.__name__};".encode())
    else:
        raise _NoIdentity


_extensions: list[str] = []  # what a user added to the compiler, in words
_extension_files: set[str] = set()  # source files of operators, reductions and lowerings that users registered


def extended(identity: str) -> None:
    """Note what a user added to the compiler: what was compiled without it is not what would be compiled with it."""
    _extensions.append(identity)


_rewrites: dict[str, str] = {}  # of generated text, by kind of target: identities of the user's functions


def rewritten(kind: str, identity: str | None) -> None:
    """Note that a user's function rewrites the text for a kind of target; None: none does any more."""
    if identity is None:
        _rewrites.pop(kind, None)
    else:
        _rewrites[kind] = identity


def depends_on(*parts: Any) -> None:
    """Note the source files of classes and functions that a user registered: kernels depend on their content."""
    for part in parts:
        try:
            file = inspect.getsourcefile(part)
        except TypeError:
            continue
        if file is not None and os.path.exists(file):
            _extension_files.add(file)


def is_extended() -> bool:
    """Whether a user added operators, reductions or instructions, which live in this process only."""
    return bool(_extensions or _extension_files)


def toolchain() -> str:
    """The identity of everything that turns a kernel into code: the installation, and what the user added to it."""
    if not (_extensions or _extension_files or _rewrites):
        return _installation()
    rewrites = [f"{kind} {identity}" for kind, identity in sorted(_rewrites.items())]
    files = [hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in sorted(_extension_files)]
    return hashlib.sha256("\0".join([_installation(), *sorted(_extensions), *files, *rewrites]).encode()).hexdigest()


@lru_cache(maxsize=1)
def _installation() -> str:
    """Versions, and the state of our own source files.

    File sizes and times stand for contents, so an editable install notices edits; reading them all takes about 2 ms.
    """
    from tile_runtime.entry_points import distribution_versions

    digest = hashlib.sha256()
    digest.update(f"python {sys.version_info[:2]};".encode())
    for package in ("tilelang", "tile_compiler", "tile_runtime", "tile_runtime_cpu"):
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec is not None else ():
            for entry in sorted(_files(place)):
                digest.update(repr(entry).encode())
    digest.update(repr(sorted(distribution_versions(("apache_tvm", "apache_tvm_ffi")).items())).encode())
    return digest.hexdigest()


def _files(folder: str) -> list[tuple[str, int, int]]:
    found = []
    stack = [folder]
    while stack:
        current = stack.pop()
        with os.scandir(current) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != "__pycache__":
                        stack.append(entry.path)
                elif entry.name.endswith((".py", ".ll", ".h", ".cuh")):
                    info = entry.stat()
                    found.append((os.path.relpath(entry.path, folder), info.st_size, info.st_mtime_ns))
    return found
