"""Warp specialization: producer warps that bring tiles by TMA, consumer warps that compute (paper, section 4.4)."""
