// The merge across blocks: each leaves the state of its chunk in the workspace; once all are there,
// whoever needs a row merges its chunks, in the same order everywhere.
#pragma once

#include <cstdint>

#include "merge/block.cuh"

namespace onepass {

template <class T = float>
class GridMerge {
 public:
  // partials holds a state for each chunk of each row.
  __device__ GridMerge(State<T>* partials, int chunks) : partials_(partials), chunks_(chunks) {}

  __device__ void put(std::int64_t row, int chunk, State<T> state) const {
    partials_[row * chunks_ + chunk] = state;
  }

  // By a whole block. Every chunk's put must have been before: a launch before, or a grid's barrier.
  __device__ State<T> all(std::int64_t row, const BlockFold<Merge<T>>& block) const {
    State<T> mine = identity<T>();
    for (int i = static_cast<int>(threadIdx.x); i < chunks_; i += static_cast<int>(blockDim.x)) {
      mine = merge(mine, partials_[row * chunks_ + i]);
    }
    return block.all(mine);
  }

 private:
  State<T>* partials_;
  int chunks_;
};

}  // namespace onepass
