// The merge across blocks: each writes the state of its chunk to the workspace. Once all are there,
// every block that needs a row merges its chunks, in the same order everywhere.
#pragma once

#include <cstdint>

#include "merge/block.cuh"

namespace onepass {

template <class Join>
class GridFold {
 public:
  using Value = typename Join::Value;

  // `partials` holds one value per chunk of each row.
  __device__ GridFold(Value* partials, int chunks) : partials_(partials), chunks_(chunks) {}

  __device__ void put(std::int64_t row, int chunk, Value value) const {
    partials_[row * chunks_ + chunk] = value;
  }

  // Merges the chunks of a row; a whole block calls it. A launch boundary or a grid barrier must
  // separate it from every put().
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
