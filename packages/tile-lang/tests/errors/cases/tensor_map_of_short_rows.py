"""A tensor whose rows the tensor memory accelerator cannot step over: they are no multiple of 16 bytes."""

from tile_runtime.tensor_map import TensorMap

TensorMap(0x7F0000000000, "float16", shape=(60, 256), strides=(120,), box=(60, 64)).check("X")


# --- what the user sees
# TensorMapError: TLR025: the tensor map of X: strides of (120,) bytes; expected multiples of 16 bytes below 2^40. Make the tensor contiguous with padded rows, or copy it without the tensor memory accelerator.
