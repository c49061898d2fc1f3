"""Every error this package and the vendor runtimes raise, each with a stable code.

A class also derives from the builtin that a caller of that place would catch. Messages say what was found, what was
expected and how to repair it; the code stands in front, so that a search for it finds its documentation.
"""

from __future__ import annotations


class TileRuntimeError(Exception):
    """Base of all errors here. `code` is stable between releases."""

    code = "TLR000"

    def __init__(self, message: str) -> None:
        super().__init__(f"{self.code}: {message}")


class ArtifactError(TileRuntimeError, ValueError):
    """A `.tile` file or manifest that is damaged, foreign or inconsistent."""

    code = "TLR001"


class ExpressionError(TileRuntimeError, ValueError):
    """An expression outside the closed language, or one without a value (division by zero)."""

    code = "TLR002"


class CacheFolderError(TileRuntimeError, PermissionError):
    """The cache folder cannot be used safely: others can write to it, or it belongs to someone else."""

    code = "TLR003"


class DeviceNotFound(TileRuntimeError, LookupError):
    """No installed plugin offers the device."""

    code = "TLR004"


class DeviceUnavailable(TileRuntimeError, RuntimeError):
    """The plugin is installed, but the machine cannot run the artifact (no driver, wrong CPU level)."""

    code = "TLR005"


class LoadError(TileRuntimeError, RuntimeError):
    """A binary of an artifact cannot be loaded: not of the expected form, or it needs an unknown symbol."""

    code = "TLR006"


class ArgumentCountError(TileRuntimeError, ValueError, TypeError):
    """A call with too few or too many arguments."""

    code = "TLR010"


class ArgumentTypeError(TileRuntimeError, TypeError):
    """A tensor where a number belongs, or the reverse, or something that is neither."""

    code = "TLR011"


class ArgumentDtypeError(TileRuntimeError, TypeError, RuntimeError):
    """A tensor of the wrong element type."""

    code = "TLR012"


class ArgumentShapeError(TileRuntimeError, ValueError, RuntimeError):
    """A wrong rank or extent, or two arguments that disagree about a dim."""

    code = "TLR013"


class ArgumentStrideError(TileRuntimeError, ValueError, RuntimeError):
    """A tensor whose memory is not laid out as the kernel was compiled for."""

    code = "TLR014"


class ArgumentAlignmentError(TileRuntimeError, ValueError, RuntimeError):
    """A tensor whose address is not a multiple of what the kernel was compiled for."""

    code = "TLR015"


class ArgumentDeviceError(TileRuntimeError, ValueError, RuntimeError):
    """A tensor on another device than the kernel's. Never copied silently."""

    code = "TLR016"


class ScalarRangeError(TileRuntimeError, ValueError, OverflowError):
    """A number that its parameter's dtype cannot hold."""

    code = "TLR017"


class ReadOnlyError(TileRuntimeError, ValueError):
    """A read-only tensor where the kernel writes."""

    code = "TLR018"


class CheckFailed(TileRuntimeError, ValueError, RuntimeError):
    """A fact that the kernel declares about its arguments does not hold."""

    code = "TLR019"


class NoVariantError(TileRuntimeError, ValueError):
    """No variant of the kernel was compiled for these arguments."""

    code = "TLR020"


class OutputError(TileRuntimeError, ValueError):
    """An output left out of the call cannot be allocated."""

    code = "TLR021"


class TensorMapError(TileRuntimeError, ValueError):
    """A tensor that the tensor memory accelerator cannot reach as the kernel wants it: address, strides or boxes."""

    code = "TLR025"


class KernelAssertError(TileRuntimeError, AssertionError, RuntimeError):
    """A device assert of the kernel failed, or it returned an error code."""

    code = "TLR030"


class KernelMemoryError(TileRuntimeError, MemoryError):
    """The scratch memory of a kernel could not be allocated."""

    code = "TLR031"
