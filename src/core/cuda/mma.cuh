// Matrix products of a warp (sm_80), 16 × 16 by 16 × 8 with all operands in registers, and the
// copies and loads of the operands.
//
// The 16 × 8 accumulator and the left operands have the layout of one warp of a warpgroup's
// (core/cuda/wgmma.cuh).
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/cuda/mbarrier.cuh"
#include "core/number.hpp"

namespace onepass::mma {

// Copies 16 bytes to shared memory without registers, or zeros if there is no source.
__device__ inline void copy16(unsigned to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}

// Makes the copies issued so far a group. Groups end in order.
__device__ inline void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most this many groups of this thread are in flight.
template <int Groups>
__device__ inline void wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
}

// Loads four 8 × 8 matrices. Lanes 8i to 8i + 7 give the addresses of the rows of matrix i.
__device__ inline void load4(unsigned (&r)[4], unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

__device__ inline void load4_transposed(unsigned (&r)[4], unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

// Stores them to shared memory (sm_90).
__device__ inline void store4(unsigned row, const unsigned (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// d += left · right, where d is the four floats from `at` on.
template <class Stored, int Size>
__device__ inline void add_product(float (&d)[Size], int at, const unsigned (&left)[4],
                                   unsigned right0, unsigned right1) {
  float& d0 = d[at];
  float& d1 = d[at + 1];
  float& d2 = d[at + 2];
  float& d3 = d[at + 3];
  if constexpr (std::is_same_v<Stored, BF16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
  }
}

// A swizzled tile of 16-bit rows in shared memory: the position of the chunk of 16 bytes with
// columns 8c to 8c + 7 depends on the row, so that eight rows at the same columns have no bank
// conflict. Tiles begin at multiples of 128 bytes.
template <int Columns>
struct Swizzled {
  static constexpr int kChunks = (Columns + 63) / 64 * 8;  // of 16 bytes, per row
  static constexpr int kRowBytes = kChunks * 16;

  __device__ static unsigned at(unsigned tile, int row, int chunk) {
    const auto turn = static_cast<unsigned>(row) % 8;
    return tile + static_cast<unsigned>(row) * kRowBytes +
           (static_cast<unsigned>(chunk) ^ turn) * 16;
  }

  // The address `rows` and `columns`, in units of 16, after one of a row's first two chunks. If
  // these are constants, most of it folds into the offset of the load: four addresses serve a tile.
  __device__ static unsigned beyond(unsigned start, int rows, int columns) {
    const auto chunk = static_cast<unsigned>(2 * columns);
    return (start ^ chunk % 8 * 16) + chunk / 8 * 128 +
           static_cast<unsigned>(rows) * 16 * kRowBytes;
  }
};

// The left operands of the first columns, for kernels with registers to keep them in.
template <int Columns, int Held>
__device__ inline void hold(unsigned (&held)[Held][4], unsigned q) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const unsigned own = Swizzled<Columns>::at(q, lane % 16, lane / 16);
#pragma unroll
  for (int step = 0; step < Held; ++step) {
    load4(held[step], Swizzled<Columns>::beyond(own, 0, step));
  }
}

// scores += 16 rows of q by N rows of k, over Columns columns of both; s has N / 2 floats. With one
// tile of rows, the first Held steps of q may be in registers.
template <class Stored, int Columns, int Held, int Tiles, int Size, int Steps>
__device__ inline void scores(float (&s)[Tiles][Size], const unsigned (&held)[Steps][4], unsigned q,
                              unsigned k) {
  static_assert(Held == 0 || (Held == Steps && Tiles == 1));
  using Rows = Swizzled<Columns>;
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const unsigned row = Rows::at(q, lane % 16, lane / 16);
  const unsigned key = Rows::at(k, lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
  for (int step = 0; step < Columns / 16; ++step) {
    unsigned left[Tiles][4];
#pragma unroll
    for (int t = 0; t < Tiles; ++t) {
      if (step < Held) {
#pragma unroll
        for (int i = 0; i < 4; ++i) left[t][i] = held[step][i];
      } else {
        load4(left[t], Rows::beyond(row, t, step));
      }
    }
#pragma unroll
    for (int i = 0; i < Size / 8; ++i) {  // 16 keys
      unsigned right[4];
      load4(right, Rows::beyond(key, i, step));
#pragma unroll
      for (int t = 0; t < Tiles; ++t) {
        add_product<Stored>(s[t], 8 * i, left[t], right[0], right[1]);
        add_product<Stored>(s[t], 8 * i + 4, left[t], right[2], right[3]);
      }
    }
  }
}

// sums += weights of 16 rows by the rows of v; o has Columns / 2 floats. The tile may have more
// columns than are summed: `v` is then the first of these in its row, a multiple of 64.
template <class Stored, int Columns, int OfTile = Columns, int Tiles, int Steps>
__device__ inline void sums(float (&o)[Tiles][Columns / 2],
                            const unsigned (&weights)[Tiles][Steps][4], unsigned v) {
  using Rows = Swizzled<OfTile>;
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const unsigned value = Rows::at(v, lane % 16, lane / 16);
#pragma unroll
  for (int step = 0; step < Steps; ++step) {
#pragma unroll
    for (int i = 0; i < Columns / 16; ++i) {
      unsigned right[4];
      load4_transposed(right, Rows::beyond(value, step, i));
#pragma unroll
      for (int t = 0; t < Tiles; ++t) {
        add_product<Stored>(o[t], 8 * i, weights[t][step], right[0], right[1]);
        add_product<Stored>(o[t], 8 * i + 4, weights[t][step], right[2], right[3]);
      }
    }
  }
}

}  // namespace onepass::mma
