// The device header of CUDA kernels, for the host: same names and meaning as the compiler's file of this name.
//
// Functions that involve other threads or asynchronous work call the runtime (tl/abi.h), the rest is ordinary C++.
#pragma once

#define TL_EMU_WARP_SIZE 32
// The emulated chip has every instruction of the header; whether the target has it was the compiler's question.
#define TL_ARCH 900
#define TL_HAS(arch) 1

#include "tl/platform.cuh"
#include "tl/convert.cuh"
#include "tl/types.cuh"
#include "tl/fnuz.cuh"
#include "tl/packed.cuh"
#include "tl/lanes.cuh"
#include "tl/collective.cuh"
#include "tl/mbarrier.cuh"
#include "tl/tma.cuh"
#include "tl/loads.cuh"
#include "tl/wgmma.cuh"
#include "tl/atomic.cuh"
#include "tl/cluster.cuh"
#include "tl/register_limits.cuh"
#include "tl/atomic_order.cuh"
#include "tl/math.cuh"
#include "tl/meaning.cuh"
