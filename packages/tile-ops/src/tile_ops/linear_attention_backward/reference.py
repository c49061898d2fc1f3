"""The reference is torch's autograd through `linear_attention.reference.linear_attention`, in float64."""

from tile_ops.state_space_backward.reference import TOLERANCES as TOLERANCES
