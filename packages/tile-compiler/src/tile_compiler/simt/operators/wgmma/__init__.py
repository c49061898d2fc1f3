"""`T.gemm` by the matrix instructions of warpgroups (sm_90a)."""
