"""What must be changed in the documents' listings before they run: the slips of print and scan, and what they leave open.

`S0` to `S4` are the documents, `S3.B1` the listing of appendix B.1. The listings themselves are not in this repository.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Correction:
    """In `listing`, `found`, which occurs there `times` times, becomes `replaced`."""

    listing: str
    found: str
    replaced: str
    why: str
    times: int = 1


NO_GPU = "the tensors must lie where the kernel runs, and TILELANG_TARGET_OVERRIDE=cpu runs it on the CPU"
NO_DTYPE = "an allocation without an element type is an error"
SCAN = "misread by the scan"

CORRECTIONS = [
    Correction("S0", "device='cuda'", "device='cpu'", NO_GPU, times=3),
    Correction("S1", 'device="cuda"', 'device="cpu"', NO_GPU, times=3),
    Correction("S3.B1", "T.alloc_shared(block_M, block_K)", "T.alloc_shared(block_M, block_K, dtype)", NO_DTYPE),
    Correction("S3.B1", "T.alloc_shared(block_K, block_N)", "T.alloc_shared(block_K, block_N, dtype)", NO_DTYPE),
    Correction(
        "S3.B1", "T.alloc_fragment(block_M, block_N)", "T.alloc_fragment(block_M, block_N, accum_dtype)", NO_DTYPE
    ),
    Correction("S3.B3", "0_shared", "O_shared", f"{SCAN}: the letter O", times=2),
    Correction("S3.B3", "∅", "0", SCAN),
    Correction("S3.B3", "∂", "0", SCAN),
    Correction("S3.B3", "acc s.", "acc_s,", SCAN),
]

# The interpreter is slow: there, sizes of 1024 shrink (text, replaced by). The compiled kernels run as large as printed.
SMALLER = {"S0": ("1024", "256"), "S1": ("M = N = K = 1024", "M = N = K = 256")}

# The words that follow the last line of S4's listing on the same line begin with this.
S4_GLUED = "This example demonstrates"

# How deep each line of S4's listing is indented, in steps; the document has lost it.
S4_INDENTATION = [0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 1, 2, 3, 3, 3, 3, 3, 4, 4, 4, 3, 1]

# Names that a listing uses and does not define, as statements before it.
FREE_NAMES = {
    "S3.B1": """
M, N, K = 96, 64, 128
block_M, block_N, block_K, threads = 32, 32, 32, 128
dtype, accum_dtype = "float16", "float32"
""",
    "S3.B2": """
from tilelang.quantize import _tir_packed_to_unsigned_convert
M, N, K = 50, 72, 128
block_M, block_N, block_K, threads, num_stages = 32, 32, 64, 128, 2
num_bits, num_elems_per_byte = 4, 2
in_dtype, out_dtype, accum_dtype, storage_dtype = "float16", "float16", "float32", "int8"
A_shape, B_shape = (M, K), (N, K // num_elems_per_byte)
A_shared_shape = (block_M, block_K)
B_shared_shape, B_dequantize_shared_shape = (block_N, block_K // num_elems_per_byte), (block_N, block_K)
""",
    "S3.B3": """
batch, heads, kv_head_num, seqlen_kv, dim, pe_dim = 2, 32, 2, 96, 64, 16
kv_group_num = heads // kv_head_num
block_H, block_N = 16, 32
VALID_BLOCK_H = min(block_H, kv_group_num)
dtype, accum_dtype = "float16", "float32"
scale = (dim + pe_dim) ** -0.5 * 1.4426950408889634  # log2(e): the listing takes powers of 2
""",
}
