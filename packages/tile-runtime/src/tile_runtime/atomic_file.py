"""Writing a file so that other processes see the old content, the new content, or none: never a part."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Writes `data` under a temporary name in the same folder and renames it. The last of several writers wins.

    No fsync: a file cut short by a power failure is noticed by its sha256, as any damage is.
    """
    handle, name = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
