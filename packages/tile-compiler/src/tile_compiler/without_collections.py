"""Compiling without pauses of Python's garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """The cyclic garbage collector rests inside.

    A compilation makes many objects and hardly a cycle, so that a collection finds nothing and goes over every object
    of every loaded module for it: a tenth of the time. Where it already rests, as in a compilation inside another or on
    another thread, nothing changes.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
