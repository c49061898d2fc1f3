"""From a kernel's name and numbers to something that launches: prebuilt if it was shipped, else compiled."""

from .resolve import Resolved, resolve
from .spec import KernelSpec
from .target import Target, target_of, threads_of

__all__ = ["KernelSpec", "Resolved", "Target", "resolve", "target_of", "threads_of"]
