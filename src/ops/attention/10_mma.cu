// attention/10_mma: flash attention by the tensor cores of one warp at a time.
//
// Idea    a block has 64 or 128 rows in shared memory and registers, and walks over tiles of 64 or 128 keys. While the scores of
//         a tile are computed its values come, and while these are summed the next keys do: two blocks an SM
//         hide what is left. Where tiles of rows are few, blocks of a cluster (sm_90) share the keys of each.
// Versus  03_flash_wmma: operands by ldmatrix from swizzled rows and never twice, copies that nobody waits for, the
//         scores stay in registers.
// Bytes   q and o once; k and v once a tile of rows.
// Limits  sm_80; f16, bf16; every option, any dim, any stride.
// Proof   `onepass verify attention`; numbers: results/h200/attention_mma.json.

#include "ops/attention/flash.cuh"
#include "ops/attention/variants.hpp"

namespace onepass::ops::attention {
namespace {

// With the tiles that the plan has room for. What is not usual has the smaller ones: a kernel for it is long to compile.
template <class Stored, int Dim, int Columns, int Warps, int RowTiles>
Status launch_tiles(const AttentionArgs& a, const Plan& plan) {
  using Few = Shape<Dim, Columns, Warps, RowTiles>;
  constexpr attention_launch::FlashDims kDims{Dim, Columns};
  if constexpr (attention_launch::can_double(kDims)) {
    using Twice = Shape<Dim, Columns, Warps, RowTiles, 2 * Few::kKeys>;
    if (attention_launch::has_doubled(kDims, Few::kRows, plan) && takes_usual(a, plan)) {
      return launch_flash<Stored, Twice>(a, plan);
    }
  }
  return launch_flash<Stored, Few>(a, plan);
}

template <class Stored>
Status launch_dim(const AttentionArgs& a, const Plan& plan) {
  if (a.dim <= 64) return launch_tiles<Stored, 64, 64, 4, 2>(a, plan);
  if (a.dim <= 96) return launch_tiles<Stored, 96, 96, 4, 2>(a, plan);
  if (a.dim <= 128) return launch_tiles<Stored, 128, 128, 4, 2>(a, plan);
  if (a.dim <= 192) return launch_tiles<Stored, 192, 192, 8, 1>(a, plan);
  if (a.dim <= 256) return launch_tiles<Stored, 256, 256, 4, 1>(a, plan);
  return launch_tiles<Stored, 512, 256, 4, 1>(a, plan);
}

}  // namespace

Status flash_mma(const AttentionArgs& args, const Plan& plan) {
  return args.q.dtype == DType::bf16 ? launch_dim<BF16>(args, plan) : launch_dim<F16>(args, plan);
}

}  // namespace onepass::ops::attention
