"""Products of few tokens with packed weights on CPUs: how `dequantize_cpu` multiplies there.

Codes are looked up and multiplied in registers: as float32, or as pairs of bfloat16 where the processor is good at these.
float16 is the sum of two of bfloat16, and goes so by formats that bfloat16 holds exactly.
"""
