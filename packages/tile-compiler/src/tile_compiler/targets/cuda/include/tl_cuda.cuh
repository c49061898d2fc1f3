// The device header of CUDA kernels, the only file that generated code includes.
//
// Every function is tl::name<literals>(addresses, scalars), as docs/internals/simt-ir.md lists them; a name that the
// architecture lacks is not declared, so that using it is a compile error. Compiles with NVRTC (which has no standard
// headers) and nvcc for sm_75 to sm_90a. The emulator has a header of the same name with the same functions for the
// host (packages/tile-runtime-cpu/src/tile_runtime_cpu/emulator/include).
//
// Source of all inline assembly: "Parallel Thread Execution ISA", whose section names stand at each group.
#pragma once

#include "tl/platform.cuh"
#include "tl/convert.cuh"
#include "tl/types.cuh"
#include "tl/fnuz.cuh"
#include "tl/packed.cuh"
#include "tl/memory.cuh"
#include "tl/sync.cuh"
#include "tl/async_copy.cuh"
#include "tl/matrix.cuh"
#include "tl/mma.cuh"
#include "tl/mbarrier.cuh"
#include "tl/tma.cuh"
#include "tl/loads.cuh"
#include "tl/wgmma.cuh"
#include "tl/cluster.cuh"
#include "tl/register_limits.cuh"
#include "tl/shuffle.cuh"
#include "tl/atomic.cuh"
#include "tl/atomic_order.cuh"
#include "tl/math.cuh"
#include "tl/debug.cuh"
