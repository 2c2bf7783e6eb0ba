// topk/10_choose: the K largest of a row and its State in one read.
//
// Idea    a block a row, or a cluster of blocks: the fold of softmax, and a threshold that keeps most packs
//         out of the candidates with one compare.
// Versus  cpu_row: keys in shared memory, sorted by a network.
// Bytes   x once.
// Limits  K up to 2048; f32, f16, bf16; every option of the row ops.
// Proof   `onepass verify`; numbers: results/.

#include "ops/row/launch.cuh"
#include "ops/topk/choose.cuh"
#include "ops/topk/variants.hpp"

namespace onepass::ops::topk {

struct ChooseRows {
  static constexpr bool kWidens = false;
  static constexpr bool kFolds = false;
  template <class In, class Out>
  using Row = ChooseRow<In, Out>;
};

Status gpu_choose(const RowArgs& args, const Plan& plan) {
  const Select& select = *args.select;
  const Outputs out{.space = args.space,
                    .first_row = args.first_row,
                    .k = static_cast<int>(select.k),
                    .values = select.values,
                    .sorted = select.sorted,
                    .out = args.out,
                    .indices = select.indices,
                    .lse = args.lse,
                    .target = args.target,
                    .target_logprob = select.target_logprob,
                    .target_rank = select.target_rank};
  return with_row<ChooseRows>(args, plan, [&]<class Row>(Type<Row>) {
    return launch_clusters(choose_rows<Row>, args, plan, out, plan.chunk);
  });
}

}  // namespace onepass::ops::topk
