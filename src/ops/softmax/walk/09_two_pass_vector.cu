// softmax/09_two_pass_vector: rows of any length, the second read from L2 where it still is there.
//
// Idea    05_online with the rescaling once for several packs instead of once per element.
// Versus  08_register_shared_extreme: no limit on the row, and blocks small enough that one can
//         compute while another waits; x is read twice.
// Bytes   x twice, y once. All rows in flight together are what L2 must hold for the second read.
// Limits  rows at one stride, one dtype, no options; any alignment.
// Proof   `onepass verify`; numbers: docs/walk/softmax.md.

#include "ops/softmax/walk/chunk.cuh"

namespace onepass::ops::softmax {
namespace {

template <class T>
__global__ void two_pass_vector_kernel(Rows<T> a) {
  __shared__ BlockMerge::Scratch scratch;
  for (std::int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    const PackedRow<T> row = packed(a, r);
    const State<float> mine = fold_packs(row, 0, row.packs());
    const State<float> all = BlockMerge(scratch).all(mine);
    finish_packs(row, all, 0, row.packs());
  }
}

}  // namespace

Status two_pass_vector(const Call& call, const WalkLaunch& how) {
  return with_rows(call, [&]<class T>(Rows<T> rows) {
    return launch(two_pass_vector_kernel<T>, how, call, rows);
  });
}

}  // namespace onepass::ops::softmax
