"""Products with packed weights on CPUs: how `dequantize` multiplies there.

For few tokens as `dequantize_vectors` does; where pairs of bfloat16 are multiplied, with codes as such pairs or weights rounded
to bfloat16; else with weights decoded to float32, tile by tile. For many tokens rows of W are decoded into memory, for the
dense product.
"""
