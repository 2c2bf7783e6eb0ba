// The merge across blocks: each leaves the state of its chunk in the workspace; once all are there,
// whoever needs a row merges its chunks, in the same order everywhere.
#pragma once

#include <cstdint>

#include "merge/block.cuh"

namespace onepass {

class GridMerge {
 public:
  // partials holds a state for each chunk of each row.
  __device__ GridMerge(State<float>* partials, int chunks) : partials_(partials), chunks_(chunks) {}

  __device__ void put(std::int64_t row, int chunk, State<float> state) const {
    partials_[row * chunks_ + chunk] = state;
  }

  // By a whole block. Every chunk's put must have been before: a launch before, or a grid's barrier.
  __device__ State<float> all(std::int64_t row, const BlockMerge& block) const {
    State<float> mine = Merge::identity();
    for (int i = static_cast<int>(threadIdx.x); i < chunks_; i += static_cast<int>(blockDim.x)) {
      mine = merge(mine, partials_[row * chunks_ + i]);
    }
    return block.all(mine);
  }

 private:
  State<float>* partials_;
  int chunks_;
};

}  // namespace onepass
