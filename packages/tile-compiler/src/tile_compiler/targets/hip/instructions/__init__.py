"""AMD's matrix instructions, one declaration each."""

from tile_compiler.targets.hip.instructions.mfma import MFMA
from tile_compiler.targets.hip.instructions.scalar import SCALAR

MULTIPLY = (*MFMA, *SCALAR)
MOVE = ()  # a lane of CDNA reads its own elements of LDS
WARPGROUP = ()
