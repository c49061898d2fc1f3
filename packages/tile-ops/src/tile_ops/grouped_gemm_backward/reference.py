"""The reference is torch's autograd through `grouped_gemm.reference`, in float64."""

from tile_ops.gemm.reference import TOLERANCES as TOLERANCES
