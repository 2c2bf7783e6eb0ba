// What the kernels of the walk have in common: rows, the state in two passes, and the way from a checked call to
// them. The kernels themselves are one a file, 00 to 03, in reading order.
#pragma once

#include "ops/select/gpu/answer.cuh"
#include "ops/select/gpu/launch.cuh"
#include "ops/select/walk/plan.hpp"

namespace onepass::ops::topk {

// Launches kernel_of(Type<Row>) for the row of the call's elements.
template <class KernelOf>
Status launch_walk(const RowArgs& args, const WalkLaunch& how, KernelOf kernel_of) {
  const TopkOutputs out = outputs_of(args);
  const Common common = common_of(args, temperature_of(args));
  return with_stored(args, [&]<class In>(Type<In>) {
    return launch_rows(kernel_of(Type<ChooseRow<In, In>>{}), "top-k's walk", args, how, common,
                       out);
  });
}

// A block's row, once there is one: block b has the b-th.
template <class Row>
__device__ inline Row row_of_block(const typename Row::Args& args, const Common& common) {
  await_previous();
  return Row(args, common.first_row + blockIdx.x, 1, 1);
}

// body(element, column) for a thread's slice of a row: every blockDim.x-th element.
template <class Row, class Body>
__device__ inline void for_slice(const Row& row, std::int64_t cols, Body body) {
  for (std::int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
    body(row.at(c), static_cast<unsigned>(c));
  }
}

// NaN if one is, so that a row with one is told from a row with +inf.
struct LargestOrNan {
  using Value = float;
  __device__ static Value identity() { return minus_infinity<float>(); }
  __device__ Value operator()(Value a, Value b) const { return larger_or_nan(a, b); }
};

// The row's state as the textbook has it: the maximum, then the sum. `of_warp` is free again afterwards.
template <class Row>
__device__ inline State<float> state_in_two_passes(const Row& row, std::int64_t cols,
                                                   float (&of_warp)[32]) {
  float m = minus_infinity<float>();
  for_slice(row, cols, [&](float x, unsigned) { m = larger_or_nan(m, x); });
  m = BlockFold<LargestOrNan>(of_warp).all(m);
  const float s = shift(m);
  float d = 0;
  for_slice(row, cols, [&](float x, unsigned) { d += exponential(x - s); });
  return {m, BlockFold<Add<float>>(of_warp).all(d)};
}

}  // namespace onepass::ops::topk
