"""What kernels are compiled for: one folder for each vendor, found by entry point."""
