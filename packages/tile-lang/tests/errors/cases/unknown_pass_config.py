"""A pass config with a slip of the pen."""

import tilelang


@tilelang.jit(pass_configs={"tl.enable_fastmath": True})
def factory(n):
    pass


# --- what the user sees
# UnknownOption: [TL125] unknown pass config 'tl.enable_fastmath'
#   --> unknown_pass_config.py:6   @tilelang.jit(pass_configs={"tl.enable_fastmath": True})
#   found:    'tl.enable_fastmath': True
#   expected: a key of tilelang.PassConfigKey
#   try:      did you mean 'tl.enable_fast_math'?
