// The instructions wgmma.mma_async by n: a file of tables, which wgmma.cuh includes.
//
// An asm statement spells each register of d, so that there is one statement for each n, kind of accumulator and place of a;
// element types and immediates are "C" operands (CUDA's inline PTX: text known at compile time).
#pragma once

// The widths that are wanted, a bit for each: bit n / 8 - 1. Reading all of them takes longer than the rest of the header.
#ifndef TL_WGMMA_WIDTHS
#define TL_WGMMA_WIDTHS 0xffffffffu
#endif

namespace tl {
namespace detail {

// Operand lists of d: the text, and the registers with constraint c.
#define TL_TEXT_2 "%0, %1"
#define TL_REGISTERS_2(c) c(d[0]), c(d[1])
#define TL_TEXT_4 TL_TEXT_2 ", %2, %3"
#define TL_REGISTERS_4(c) TL_REGISTERS_2(c), c(d[2]), c(d[3])
#define TL_TEXT_6 TL_TEXT_4 ", %4, %5"
#define TL_REGISTERS_6(c) TL_REGISTERS_4(c), c(d[4]), c(d[5])
#define TL_TEXT_8 TL_TEXT_6 ", %6, %7"
#define TL_REGISTERS_8(c) TL_REGISTERS_6(c), c(d[6]), c(d[7])
#define TL_TEXT_10 TL_TEXT_8 ", %8, %9"
#define TL_REGISTERS_10(c) TL_REGISTERS_8(c), c(d[8]), c(d[9])
#define TL_TEXT_12 TL_TEXT_10 ", %10, %11"
#define TL_REGISTERS_12(c) TL_REGISTERS_10(c), c(d[10]), c(d[11])
#define TL_TEXT_14 TL_TEXT_12 ", %12, %13"
#define TL_REGISTERS_14(c) TL_REGISTERS_12(c), c(d[12]), c(d[13])
#define TL_TEXT_16 TL_TEXT_14 ", %14, %15"
#define TL_REGISTERS_16(c) TL_REGISTERS_14(c), c(d[14]), c(d[15])
#define TL_TEXT_18 TL_TEXT_16 ", %16, %17"
#define TL_REGISTERS_18(c) TL_REGISTERS_16(c), c(d[16]), c(d[17])
#define TL_TEXT_20 TL_TEXT_18 ", %18, %19"
#define TL_REGISTERS_20(c) TL_REGISTERS_18(c), c(d[18]), c(d[19])
#define TL_TEXT_22 TL_TEXT_20 ", %20, %21"
#define TL_REGISTERS_22(c) TL_REGISTERS_20(c), c(d[20]), c(d[21])
#define TL_TEXT_24 TL_TEXT_22 ", %22, %23"
#define TL_REGISTERS_24(c) TL_REGISTERS_22(c), c(d[22]), c(d[23])
#define TL_TEXT_26 TL_TEXT_24 ", %24, %25"
#define TL_REGISTERS_26(c) TL_REGISTERS_24(c), c(d[24]), c(d[25])
#define TL_TEXT_28 TL_TEXT_26 ", %26, %27"
#define TL_REGISTERS_28(c) TL_REGISTERS_26(c), c(d[26]), c(d[27])
#define TL_TEXT_30 TL_TEXT_28 ", %28, %29"
#define TL_REGISTERS_30(c) TL_REGISTERS_28(c), c(d[28]), c(d[29])
#define TL_TEXT_32 TL_TEXT_30 ", %30, %31"
#define TL_REGISTERS_32(c) TL_REGISTERS_30(c), c(d[30]), c(d[31])
#define TL_TEXT_34 TL_TEXT_32 ", %32, %33"
#define TL_REGISTERS_34(c) TL_REGISTERS_32(c), c(d[32]), c(d[33])
#define TL_TEXT_36 TL_TEXT_34 ", %34, %35"
#define TL_REGISTERS_36(c) TL_REGISTERS_34(c), c(d[34]), c(d[35])
#define TL_TEXT_38 TL_TEXT_36 ", %36, %37"
#define TL_REGISTERS_38(c) TL_REGISTERS_36(c), c(d[36]), c(d[37])
#define TL_TEXT_40 TL_TEXT_38 ", %38, %39"
#define TL_REGISTERS_40(c) TL_REGISTERS_38(c), c(d[38]), c(d[39])
#define TL_TEXT_42 TL_TEXT_40 ", %40, %41"
#define TL_REGISTERS_42(c) TL_REGISTERS_40(c), c(d[40]), c(d[41])
#define TL_TEXT_44 TL_TEXT_42 ", %42, %43"
#define TL_REGISTERS_44(c) TL_REGISTERS_42(c), c(d[42]), c(d[43])
#define TL_TEXT_46 TL_TEXT_44 ", %44, %45"
#define TL_REGISTERS_46(c) TL_REGISTERS_44(c), c(d[44]), c(d[45])
#define TL_TEXT_48 TL_TEXT_46 ", %46, %47"
#define TL_REGISTERS_48(c) TL_REGISTERS_46(c), c(d[46]), c(d[47])
#define TL_TEXT_50 TL_TEXT_48 ", %48, %49"
#define TL_REGISTERS_50(c) TL_REGISTERS_48(c), c(d[48]), c(d[49])
#define TL_TEXT_52 TL_TEXT_50 ", %50, %51"
#define TL_REGISTERS_52(c) TL_REGISTERS_50(c), c(d[50]), c(d[51])
#define TL_TEXT_54 TL_TEXT_52 ", %52, %53"
#define TL_REGISTERS_54(c) TL_REGISTERS_52(c), c(d[52]), c(d[53])
#define TL_TEXT_56 TL_TEXT_54 ", %54, %55"
#define TL_REGISTERS_56(c) TL_REGISTERS_54(c), c(d[54]), c(d[55])
#define TL_TEXT_58 TL_TEXT_56 ", %56, %57"
#define TL_REGISTERS_58(c) TL_REGISTERS_56(c), c(d[56]), c(d[57])
#define TL_TEXT_60 TL_TEXT_58 ", %58, %59"
#define TL_REGISTERS_60(c) TL_REGISTERS_58(c), c(d[58]), c(d[59])
#define TL_TEXT_62 TL_TEXT_60 ", %60, %61"
#define TL_REGISTERS_62(c) TL_REGISTERS_60(c), c(d[60]), c(d[61])
#define TL_TEXT_64 TL_TEXT_62 ", %62, %63"
#define TL_REGISTERS_64(c) TL_REGISTERS_62(c), c(d[62]), c(d[63])
#define TL_TEXT_68 TL_TEXT_64 ", %64, %65, %66, %67"
#define TL_REGISTERS_68(c) TL_REGISTERS_64(c), c(d[64]), c(d[65]), c(d[66]), c(d[67])
#define TL_TEXT_72 TL_TEXT_68 ", %68, %69, %70, %71"
#define TL_REGISTERS_72(c) TL_REGISTERS_68(c), c(d[68]), c(d[69]), c(d[70]), c(d[71])
#define TL_TEXT_76 TL_TEXT_72 ", %72, %73, %74, %75"
#define TL_REGISTERS_76(c) TL_REGISTERS_72(c), c(d[72]), c(d[73]), c(d[74]), c(d[75])
#define TL_TEXT_80 TL_TEXT_76 ", %76, %77, %78, %79"
#define TL_REGISTERS_80(c) TL_REGISTERS_76(c), c(d[76]), c(d[77]), c(d[78]), c(d[79])
#define TL_TEXT_84 TL_TEXT_80 ", %80, %81, %82, %83"
#define TL_REGISTERS_84(c) TL_REGISTERS_80(c), c(d[80]), c(d[81]), c(d[82]), c(d[83])
#define TL_TEXT_88 TL_TEXT_84 ", %84, %85, %86, %87"
#define TL_REGISTERS_88(c) TL_REGISTERS_84(c), c(d[84]), c(d[85]), c(d[86]), c(d[87])
#define TL_TEXT_92 TL_TEXT_88 ", %88, %89, %90, %91"
#define TL_REGISTERS_92(c) TL_REGISTERS_88(c), c(d[88]), c(d[89]), c(d[90]), c(d[91])
#define TL_TEXT_96 TL_TEXT_92 ", %92, %93, %94, %95"
#define TL_REGISTERS_96(c) TL_REGISTERS_92(c), c(d[92]), c(d[93]), c(d[94]), c(d[95])
#define TL_TEXT_100 TL_TEXT_96 ", %96, %97, %98, %99"
#define TL_REGISTERS_100(c) TL_REGISTERS_96(c), c(d[96]), c(d[97]), c(d[98]), c(d[99])
#define TL_TEXT_104 TL_TEXT_100 ", %100, %101, %102, %103"
#define TL_REGISTERS_104(c) TL_REGISTERS_100(c), c(d[100]), c(d[101]), c(d[102]), c(d[103])
#define TL_TEXT_108 TL_TEXT_104 ", %104, %105, %106, %107"
#define TL_REGISTERS_108(c) TL_REGISTERS_104(c), c(d[104]), c(d[105]), c(d[106]), c(d[107])
#define TL_TEXT_112 TL_TEXT_108 ", %108, %109, %110, %111"
#define TL_REGISTERS_112(c) TL_REGISTERS_108(c), c(d[108]), c(d[109]), c(d[110]), c(d[111])
#define TL_TEXT_116 TL_TEXT_112 ", %112, %113, %114, %115"
#define TL_REGISTERS_116(c) TL_REGISTERS_112(c), c(d[112]), c(d[113]), c(d[114]), c(d[115])
#define TL_TEXT_120 TL_TEXT_116 ", %116, %117, %118, %119"
#define TL_REGISTERS_120(c) TL_REGISTERS_116(c), c(d[116]), c(d[117]), c(d[118]), c(d[119])
#define TL_TEXT_124 TL_TEXT_120 ", %120, %121, %122, %123"
#define TL_REGISTERS_124(c) TL_REGISTERS_120(c), c(d[120]), c(d[121]), c(d[122]), c(d[123])
#define TL_TEXT_128 TL_TEXT_124 ", %124, %125, %126, %127"
#define TL_REGISTERS_128(c) TL_REGISTERS_124(c), c(d[124]), c(d[125]), c(d[126]), c(d[127])

// One instruction for each n, with a from shared memory or from registers. The "C" operands are text: the shape's k and the
// types in front, immediate operands at the end.
#define TL_WGMMA_N(family, type, letter, n, count, i0, i1, i2, i3, i4, i5, i6, i7)                                \
  template <>                                                                                                     \
  struct family<n> {                                                                                              \
    template <class Kind>                                                                                         \
    static TL_DEVICE void shared_shared(type* d, uint64_t a, uint64_t b, int scale_d) {                           \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #i2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k%" #i3 \
                   " {" TL_TEXT_##count "}, %" #i0 ", %" #i1 ", p%" #i4 ";\n}"                                    \
                   : TL_REGISTERS_##count(letter)                                                                 \
                   : "l"(a), "l"(b), "r"(scale_d), "C"(Kind::types), "C"(Kind::immediates));                      \
    }                                                                                                             \
    template <class Kind>                                                                                         \
    static TL_DEVICE void register_shared(type* d, const uint32_t* a, uint64_t b, int scale_d) {                  \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #i5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k%" #i6 \
                   " {" TL_TEXT_##count "}, {%" #i0 ", %" #i1 ", %" #i2 ", %" #i3 "}, %" #i4 ", p%" #i7 ";\n}"    \
                   : TL_REGISTERS_##count(letter)                                                                 \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(scale_d), "C"(Kind::types),          \
                     "C"(Kind::immediates));                                                                      \
    }                                                                                                             \
  };
