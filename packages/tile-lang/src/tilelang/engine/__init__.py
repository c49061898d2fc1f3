"""Where other versions of the language keep what programs around kernels ask the compiler for."""
