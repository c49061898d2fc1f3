"""NVIDIA's matrix instructions, one declaration each."""

from tile_compiler.targets.cuda.instructions.ldmatrix import LDMATRIX, STMATRIX
from tile_compiler.targets.cuda.instructions.mma import MMA
from tile_compiler.targets.cuda.instructions.scalar import SCALAR
from tile_compiler.targets.cuda.instructions.wgmma import WGMMA

MULTIPLY = (*MMA, *SCALAR)
MOVE = (*LDMATRIX, *STMATRIX)
WARPGROUP = WGMMA
