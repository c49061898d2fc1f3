"""Kernels of tile_ops, compiled for NVIDIA GPUs; tile_ops.kernel.prebuilt reads index.json."""
