// The device header of HIP kernels, for the host: same names and meaning as the compiler's file of this name.
//
// Waves have 64 lanes. What only CUDA has (named barriers, ldmatrix, mma.sync) is not declared, so that using it is a compile
// error as on the device.
#pragma once

#define TL_EMU_WARP_SIZE 64

#include "tl/platform.cuh"
#include "tl/convert.cuh"
#include "tl/types.cuh"
#include "tl/fnuz.cuh"
#include "tl/packed.cuh"
#include "tl/lanes.cuh"
#include "tl/loads.h"
#include "tl/mfma.h"
#include "tl/atomic.cuh"
#include "tl/atomic_order.cuh"
#include "tl/math.cuh"

namespace tl {

TL_DEVICE uint64_t vote_ballot(bool x) { return tl_emu_ballot(x); }

}  // namespace tl
