"""What an operator raises. Each class is also the builtin that torch raises at that place."""

from __future__ import annotations


class OperatorError(Exception):
    """Base of all errors of tile_ops. The message says what was found, what was expected, and one repair."""


class WrongShape(OperatorError, ValueError):
    """Operands whose shapes do not fit together."""


class WrongType(OperatorError, TypeError):
    """An argument that is no tensor where one is expected."""


class WrongDtype(OperatorError, TypeError):
    """An element type that the operator has no kernel for."""


class WrongDevice(OperatorError, RuntimeError):
    """Operands on different devices, or on one that has no runtime."""


class WrongStride(OperatorError, ValueError):
    """A memory layout that the operator cannot read in place."""


class WrongValue(OperatorError, ValueError):
    """A number or name outside of its range."""


class KernelUnavailable(OperatorError, RuntimeError):
    """No prebuilt kernel fits, and nothing installed can compile one."""
