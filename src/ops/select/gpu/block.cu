// topk/gpu_block: the K largest of a row and its State in one read.
//
// Idea    the fold of softmax, and a limit that keeps most tiles out of the candidates with one
//         compare. What a block selects goes to the first of its cluster, or by a ticket to the
//         last of its row.
// Versus  cpu_row: keys in shared memory; the K-th largest of what the threads have
//         seen is the limit.
// Bytes   x once.
// Limits  K up to 2048; f32, f16, bf16; every option of the row ops.
// Proof   `onepass verify`; numbers: results/h200/topk.json.

#include "ops/select/gpu/answer.cuh"
#include "ops/select/gpu/launch.cuh"
#include "ops/select/gpu/variants.hpp"

namespace onepass::ops::select {
namespace {

template <class Row>
__global__ void __launch_bounds__(gpu_select::kMostThreads, Row::kBlocksAtOnce)
    block_rows(const __grid_constant__ typename Row::Args args,
               const __grid_constant__ CommonOf<typename Row::Place> common,
               const __grid_constant__ TopkOutputsAt<typename Row::Place> out,
               const __grid_constant__ Meeting meeting) {
  extern __shared__ __align__(16) std::byte memory[];
  __shared__ Team::Shared shared;
  __shared__ BlockFold<Add<float>>::Scratch sums;
  await_previous();
  const Team team(shared, {memory, common.stages, Row::kPacks}, meeting);
  const std::int64_t at = common.first_row + team.row();
  const double temperature = value_for(common.space, common.temperature, at);
  const Row row(args, at, common.factor_for(temperature), temperature);
  const Target target = target_of(common, out, row, at);
  BestKeys best = team.best_of(static_cast<int>(out.k));
  const Part<Row> part(row, common.size, team.rank());
  const Selected selected = team.select(part, best, target, static_cast<bool>(out.target_rank));
  if (!selected.mine) return;
  assume_shared(selected.keys);
  write_selected(common, out, at, row, temperature, target, selected, sums);
}

}  // namespace

Status gpu_block(const RowArgs& args, const gpu_select::SelectLaunch& select) {
  return with_select_row(args, select.general, select.packs, [&]<class Row>(Type<Row>) {
    using Place = typename Row::Place;
    return launch_select(block_rows<Row>, "topk", args, select,
                         common_of<Place>(args, temperature_of(args), select),
                         outputs_of<Place>(args));
  });
}

}  // namespace onepass::ops::select
