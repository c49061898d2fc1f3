"""ROCm devices for tile kernels. This release finds them; it cannot run kernels on them yet (README.md)."""

__version__ = "0.1.0"
