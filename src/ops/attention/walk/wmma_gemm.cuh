// Products of matrices by WMMA, CUDA's own interface to the tensor cores: fragments of 16 × 16.
// How a fragment lies in the registers of a warp is not specified, so it is loaded from memory
// and stored there.
//
// One product of tiles serves both of attention's, q · kᵀ and weights · v.
#pragma once

#include <cuda_runtime.h>
#include <mma.h>

#include "core/cuda/element.cuh"
#include "ops/attention/walk/walk.hpp"
#include "runtime/launch.hpp"

namespace onepass::ops::attention {

namespace wmma = nvcuda::wmma;

template <class T>
using Element = std::conditional_t<std::is_same_v<T, BF16>, __nv_bfloat16, __half>;

template <class T, class Order = wmma::row_major>
using LeftPart = wmma::fragment<wmma::matrix_a, 16, 16, 16, Element<T>, Order>;
template <class T, class Order>
using RightPart = wmma::fragment<wmma::matrix_b, 16, 16, 16, Element<T>, Order>;
using SumPart = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

// A fragment of a tile in shared memory. By a whole warp.
template <class Part, class T>
__device__ inline void load_part(Part& part, const T* from, int stride) {
  wmma::load_matrix_sync(part, reinterpret_cast<const Element<T>*>(from),
                         static_cast<unsigned>(stride));
}

// Rows of 16-bit elements; what lies outside of them counts as zeros. Rows begin at multiples of 16
// bytes, and the columns are a multiple of eight.
template <class T>
struct Matrix {
  const T* data;
  std::int64_t stride;
  int rows, columns;
};

// One head: its tokens are the rows.
template <class T>
__device__ inline Matrix<T> matrix_of(const Tokens<const T>& tokens, std::int64_t batch,
                                      std::int64_t head, int rows, int columns) {
  return {tokens.at(batch, head, 0), tokens.token, rows, columns};
}

// A tile to shared memory, 16 bytes at a time. By a whole block.
template <int Threads, class T>
__device__ inline void load_tile(T* to, int stride, int rows, int columns, const Matrix<T>& from,
                                 int first_row, int first_column) {
  const int chunks = columns / 8;
  for (int i = static_cast<int>(threadIdx.x); i < rows * chunks; i += Threads) {
    const int row = i / chunks;
    const int column = i % chunks * 8;
    uint4 eight{};
    if (first_row + row < from.rows && first_column + column < from.columns) {
      eight = *reinterpret_cast<const uint4*>(from.data + (first_row + row) * from.stride +
                                              first_column + column);
    }
    *reinterpret_cast<uint4*>(to + row * stride + column) = eight;
  }
}

// out = left · right, a product per head. `sharing` heads have the same right side. Where `inner`
// is no multiple of eight, the left has zeros up to the next; out has room for whole tiles.
template <class T>
struct Product {
  Tokens<const T> left, right;
  Tokens<float> out;
  int rows, inner, columns;
  std::int64_t batch, heads, sharing;

  ONEPASS_HD std::int64_t row_tiles() const { return (rows + kTile - 1) / kTile; }
  ONEPASS_HD std::int64_t column_tiles() const { return (columns + kTile - 1) / kTile; }
  ONEPASS_HD std::int64_t blocks() const { return column_tiles() * row_tiles() * heads * batch; }
};

// A block has a tile of 64 × 64, each of its four warps a quarter: 2 × 2 fragments. What they
// multiply passes through shared memory, 32 columns of the left and 32 rows of the right at a time.
template <class T>
__global__ void __launch_bounds__(kProductThreads) multiply(const __grid_constant__ Product<T> p) {
  constexpr int kLeftStride = kDepth + kPad;
  constexpr int kRightStride = kTile + kPad;
  __shared__ __align__(128) T left[kTile * kLeftStride];
  __shared__ __align__(128) T right[kDepth * kRightStride];

  std::int64_t index = blockIdx.x;
  const int first_column = static_cast<int>(index % p.column_tiles()) * kTile;
  index /= p.column_tiles();
  const int first_row = static_cast<int>(index % p.row_tiles()) * kTile;
  index /= p.row_tiles();
  const std::int64_t head = index % p.heads;
  const std::int64_t batch = index / p.heads;
  const auto from_left = matrix_of(p.left, batch, head, p.rows, (p.inner + 7) / 8 * 8);
  const auto from_right = matrix_of(p.right, batch, head / p.sharing, p.inner, p.columns);

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = warp / 2 * 32;  // of the warp's quarter
  const int column = warp % 2 * 32;
  SumPart sums[2][2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) wmma::fill_fragment(sums[i][j], 0.F);
  }
  for (int at = 0; at < p.inner; at += kDepth) {
    load_tile<kProductThreads>(left, kLeftStride, kTile, kDepth, from_left, first_row, at);
    load_tile<kProductThreads>(right, kRightStride, kDepth, kTile, from_right, at, first_column);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      LeftPart<T> l[2];
      RightPart<T, wmma::row_major> r[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        load_part(l[i], left + (row + 16 * i) * kLeftStride + k, kLeftStride);
        load_part(r[i], right + k * kRightStride + column + 16 * i, kRightStride);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 2; ++j) wmma::mma_sync(sums[i][j], l[i], r[j], sums[i][j]);
      }
    }
    __syncthreads();  // the tiles are free again
  }

  float* out = p.out.at(batch, head, first_row + row) + first_column + column;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      wmma::store_matrix_sync(out + 16 * i * p.out.token + 16 * j, sums[i][j],
                              static_cast<unsigned>(p.out.token), wmma::mem_row_major);
    }
  }
}

template <class T>
Status launch_product(const Product<T>& p, void* stream) {
  multiply<T><<<static_cast<unsigned>(p.blocks()), kProductThreads, 0,
                static_cast<cudaStream_t>(stream)>>>(p);
  return launch_status("attention's walk");
}

}  // namespace onepass::ops::attention
