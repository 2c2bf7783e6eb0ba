// softmax/gpu_block: a row in the registers of a block, or of a cluster of blocks.
//
// Idea    gpu_group, two levels higher: warps meet in shared memory, blocks of a cluster in each
//         other's. A row of 262,144 columns is still read once; a single row has up to 16 SMs.
// Versus  08_register_shared_extreme: longer rows by more blocks instead of more memory per block,
//         so that several blocks fit an SM and one computes while another loads.
// Bytes   x once, y once.
// Limits  rows that 16 blocks hold in registers (sm_90; one block before it); every op, dtype and
//         option of the forward ops.
// Proof   `onepass verify`; numbers: results/.

#include "ops/softmax/gpu/forward.cuh"
#include "ops/softmax/gpu/variants.hpp"
#include "ops/softmax/gpu/whole.cuh"
#include "rows/gpu/launch.cuh"

namespace onepass::ops::softmax {
namespace {

template <bool Clusters>
Status run_whole(const RowArgs& args, const gpu_rows::BlockLaunch& block) {
  return with_whole_row(args, [&]<class Row>(Type<Row>) {
    const auto kernel = block.packs == 2   ? whole_blocks<Row, 2, Clusters>
                        : block.packs == 4 ? whole_blocks<Row, 4, Clusters>
                                           : whole_blocks<Row, 8, Clusters>;
    return launch_rows(kernel, name_of(block), args, block, block.chunk);
  });
}

}  // namespace

Status gpu_block(const RowArgs& args, const gpu_rows::BlockLaunch& block) {
  if (!block.whole) return run_block<ForwardRows>(args, block);
  return block.cluster > 1 ? run_whole<true>(args, block) : run_whole<false>(args, block);
}

}  // namespace onepass::ops::softmax
