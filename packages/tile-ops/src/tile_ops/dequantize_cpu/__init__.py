"""Products with packed weights on CPUs: how `dequantize` multiplies there.

For few tokens by vectors of words; where pairs of bfloat16 are multiplied, with codes as such pairs; else with weights decoded
to float32, tile by tile. For many tokens rows of W are decoded into memory, for the dense product.
"""
