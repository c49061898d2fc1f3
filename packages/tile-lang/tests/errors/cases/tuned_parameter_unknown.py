"""Configurations for a parameter that the function does not have."""

import tilelang
import tilelang.language as T


@tilelang.autotune(configs={"block_m": [32, 64]})
@tilelang.jit(target="cpu")
def copy(n, block=32):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block)) as bx:
            T.copy(A[bx * block], B[bx * block : (bx + 1) * block])

    return main


copy(1024)


# --- what the user sees
# BadConfigurations: [TL132] the tuned function has no parameter 'block_m'
#   --> tuned_parameter_unknown.py:18   copy(1024)
#   found:    a configuration with the keys block_m
#   expected: keys among n, block
#   try:      add the parameter block_m to the function, or take it out of the configurations
