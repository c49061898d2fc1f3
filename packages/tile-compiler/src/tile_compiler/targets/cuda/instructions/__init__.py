"""NVIDIA's matrix instructions, one declaration each."""

from tile_compiler.targets.cuda.instructions.ldmatrix import LDMATRIX, STMATRIX
from tile_compiler.targets.cuda.instructions.mma import MMA
from tile_compiler.targets.cuda.instructions.scalar import SCALAR

MULTIPLY = (*MMA, *SCALAR)
MOVE = (*LDMATRIX, *STMATRIX)
