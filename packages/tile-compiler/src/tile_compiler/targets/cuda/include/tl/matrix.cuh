// Matrices of 8 x 8 16-bit elements between shared memory and registers (PTX ISA, "Warp-level matrix load instruction:
// ldmatrix", "Warp-level matrix store instruction: stmatrix").
//
// Lane i gives the address of row i % 8 of matrix i / 8: 16 bytes, aligned to 16. Register m of lane l holds, of matrix
// m, row l / 4, columns 2 * (l % 4) and the next; with _trans the same of the transposed matrix.
#pragma once

namespace tl {

#define TL_LDMATRIX_1(name, text)                                                                      \
  TL_DEVICE void name(void* registers, const void* row) {                                              \
    uint32_t* r = (uint32_t*)registers;                                                                \
    asm volatile("ldmatrix.sync.aligned.m8n8.x1" text ".shared.b16 {%0}, [%1];"                        \
                 : "=r"(r[0])                                                                          \
                 : "r"(detail::shared_address(row))                                                    \
                 : "memory");                                                                          \
  }
#define TL_LDMATRIX_2(name, text)                                                                      \
  TL_DEVICE void name(void* registers, const void* row) {                                              \
    uint32_t* r = (uint32_t*)registers;                                                                \
    asm volatile("ldmatrix.sync.aligned.m8n8.x2" text ".shared.b16 {%0, %1}, [%2];"                    \
                 : "=r"(r[0]), "=r"(r[1])                                                              \
                 : "r"(detail::shared_address(row))                                                    \
                 : "memory");                                                                          \
  }
#define TL_LDMATRIX_4(name, text)                                                                      \
  TL_DEVICE void name(void* registers, const void* row) {                                              \
    uint32_t* r = (uint32_t*)registers;                                                                \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" text ".shared.b16 {%0, %1, %2, %3}, [%4];"            \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                                      \
                 : "r"(detail::shared_address(row))                                                    \
                 : "memory");                                                                          \
  }
TL_LDMATRIX_1(ldmatrix_x1, "")
TL_LDMATRIX_2(ldmatrix_x2, "")
TL_LDMATRIX_4(ldmatrix_x4, "")
TL_LDMATRIX_1(ldmatrix_x1_trans, ".trans")
TL_LDMATRIX_2(ldmatrix_x2_trans, ".trans")
TL_LDMATRIX_4(ldmatrix_x4_trans, ".trans")
#undef TL_LDMATRIX_1
#undef TL_LDMATRIX_2
#undef TL_LDMATRIX_4

#if TL_HAS(900)
#define TL_STMATRIX_1(name, text)                                                                      \
  TL_DEVICE void name(void* row, const void* registers) {                                              \
    const uint32_t* r = (const uint32_t*)registers;                                                    \
    asm volatile("stmatrix.sync.aligned.m8n8.x1" text ".shared.b16 [%0], {%1};" ::"r"(                 \
                     detail::shared_address(row)),                                                     \
                 "r"(r[0])                                                                             \
                 : "memory");                                                                          \
  }
#define TL_STMATRIX_2(name, text)                                                                      \
  TL_DEVICE void name(void* row, const void* registers) {                                              \
    const uint32_t* r = (const uint32_t*)registers;                                                    \
    asm volatile("stmatrix.sync.aligned.m8n8.x2" text ".shared.b16 [%0], {%1, %2};" ::"r"(             \
                     detail::shared_address(row)),                                                     \
                 "r"(r[0]), "r"(r[1])                                                                  \
                 : "memory");                                                                          \
  }
#define TL_STMATRIX_4(name, text)                                                                      \
  TL_DEVICE void name(void* row, const void* registers) {                                              \
    const uint32_t* r = (const uint32_t*)registers;                                                    \
    asm volatile("stmatrix.sync.aligned.m8n8.x4" text ".shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(     \
                     detail::shared_address(row)),                                                     \
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])                                            \
                 : "memory");                                                                          \
  }
TL_STMATRIX_1(stmatrix_x1, "")
TL_STMATRIX_2(stmatrix_x2, "")
TL_STMATRIX_4(stmatrix_x4, "")
TL_STMATRIX_1(stmatrix_x1_trans, ".trans")
TL_STMATRIX_2(stmatrix_x2_trans, ".trans")
TL_STMATRIX_4(stmatrix_x4_trans, ".trans")
#undef TL_STMATRIX_1
#undef TL_STMATRIX_2
#undef TL_STMATRIX_4
#endif

}  // namespace tl
