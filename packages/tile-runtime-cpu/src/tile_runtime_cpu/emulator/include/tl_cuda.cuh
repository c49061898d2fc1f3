// The device header of CUDA kernels, for the host: same names and meaning as the compiler's file of this name.
//
// Functions that involve other threads or asynchronous work call the runtime (tl/abi.h), the rest is ordinary C++.
#pragma once

#include "tl/platform.cuh"
#include "tl/convert.cuh"
#include "tl/types.cuh"
#include "tl/collective.cuh"
#include "tl/atomic.cuh"
#include "tl/math.cuh"
