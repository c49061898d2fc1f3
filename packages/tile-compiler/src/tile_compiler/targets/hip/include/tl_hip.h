// The device header of HIP kernels, the only file that generated code includes.
//
// Every function is tl::name<literals>(addresses, scalars), as docs/internals/simt-ir.md lists them; a name that the
// architecture lacks is not declared, so that using it is a compile error. Compiles for gfx90a and gfx942 with any clang
// from 17 on, without ROCm: no other file is included, and no library is linked. A wave has 64 lanes. The emulator has a
// header of the same name with the same functions for the host
// (packages/tile-runtime-cpu/src/tile_runtime_cpu/emulator/include).
//
// Sources: "AMD Instinct MI200 ISA" and "AMD Instinct MI300 (CDNA3) ISA", whose chapters stand at each group; the
// compiler's builtins in LLVM's "User Guide for AMDGPU Backend" and clang's BuiltinsAMDGPU.def.
#pragma once

#include "tl/platform.h"
#include "tl/convert.h"
#include "tl/vec.h"
#include "tl/types.h"
#include "tl/fnuz.h"
#include "tl/packed.h"
#include "tl/memory.h"
#include "tl/sync.h"
#include "tl/loads.h"
#include "tl/mfma.h"
#include "tl/shuffle.h"
#include "tl/atomic.h"
#include "tl/atomic_order.h"
#include "tl/arithmetic.h"
#include "tl/series.h"
#include "tl/functions.h"
#include "tl/debug.h"
