"""A switch with text for a value."""

import tilelang


@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: "yes"})
def factory(n):
    pass


# --- what the user sees
# UnknownOption: [TL125] pass config 'tl.enable_fast_math' has an impossible value
#   --> pass_config_of_wrong_type.py:6   @tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: "yes"})
#   found:    'yes'
#   expected: a bool or an integer
#   try:      'tl.enable_fast_math': True, or leave it out
