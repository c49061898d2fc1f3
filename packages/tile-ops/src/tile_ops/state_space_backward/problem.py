"""A backward pass as a value: what `ssd_scan` was called with."""

from tile_ops.state_space.problem import ScanProblem

__all__ = ["ScanProblem"]
