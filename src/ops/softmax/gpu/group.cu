// softmax/gpu_group: short rows, a few lanes each, several rows per warp.
//
// Idea    16 bytes per lane: a row of 32 bf16 is four lanes, and a warp has eight rows on their
//         way. A group of lanes folds with shuffles alone.
// Versus  06_register_packed: no block, no barrier, no shared memory.
// Bytes   x once, y once.
// Limits  rows that a warp holds in registers; every op, dtype and option of the forward ops.
// Proof   `onepass verify`; numbers: results/.

#include "ops/softmax/gpu/forward.cuh"
#include "ops/softmax/gpu/variants.hpp"
#include "ops/softmax/gpu/whole.cuh"
#include "rows/gpu/launch.cuh"

namespace onepass::ops::softmax {
namespace {

Status run_whole(const RowArgs& args, const gpu_rows::GroupLaunch& group) {
  return with_whole_row(args, [&]<class Row>(Type<Row>) {
    const auto kernel = group.packs == 2 ? whole_groups<Row, 2, 2> : whole_groups<Row, 4, 1>;
    return launch_rows(kernel, "gpu_group", args, group,
                       std::countr_zero(static_cast<unsigned>(group.row_threads)));
  });
}

}  // namespace

Status gpu_group(const RowArgs& args, const gpu_rows::GroupLaunch& group) {
  return group.whole ? run_whole(args, group) : run_group<ForwardRows>(args, group);
}

}  // namespace onepass::ops::softmax
