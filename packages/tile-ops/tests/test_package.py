"""The package imports with torch alone: neither the language nor the compiler comes with it."""

from __future__ import annotations

import subprocess
import sys

import tile_ops


def test_version_is_the_distributions():
    from importlib.metadata import version

    assert tile_ops.__version__ == version("tile-ops")


def test_import_brings_no_compiler():
    code = "import sys, tile_ops; print([m for m in ('tilelang', 'tvm', 'tile_compiler') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
