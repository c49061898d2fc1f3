"""A user's script, run for the kernels that it compiles."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tilelang import cache_control, kernel


class Compiled(NamedTuple):
    """A kernel that was compiled: the traced function, its target, what became of it."""

    func: Any
    target: Any
    artifact: Any


class Script:
    """A command line `[--target T] [--output_file F] [flags] script [arguments]`, and what to write of each kernel."""

    def __init__(self, about: str, *flags: tuple[str, str]) -> None:
        self._parser = argparse.ArgumentParser(
            description=about, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
        )
        self._parser.add_argument("--target", help="instead of what the script names")
        self._parser.add_argument("--output_file", type=Path, help="instead of the standard output")
        for name, words in flags:
            self._parser.add_argument(name, action="store_true", help=words)
        self._parser.add_argument("script", type=Path)
        self._parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")

    def run(self, arguments: list[str] | None, text_of: Callable[[Compiled, Any], str]) -> int:
        """Run the script as a program and write `text_of` each kernel, one after the other. What the script prints goes to
        the error output; where it cannot go on (its device is not here), what it has compiled by then is written."""
        chosen = self._parser.parse_args(arguments)
        failed = ""
        with _observed() as found, _environment(chosen), _as_program(chosen):
            try:
                runpy.run_path(str(chosen.script), run_name="__main__")
            except SystemExit:
                pass
            except Exception:
                failed = traceback.format_exc()
        if failed:
            print(failed, file=sys.stderr)
        if not found:
            print(f"{chosen.script} compiled no kernel", file=sys.stderr)
            return 1
        texts = "\n".join(text_of(compiled, chosen) for compiled in found)
        if chosen.output_file is None:
            print(texts)
        else:
            chosen.output_file.write_text(texts + "\n", encoding="utf-8")
        return 0


@contextmanager
def _observed() -> Iterator[list[Compiled]]:
    """The kernels that are compiled meanwhile, without the cache."""
    found: list[Compiled] = []
    kernel.observers.append(lambda func, target, artifact: found.append(Compiled(func, target, artifact)))
    try:
        with cache_control.without_cache():
            yield found
    finally:
        kernel.observers.pop()


@contextmanager
def _environment(chosen: Any) -> Iterator[None]:
    name = "TILELANG_TARGET_OVERRIDE"
    before = os.environ.get(name)
    if chosen.target:
        os.environ[name] = chosen.target
    try:
        yield
    finally:
        if before is not None:
            os.environ[name] = before
        elif chosen.target:
            del os.environ[name]


@contextmanager
def _as_program(chosen: Any) -> Iterator[None]:
    before, out = (sys.argv, list(sys.path)), sys.stdout
    sys.argv = [str(chosen.script), *chosen.arguments]
    sys.path.insert(0, str(chosen.script.resolve().parent))
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before
        sys.stdout = out
