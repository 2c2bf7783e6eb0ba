// topk/14_stream: many long rows, a warp each.
//
// Idea    a row streams through one warp: the fold of softmax, and candidates above the K-th of 256 groups' maxima.
//         Nobody waits for anybody else, and what a row takes beside its elements one warp does once, not eight.
// Versus  10_choose: a warp in place of a block, where rows are so many that every processor has a dozen.
// Bytes   x once.
// Limits  K up to 128; f32, f16, bf16; dense rows, a positive scale and a temperature.
// Proof   `onepass verify`; numbers: results/h200/topk.json.

#include "ops/topk/answer.cuh"
#include "ops/topk/launch.cuh"
#include "ops/topk/variants.hpp"
#include "ops/topk/warp_keys.cuh"

namespace onepass::ops::topk {
namespace {

template <class Row>
__global__ __launch_bounds__(kWarp, gpu_choose::kStreamsAtOnce) void stream_rows(
    const __grid_constant__ typename Row::Args args,
    const __grid_constant__ CommonOf<FlatPlace> common,
    const __grid_constant__ TopkOutputsAt<FlatPlace> out) {
  extern __shared__ __align__(16) std::byte memory[];
  __shared__ Mbarrier full[gpu_choose::kMostStages];
  __shared__ BlockFold<Add<float>>::Scratch sums;
  constexpr int kStageBytes = kWarp * gpu_choose::tile_bytes(Row::kPacks);
  const auto lane = static_cast<int>(threadIdx.x);
  const std::int64_t at = common.first_row + blockIdx.x;
  const double temperature = value_for(common.space, common.temperature, at);
  const Row row(args, at, common.factor_for(temperature), temperature);
  const Target target = target_of(common, out, row, at);
  const bool ranks = static_cast<bool>(out.target_rank);
  const Stages<Row> stages(full, memory, row, 0, row.packs());
  __syncwarp();
  WarpKeys best(reinterpret_cast<Key*>(memory + gpu_choose::kMostStages * kStageBytes),
                static_cast<int>(out.k));

  const bool own = lane < row.edges();
  const float edge = own ? row.edge(lane) : minus_infinity<float>();
  const auto edge_column = static_cast<int>(row.edge_column(lane));
  Tally mine{row.fold_one(edge).state, 0};
  if (ranks && own && target.follows(edge, edge_column)) ++mine.before;
  float largest[Row::kGroups];
#pragma unroll
  for (int g = 0; g < Row::kGroups; ++g) largest[g] = minus_infinity<float>();
  int bounds = 0;  // the stage at which there is the next bound
#pragma unroll 1
  for (int c = 0;; ++c) {
    typename Stages<Row>::Tile tile;
    stages.take(c, tile);
    float m[Row::kGroups];
    Row::maxima(tile, m);
    mine.state = merge(mine.state, row.fold(tile, largest_or_nan(m)).state);
#pragma unroll
    for (int g = 0; g < Row::kGroups; ++g) largest[g] = fmaxf(largest[g], m[g]);
    if (ranks) mine.before += before_target(row, stages, c, target);
    const bool last = stages.is_last(c);
    if (c == bounds || last) {
      bounds = 2 * c + 1;
      best.bound(largest);
    }
    best.offer(above(tile, best.value()), [&](int bit) {
      const auto [p, k] = place_of_bit<typename Row::Element>(bit);
      const int i = lane + p * kWarp;
      const auto column = static_cast<int>(row.column(stages.first(c) + i));
      return key_of(Row::value(stages.pack(c, i), k), static_cast<unsigned>(column + k));
    });
    if (last) break;
    stages.leave(c);
  }
  best.offer(own && edge >= best.value() ? 1 : 0,
             [&](int) { return key_of(edge, static_cast<unsigned>(edge_column)); });

  Tally total = group_fold(mine, MergeTallies(), kWarp);
  if (!(temperature > 0 && isfinite(temperature))) {  // a row's own that cannot be
    total.state = broken_state();
  }
  const Answer answer(common, out, at, row, total.state);
  answer.write_target(target, total.before);
  Key* keys = reinterpret_cast<Key*>(memory);  // nobody needs the stages any more
  const int count = best.order(keys);
  answer.write_keys(keys, count, sums);
}

}  // namespace

Status gpu_stream(const RowArgs& args, const Plan& plan) {
  return with_stored(args, [&]<class In>(Type<In>) {
    using Row = ChooseRow<In, In, gpu_choose::stream_packs(sizeof(In))>;
    return launch_row_clusters(stream_rows<Row>, args, plan,
                               common_of<FlatPlace>(args, plan, temperature_of(args)),
                               outputs_of<FlatPlace>(args));
  });
}

}  // namespace onepass::ops::topk
