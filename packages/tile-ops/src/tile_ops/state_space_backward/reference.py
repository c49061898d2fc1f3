"""The reference is torch's autograd through `state_space.reference.ssd_scan`, in float64."""

#: Largest error relative to |expected| plus the root mean square of `expected`: as of the scan, over longer chains.
TOLERANCES = {"float32": 1e-4, "float16": 1.5e-2, "bfloat16": 1e-1}
