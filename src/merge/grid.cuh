// The merge across blocks: each leaves the state of its chunk in the workspace; once all are there,
// each block that needs a row merges its chunks, in the same order everywhere.
#pragma once

#include <cstdint>

#include "merge/block.cuh"

namespace onepass {

template <class Join>
class GridFold {
 public:
  using Value = typename Join::Value;

  // partials holds a value for each chunk of each row.
  __device__ GridFold(Value* partials, int chunks) : partials_(partials), chunks_(chunks) {}

  __device__ void put(std::int64_t row, int chunk, Value value) const {
    partials_[row * chunks_ + chunk] = value;
  }

  // By a whole block. Every chunk's put must have been before: a launch before, or
  // a grid's barrier.
  __device__ Value all(std::int64_t row, const BlockFold<Join>& block) const {
    Value mine = Join::identity();
    for (int i = static_cast<int>(threadIdx.x); i < chunks_; i += static_cast<int>(blockDim.x)) {
      mine = Join()(mine, partials_[row * chunks_ + i]);
    }
    return block.all(mine);
  }

 private:
  Value* partials_;
  int chunks_;
};

using GridMerge = GridFold<Merge<float>>;

}  // namespace onepass