#define TL_FLOAT(register) "+f"(register)
#define TL_WORD(register) "+r"(register)
#define TL_WGMMA_32(n, count, ...)                                                   \
  TL_WGMMA_N(wgmma_float, float, TL_FLOAT, n, count, __VA_ARGS__)                         \
  TL_WGMMA_N(wgmma_int, int, TL_WORD, n, count, __VA_ARGS__)
#define TL_WGMMA_16(n, count, ...) TL_WGMMA_N(wgmma_half, uint32_t, TL_WORD, n, count, __VA_ARGS__)
template <int n>
struct wgmma_float;
template <int n>
struct wgmma_int;
template <int n>
struct wgmma_half;
#if TL_WGMMA_WIDTHS >> 0 & 1
TL_WGMMA_32(8, 4, 4, 5, 6, 7, 8, 9, 10, 11)
TL_WGMMA_16(8, 2, 2, 3, 4, 5, 6, 7, 8, 9)
#endif
#if TL_WGMMA_WIDTHS >> 1 & 1
TL_WGMMA_32(16, 8, 8, 9, 10, 11, 12, 13, 14, 15)
TL_WGMMA_16(16, 4, 4, 5, 6, 7, 8, 9, 10, 11)
#endif
#if TL_WGMMA_WIDTHS >> 2 & 1
TL_WGMMA_32(24, 12, 12, 13, 14, 15, 16, 17, 18, 19)
TL_WGMMA_16(24, 6, 6, 7, 8, 9, 10, 11, 12, 13)
#endif
#if TL_WGMMA_WIDTHS >> 3 & 1
TL_WGMMA_32(32, 16, 16, 17, 18, 19, 20, 21, 22, 23)
TL_WGMMA_16(32, 8, 8, 9, 10, 11, 12, 13, 14, 15)
#endif
#if TL_WGMMA_WIDTHS >> 4 & 1
TL_WGMMA_32(40, 20, 20, 21, 22, 23, 24, 25, 26, 27)
TL_WGMMA_16(40, 10, 10, 11, 12, 13, 14, 15, 16, 17)
#endif
#if TL_WGMMA_WIDTHS >> 5 & 1
TL_WGMMA_32(48, 24, 24, 25, 26, 27, 28, 29, 30, 31)
TL_WGMMA_16(48, 12, 12, 13, 14, 15, 16, 17, 18, 19)
#endif
#if TL_WGMMA_WIDTHS >> 6 & 1
TL_WGMMA_32(56, 28, 28, 29, 30, 31, 32, 33, 34, 35)
TL_WGMMA_16(56, 14, 14, 15, 16, 17, 18, 19, 20, 21)
#endif
#if TL_WGMMA_WIDTHS >> 7 & 1
TL_WGMMA_32(64, 32, 32, 33, 34, 35, 36, 37, 38, 39)
TL_WGMMA_16(64, 16, 16, 17, 18, 19, 20, 21, 22, 23)
#endif
#if TL_WGMMA_WIDTHS >> 8 & 1
TL_WGMMA_32(72, 36, 36, 37, 38, 39, 40, 41, 42, 43)
TL_WGMMA_16(72, 18, 18, 19, 20, 21, 22, 23, 24, 25)
#endif
#if TL_WGMMA_WIDTHS >> 9 & 1
TL_WGMMA_32(80, 40, 40, 41, 42, 43, 44, 45, 46, 47)
TL_WGMMA_16(80, 20, 20, 21, 22, 23, 24, 25, 26, 27)
#endif
#if TL_WGMMA_WIDTHS >> 10 & 1
TL_WGMMA_32(88, 44, 44, 45, 46, 47, 48, 49, 50, 51)
TL_WGMMA_16(88, 22, 22, 23, 24, 25, 26, 27, 28, 29)
#endif
#if TL_WGMMA_WIDTHS >> 11 & 1
TL_WGMMA_32(96, 48, 48, 49, 50, 51, 52, 53, 54, 55)
TL_WGMMA_16(96, 24, 24, 25, 26, 27, 28, 29, 30, 31)
#endif
#if TL_WGMMA_WIDTHS >> 12 & 1
TL_WGMMA_32(104, 52, 52, 53, 54, 55, 56, 57, 58, 59)
TL_WGMMA_16(104, 26, 26, 27, 28, 29, 30, 31, 32, 33)
#endif
#if TL_WGMMA_WIDTHS >> 13 & 1
TL_WGMMA_32(112, 56, 56, 57, 58, 59, 60, 61, 62, 63)
TL_WGMMA_16(112, 28, 28, 29, 30, 31, 32, 33, 34, 35)
#endif
#if TL_WGMMA_WIDTHS >> 14 & 1
TL_WGMMA_32(120, 60, 60, 61, 62, 63, 64, 65, 66, 67)
TL_WGMMA_16(120, 30, 30, 31, 32, 33, 34, 35, 36, 37)
#endif
#if TL_WGMMA_WIDTHS >> 15 & 1
TL_WGMMA_32(128, 64, 64, 65, 66, 67, 68, 69, 70, 71)
TL_WGMMA_16(128, 32, 32, 33, 34, 35, 36, 37, 38, 39)
#endif
#if TL_WGMMA_WIDTHS >> 16 & 1
TL_WGMMA_32(136, 68, 68, 69, 70, 71, 72, 73, 74, 75)
TL_WGMMA_16(136, 34, 34, 35, 36, 37, 38, 39, 40, 41)
#endif
#if TL_WGMMA_WIDTHS >> 17 & 1
TL_WGMMA_32(144, 72, 72, 73, 74, 75, 76, 77, 78, 79)
TL_WGMMA_16(144, 36, 36, 37, 38, 39, 40, 41, 42, 43)
#endif
#if TL_WGMMA_WIDTHS >> 18 & 1
TL_WGMMA_32(152, 76, 76, 77, 78, 79, 80, 81, 82, 83)
TL_WGMMA_16(152, 38, 38, 39, 40, 41, 42, 43, 44, 45)
#endif
#if TL_WGMMA_WIDTHS >> 19 & 1
TL_WGMMA_32(160, 80, 80, 81, 82, 83, 84, 85, 86, 87)
TL_WGMMA_16(160, 40, 40, 41, 42, 43, 44, 45, 46, 47)
#endif
#if TL_WGMMA_WIDTHS >> 20 & 1
TL_WGMMA_32(168, 84, 84, 85, 86, 87, 88, 89, 90, 91)
TL_WGMMA_16(168, 42, 42, 43, 44, 45, 46, 47, 48, 49)
#endif
#if TL_WGMMA_WIDTHS >> 21 & 1
TL_WGMMA_32(176, 88, 88, 89, 90, 91, 92, 93, 94, 95)
TL_WGMMA_16(176, 44, 44, 45, 46, 47, 48, 49, 50, 51)
#endif
#if TL_WGMMA_WIDTHS >> 22 & 1
TL_WGMMA_32(184, 92, 92, 93, 94, 95, 96, 97, 98, 99)
TL_WGMMA_16(184, 46, 46, 47, 48, 49, 50, 51, 52, 53)
#endif
#if TL_WGMMA_WIDTHS >> 23 & 1
TL_WGMMA_32(192, 96, 96, 97, 98, 99, 100, 101, 102, 103)
TL_WGMMA_16(192, 48, 48, 49, 50, 51, 52, 53, 54, 55)
#endif
#if TL_WGMMA_WIDTHS >> 24 & 1
TL_WGMMA_32(200, 100, 100, 101, 102, 103, 104, 105, 106, 107)
TL_WGMMA_16(200, 50, 50, 51, 52, 53, 54, 55, 56, 57)
#endif
#if TL_WGMMA_WIDTHS >> 25 & 1
TL_WGMMA_32(208, 104, 104, 105, 106, 107, 108, 109, 110, 111)
TL_WGMMA_16(208, 52, 52, 53, 54, 55, 56, 57, 58, 59)
#endif
#if TL_WGMMA_WIDTHS >> 26 & 1
TL_WGMMA_32(216, 108, 108, 109, 110, 111, 112, 113, 114, 115)
TL_WGMMA_16(216, 54, 54, 55, 56, 57, 58, 59, 60, 61)
#endif
#if TL_WGMMA_WIDTHS >> 27 & 1
TL_WGMMA_32(224, 112, 112, 113, 114, 115, 116, 117, 118, 119)
TL_WGMMA_16(224, 56, 56, 57, 58, 59, 60, 61, 62, 63)
#endif
#if TL_WGMMA_WIDTHS >> 28 & 1
TL_WGMMA_32(232, 116, 116, 117, 118, 119, 120, 121, 122, 123)
TL_WGMMA_16(232, 58, 58, 59, 60, 61, 62, 63, 64, 65)
#endif
#if TL_WGMMA_WIDTHS >> 29 & 1
TL_WGMMA_32(240, 120, 120, 121, 122, 123, 124, 125, 126, 127)
TL_WGMMA_16(240, 60, 60, 61, 62, 63, 64, 65, 66, 67)
#endif
#if TL_WGMMA_WIDTHS >> 30 & 1
TL_WGMMA_32(248, 124, 124, 125, 126, 127, 128, 129, 130, 131)
TL_WGMMA_16(248, 62, 62, 63, 64, 65, 66, 67, 68, 69)
#endif
#if TL_WGMMA_WIDTHS >> 31 & 1
TL_WGMMA_32(256, 128, 128, 129, 130, 131, 132, 133, 134, 135)
TL_WGMMA_16(256, 64, 64, 65, 66, 67, 68, 69, 70, 71)
#endif
#undef TL_WGMMA_32
#undef TL_WGMMA_16
#undef TL_WGMMA_N

}  // namespace detail
}  // namespace tl
