"""The cases of the surface table, by family; importing this package registers all of them."""

from surface_cases import (
    atomics,
    copies,
    gemms,
    hints,
    launch,
    layouts,
    loops,
    mathematics,
    memory,
    package,
    reductions,
    types,
    warps,
)
from surface_cases.case import CASES, MODES, Case

__all__ = ["CASES", "MODES", "Case"]
