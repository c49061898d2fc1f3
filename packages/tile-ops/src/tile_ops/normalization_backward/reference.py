"""The reference is torch's autograd through `normalization.reference`, in float64."""

#: Largest error relative to |expected| plus the root mean square of `expected`: a few roundings of the type.
TOLERANCES = {"float32": 1e-5, "float16": 3e-3, "bfloat16": 2e-2}
