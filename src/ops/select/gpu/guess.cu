// topk/gpu_guess: a few long rows, a cluster each.
//
// Idea    every block has its part in registers and sends more than its share of the K to the
//         first one, which can tell whether that was enough. Where it was not, the cluster goes on
//         as gpu_block does.
// Versus  gpu_block: blocks do not wait for each other's limits, and what they do
//         stands in fewer steps.
// Bytes   x once, or, where a guess is wrong, twice.
// Limits  sm_90; K up to 128, rows that fit; f32, f16, bf16; dense rows, a positive scale
//         and a temperature.
// Proof   `onepass verify`; numbers: results/h200/topk.json.

#include "ops/select/gpu/answer.cuh"
#include "ops/select/gpu/guess.cuh"
#include "ops/select/gpu/variants.hpp"

namespace onepass::ops::select {
namespace {

template <class Row, int Share>
__global__ void __launch_bounds__(gpu_select::kGuessThreads, 2)
    guess_rows(const __grid_constant__ typename Row::Args args,
               const __grid_constant__ CommonOf<FlatPlace> common,
               const __grid_constant__ TopkOutputsAt<FlatPlace> out,
               const __grid_constant__ Meeting meeting) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) std::byte memory[];
  __shared__ typename Guess<Row, Share>::Shared guessed;
  __shared__ Team::Shared shared;
  __shared__ BlockFold<Add<float>>::Scratch sums;
  static_assert(sizeof(sums) <= gpu_select::kGuessAnswerBytes);
  await_previous();
  const std::int64_t at = common.first_row + cluster::index();
  Row row(args, at, 1.0F, 1);  // where it is; what it is divided by can wait
  const Guess<Row, Share> guess(guessed, memory, row);
  guess.ask();
  const double temperature = value_for(common.space, common.temperature, at);
  row = Row(args, at, common.factor_for(temperature), temperature);
  const Target target = target_of(common, out, row, at);
  const Selected selected =
      select_guessed(guess, row, shared, {memory, common.stages, Row::kPacks}, common, meeting,
                     static_cast<int>(out.k), target, static_cast<bool>(out.target_rank));
  if (!selected.mine) return;
  assume_shared(selected.keys);
  write_selected(common, out, at, row, temperature, target, selected, sums);
#endif
}

}  // namespace

Status gpu_guess(const RowArgs& args, const gpu_select::SelectLaunch& select) {
  return with_guess(args, select, [&]<class Row, int Share>() {
    return launch_select(guess_rows<Row, Share>, "gpu_guess", args, select,
                         common_of<FlatPlace>(args, temperature_of(args), select),
                         outputs_of<FlatPlace>(args));
  });
}

}  // namespace onepass::ops::select
