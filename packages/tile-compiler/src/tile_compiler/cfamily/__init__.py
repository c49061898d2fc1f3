"""Readable C++ for GPUs from the SIMT IR (docs/internals/simt-ir.md): one printer, a dialect for each vendor.

`launches.kernel_inputs` picks a function's kernels and their arguments, `printer.print_source` prints them.
"""
