"""From a kernel's name and numbers to something that launches: prebuilt if it was shipped, else compiled."""

from .resolve import Resolved, resolve
from .spec import KernelSpec
from .target import Target, still_shared_by, target_of, threads_of

__all__ = ["KernelSpec", "Resolved", "Target", "resolve", "still_shared_by", "target_of", "threads_of"]
