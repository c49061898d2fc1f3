"""The declared instructions: those of our targets, and those that users add."""

from __future__ import annotations

import importlib
from functools import lru_cache

from tile_compiler.instructions.matrix_move import MatrixMove
from tile_compiler.instructions.matrix_multiply import MatrixMultiply
from tile_compiler.instructions.warpgroup_multiply import WarpgroupMultiply
from tilelang import fingerprint

_OWN = ("tile_compiler.targets.cuda.instructions", "tile_compiler.targets.hip.instructions")
_added: list[MatrixMultiply] = []


@lru_cache(maxsize=1)
def _own() -> tuple[MatrixMultiply, ...]:
    return tuple(d for module in _OWN for d in importlib.import_module(module).MULTIPLY)


def declared() -> tuple[MatrixMultiply, ...]:
    """Every declared multiply, users' first, in order of preference for the same element types."""
    return (*added(), *_own())


@lru_cache(maxsize=1)
def matrix_moves() -> tuple[MatrixMove, ...]:
    """Every declared move of matrices between shared memory and registers."""
    return tuple(d for module in _OWN for d in importlib.import_module(module).MOVE)


@lru_cache(maxsize=1)
def warpgroup_multiplies() -> tuple[WarpgroupMultiply, ...]:
    """Every declared multiply of a warpgroup."""
    return tuple(d for module in _OWN for d in importlib.import_module(module).WARPGROUP)


def added() -> tuple[MatrixMultiply, ...]:
    """The multiplies of users, the newest first."""
    return tuple(reversed(_added))


def register(instruction: MatrixMultiply) -> MatrixMultiply:
    """Let `T.gemm` use an instruction of the user's own, before ours for the same element types; returns it.

    Kernels that are compiled afterwards may use it; one in the cache is found again only by a process that registered
    the same. ValueError if another instruction has its name; registering an equal one again changes nothing.
    """
    same = next((d for d in declared() if d.name == instruction.name), None)
    if same is not None and same.identity != instruction.identity:
        raise ValueError(f"There is already an instruction {instruction.name} ({same.text}). Give yours another name.")
    if same is None:
        _added.append(instruction)
        fingerprint.extended(instruction.identity)
    return instruction
