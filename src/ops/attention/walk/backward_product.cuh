// The five products of 04. Each operand lies in memory as it is, and is turned on its way into a
// fragment: a fragment can be loaded by rows or by columns. So no launch transposes anything.
#pragma once

#include "ops/attention/walk/wmma_gemm.cuh"

namespace onepass::ops::attention {

// A matrix per head.
template <class T>
struct Operand {
  Tokens<const T> heads;
  int rows, columns;  // of what is read; past them count zeros
};

// 64 rows of the left, or columns of the right, by 32 of what is summed over, in shared memory. In
// memory, and so in the tile, a row is one of what is summed over (`SumsRows`) or of the others.
template <class T, bool SumsRows>
struct OperandTile {
  using Left = LeftPart<T, std::conditional_t<SumsRows, wmma::col_major, wmma::row_major>>;
  using Right = RightPart<T, std::conditional_t<SumsRows, wmma::row_major, wmma::col_major>>;
  static constexpr int kRows = SumsRows ? kDepth : kTile;
  static constexpr int kColumns = SumsRows ? kTile : kDepth;
  static constexpr int kStride = kColumns + kPad;

  alignas(128) T elements[kRows * kStride];

  __device__ void load(const Matrix<T>& from, int first, int summed) {
    load_tile<kProductThreads>(elements, kStride, kRows, kColumns, from, SumsRows ? summed : first,
                               SumsRows ? first : summed);
  }
  // Where a fragment begins.
  __device__ const T* at(int own, int summed) const {
    return elements + (SumsRows ? summed * kStride + own : own * kStride + summed);
  }
};

// out = scale · left · right, summed over `inner` and, where the heads of a group share what the
// gradient is of, over these heads, one after the other.
template <class T, class Out>
struct GradientProduct {
  Operand<T> left, right;
  Tokens<Out> out;
  int rows, inner, columns;
  std::int64_t batch, heads;  // of out
  std::int64_t summed;        // heads of the left for each of out
  std::int64_t shared;        // heads of the left for each of the right
  float scale;

  ONEPASS_HD std::int64_t row_tiles() const { return (rows + kTile - 1) / kTile; }
  ONEPASS_HD std::int64_t column_tiles() const { return (columns + kTile - 1) / kTile; }
  ONEPASS_HD std::int64_t blocks() const { return column_tiles() * row_tiles() * heads * batch; }
};

// As multiply() of wmma_gemm.cuh: a block has a tile of 64 × 64, each of its four warps a quarter.
// Scores go to memory as whole tiles of floats. Gradients are rounded on their way out; since no
// thread knows which elements of a fragment it has, they pass through shared memory.
template <class T, bool LeftSumsRows, bool RightSumsRows, class Out>
__global__ void __launch_bounds__(kProductThreads)
    multiply_gradient(const __grid_constant__ GradientProduct<T, Out> p) {
  using LeftTile = OperandTile<T, LeftSumsRows>;
  using RightTile = OperandTile<T, RightSumsRows>;
  __shared__ LeftTile left;
  __shared__ RightTile right;

  std::int64_t index = blockIdx.x;
  const int first_column = static_cast<int>(index % p.column_tiles()) * kTile;
  index /= p.column_tiles();
  const int first_row = static_cast<int>(index % p.row_tiles()) * kTile;
  index /= p.row_tiles();
  const std::int64_t head = index % p.heads;
  const std::int64_t batch = index / p.heads;

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = warp / 2 * 32;  // of the warp's quarter
  const int column = warp % 2 * 32;
  SumPart sums[2][2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) wmma::fill_fragment(sums[i][j], 0.F);
  }
  for (std::int64_t own = head * p.summed; own < (head + 1) * p.summed; ++own) {
    const auto from_left = matrix_of(p.left.heads, batch, own, p.left.rows, p.left.columns);
    const auto from_right =
        matrix_of(p.right.heads, batch, own / p.shared, p.right.rows, p.right.columns);
    for (int at = 0; at < p.inner; at += kDepth) {
      left.load(from_left, first_row, at);
      right.load(from_right, first_column, at);
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kDepth; k += 16) {
        typename LeftTile::Left l[2];
        typename RightTile::Right r[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          load_part(l[i], left.at(row + 16 * i, k), LeftTile::kStride);
          load_part(r[i], right.at(column + 16 * i, k), RightTile::kStride);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
          for (int j = 0; j < 2; ++j) wmma::mma_sync(sums[i][j], l[i], r[j], sums[i][j]);
        }
      }
      __syncthreads();  // the tiles are free again
    }
  }

  const auto store = [&](float* to, std::int64_t stride) {
    to += row * stride + column;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        wmma::store_matrix_sync(to + 16 * i * stride + 16 * j, sums[i][j],
                                static_cast<unsigned>(stride), wmma::mem_row_major);
      }
    }
  };
  if constexpr (std::is_same_v<Out, float>) {
    store(p.out.at(batch, head, first_row) + first_column, p.out.token);
  } else {
    constexpr int kStride = kTile + kPad;
    __shared__ __align__(128) float staged[kTile * kStride];
    store(staged, kStride);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kProductThreads) {
      const int r = i / kTile;
      const int c = i % kTile;
      if (first_row + r >= p.rows || first_column + c >= p.columns) continue;
      p.out.at(batch, head, first_row + r)[first_column + c] =
          narrow<Out>(staged[r * kStride + c] * p.scale);
    }
  }
}

template <bool LeftSumsRows, bool RightSumsRows, class T, class Out>
Status launch_gradient(const GradientProduct<T, Out>& p, void* stream) {
  multiply_gradient<T, LeftSumsRows, RightSumsRows, Out>
      <<<static_cast<unsigned>(p.blocks()), kProductThreads, 0,
         static_cast<cudaStream_t>(stream)>>>(p);
  return launch_status("attention's walk");
}

}  // namespace onepass::ops::attention
