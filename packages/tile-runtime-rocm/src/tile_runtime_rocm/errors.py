"""What building for AMD GPUs and launching on them raises."""

from __future__ import annotations

from tile_runtime.errors import TileRuntimeError


class BuildError(TileRuntimeError, RuntimeError):
    """A device compiler for AMD GPUs is missing, or it refused its input."""

    code = "TLR060"


class LaunchError(TileRuntimeError, RuntimeError):
    """The HIP runtime refused a launch, or reports that an earlier kernel failed."""

    code = "TLR061"
