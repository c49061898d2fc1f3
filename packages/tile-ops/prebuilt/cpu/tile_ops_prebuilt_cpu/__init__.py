"""Kernels of tile_ops, compiled for x86-64 CPUs; tile_ops.kernel.prebuilt reads index.json."""
