// Asynchronous matrix products of a warpgroup (sm_90a): four warps multiply 64 rows.
//
// The 64 × N accumulator is N / 2 floats per thread. Thread t of 128 holds columns 2·(t % 4) and
// the next one of every eight, in row 16·(t / 32) + t % 32 / 4 (d[4i] and d[4i + 1]) and in the row
// 8 below it (d[4i + 2] and d[4i + 3]). Rounded to 16 bits in pairs, this is the layout of a left
// operand in registers, so the result of one product can be the operand of the next.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/cuda/mbarrier.cuh"
#include "core/number.hpp"

namespace onepass::wgmma {

// A fence between ordinary writes of registers or shared memory and the products that read them.
__device__ inline void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Makes the products issued so far a group. Groups end in order.
__device__ inline void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most this many groups are in flight.
template <int Groups>
__device__ inline void wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Groups) : "memory");
}

// Keeps the compiler from moving uses of an accumulator across this point: it does not know that a
// product writes its accumulator after the instruction.
template <int Size>
__device__ inline void pin(float (&d)[Size]) {
#pragma unroll
  for (int i = 0; i < Size; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// The descriptor of an operand in shared memory as the copy engine writes it: rows of 128 bytes, of
// which eight form a swizzled pattern of 1024 bytes that repeats along the rows. `columns` is the
// distance between blocks of 64 columns, which only an operand that is read across its rows needs.
__device__ inline std::uint64_t operand(const void* data, int columns = 0) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kRows = std::uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kRows | static_cast<std::uint64_t>(columns >> 4) << 16 |
         (shared_address(data) & 0x3FFFF) >> 4;
}

// A template cannot generate the text of an asm statement: hence one line per size, and these
// lists.
#define ONEPASS_D8(i)                                                                 \
  "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]), \
      "+f"(d[(i) + 5]), "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
#define ONEPASS_D32 ONEPASS_D8(0), ONEPASS_D8(8), ONEPASS_D8(16), ONEPASS_D8(24)
#define ONEPASS_P32                                                                            \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ONEPASS_D40 ONEPASS_D32, ONEPASS_D8(32)
#define ONEPASS_P40 ONEPASS_P32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define ONEPASS_D48 ONEPASS_D40, ONEPASS_D8(40)
#define ONEPASS_P48 ONEPASS_P40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define ONEPASS_D64 ONEPASS_D48, ONEPASS_D8(48), ONEPASS_D8(56)
#define ONEPASS_P64 \
  ONEPASS_P48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define ONEPASS_D96 ONEPASS_D64, ONEPASS_D8(64), ONEPASS_D8(72), ONEPASS_D8(80), ONEPASS_D8(88)
#define ONEPASS_P96                                                                         \
  ONEPASS_P64                                                                               \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, " \
  "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define ONEPASS_D128 ONEPASS_D96, ONEPASS_D8(96), ONEPASS_D8(104), ONEPASS_D8(112), ONEPASS_D8(120)
#define ONEPASS_P128                                                                           \
  ONEPASS_P96                                                                                  \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "   \
  "%111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, " \
  "%126, %127"
// `across`: 1 if both operands are read across their rows.
#define ONEPASS_SHARED_OF(type, n, places, a, b, add, across)                               \
  "{ .reg .pred p; setp.ne.b32 p, " add                                                     \
  ", 0;\n"                                                                                  \
  "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" places "}, " a ", " b \
  ", p, 1, 1, " across ", " across "; }"
#define ONEPASS_SCORES(size, n, places, registers, a, b, add)         \
  if constexpr (Size == size && std::is_same_v<T, BF16>) {            \
    asm volatile(ONEPASS_SHARED_OF("bf16", n, places, a, b, add, "0") \
                 : registers                                          \
                 : "l"(left), "l"(right), "n"(Add ? 1 : 0));          \
  } else if constexpr (Size == size) {                                \
    asm volatile(ONEPASS_SHARED_OF("f16", n, places, a, b, add, "0")  \
                 : registers                                          \
                 : "l"(left), "l"(right), "n"(Add ? 1 : 0));          \
  }
#define ONEPASS_OUTER(size, n, places, registers, a, b, add)          \
  if constexpr (Size == size && std::is_same_v<T, BF16>) {            \
    asm volatile(ONEPASS_SHARED_OF("bf16", n, places, a, b, add, "1") \
                 : registers                                          \
                 : "l"(left), "l"(right), "n"(Add ? 1 : 0));          \
  } else if constexpr (Size == size) {                                \
    asm volatile(ONEPASS_SHARED_OF("f16", n, places, a, b, add, "1")  \
                 : registers                                          \
                 : "l"(left), "l"(right), "n"(Add ? 1 : 0));          \
  }
#define ONEPASS_SUMS_OF(type, n, places, a, b)                                                \
  "{ .reg .pred p; setp.eq.b32 p, 0, 0;\n"                                                    \
  "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" places "}, {" a "}, " b \
  ", p, 1, 1, 1; }"
#define ONEPASS_SUMS(size, n, places, registers, a, b)                                  \
  if constexpr (Size == size && std::is_same_v<T, BF16>) {                              \
    asm volatile(ONEPASS_SUMS_OF("bf16", n, places, a, b)                               \
                 : registers                                                            \
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right)); \
  } else if constexpr (Size == size) {                                                  \
    asm volatile(ONEPASS_SUMS_OF("f16", n, places, a, b)                                \
                 : registers                                                            \
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right)); \
  }

