"""Matrix instructions as declarations: one frozen, self-checking value for each, in one form for every vendor."""

from tile_compiler.instructions.architectures import runs_on
from tile_compiler.instructions.matrix_move import MatrixMove
from tile_compiler.instructions.matrix_multiply import MatrixMultiply
from tile_compiler.instructions.registry import added, declared, matrix_moves, register, warpgroup_multiplies
from tile_compiler.instructions.warpgroup_multiply import WarpgroupMultiply

__all__ = [
    "MatrixMove",
    "MatrixMultiply",
    "WarpgroupMultiply",
    "added",
    "declared",
    "matrix_moves",
    "register",
    "runs_on",
    "warpgroup_multiplies",
]
