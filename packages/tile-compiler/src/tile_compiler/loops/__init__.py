"""Turning a loop whose iterations are independent into vector loops: conditions split off, lanes made explicit."""