// d = left · rightᵀ or d += left · rightᵀ: 16 columns of 64 rows by 16 columns of N rows, both in
// shared memory.
template <class T, bool Add, int Size>
__device__ inline void scores(float (&d)[Size], std::uint64_t left, std::uint64_t right) {
  static_assert(Size == 32 || Size == 40 || Size == 48 || Size == 64, "no such size here yet");
  ONEPASS_SCORES(32, "64", ONEPASS_P32, ONEPASS_D32, "%32", "%33", "%34");
  ONEPASS_SCORES(40, "80", ONEPASS_P40, ONEPASS_D40, "%40", "%41", "%42");
  ONEPASS_SCORES(48, "96", ONEPASS_P48, ONEPASS_D48, "%48", "%49", "%50");
  ONEPASS_SCORES(64, "128", ONEPASS_P64, ONEPASS_D64, "%64", "%65", "%66");
}

// d += left · right: 16 columns of 64 rows in registers by 16 rows of N columns in shared memory.
template <class T, int Size>
__device__ inline void sums(float (&d)[Size], const unsigned (&left)[4], std::uint64_t right) {
  static_assert(Size == 32 || Size == 48 || Size == 64 || Size == 96 || Size == 128,
                "no such size here yet");
  ONEPASS_SUMS(32, "64", ONEPASS_P32, ONEPASS_D32, "%32, %33, %34, %35", "%36");
  ONEPASS_SUMS(48, "96", ONEPASS_P48, ONEPASS_D48, "%48, %49, %50, %51", "%52");
  ONEPASS_SUMS(64, "128", ONEPASS_P64, ONEPASS_D64, "%64, %65, %66, %67", "%68");
  ONEPASS_SUMS(96, "192", ONEPASS_P96, ONEPASS_D96, "%96, %97, %98, %99", "%100");
  ONEPASS_SUMS(128, "256", ONEPASS_P128, ONEPASS_D128, "%128, %129, %130, %131", "%132");
}

// d = leftᵀ · right or d += leftᵀ · right: 16 rows of 64 columns by 16 rows of N columns, both in
// shared memory.
template <class T, bool Add, int Size>
__device__ inline void outer(float (&d)[Size], std::uint64_t left, std::uint64_t right) {
  static_assert(Size == 32, "no such size here yet");
  ONEPASS_OUTER(32, "64", ONEPASS_P32, ONEPASS_D32, "%32", "%33", "%34");
}

#undef ONEPASS_D32
#undef ONEPASS_P32
#undef ONEPASS_D40
#undef ONEPASS_P40
#undef ONEPASS_D48
#undef ONEPASS_P48
#undef ONEPASS_D64
#undef ONEPASS_P64
#undef ONEPASS_D96
#undef ONEPASS_P96
#undef ONEPASS_D128
#undef ONEPASS_P128
#undef ONEPASS_D8
#undef ONEPASS_SCORES
#undef ONEPASS_SUMS
#undef ONEPASS_OUTER
#undef ONEPASS_SHARED_OF
#undef ONEPASS_SUMS_OF

}  // namespace onepass::wgmma
