"""Tools around kernels: pictures of layouts. Importing this loads none of the packages that draw."""

# The function, not the module of the same name: the module is small, and itself imports matplotlib when it draws.
from tilelang.tools.plot_layout import plot_layout

__all__ = ["plot_layout"]
