"""Tools around kernels: pictures of layouts, rooflines, the way through the compiler. Importing this loads none of the
packages that draw."""

# The functions, not the modules of the same names.
from tilelang.tools.analyzer import Analyzer
from tilelang.tools.plot_layout import plot_layout

__all__ = ["Analyzer", "plot_layout"]
