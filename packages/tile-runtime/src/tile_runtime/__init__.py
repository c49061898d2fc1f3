"""What the vendor runtimes share: artifact format, cache, device contract, launch plans.

Needs the standard library and numpy only; importing it loads no compiler, no TVM and no torch.
"""

__version__ = "0.1.0"
