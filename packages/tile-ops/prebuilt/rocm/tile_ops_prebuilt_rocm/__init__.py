"""Kernels of tile_ops, compiled for AMD GPUs; tile_ops.kernel.prebuilt reads index.json."""
