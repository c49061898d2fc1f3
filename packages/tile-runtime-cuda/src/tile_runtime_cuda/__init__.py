"""CUDA devices for tile kernels: builds cubins (build.py), loads and launches them (launch.py)."""

__version__ = "0.1.0"
