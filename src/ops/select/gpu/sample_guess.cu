// sample/gpu_guess: a token of each of a few long rows, with a top_k for all of them.
//
// Idea    candidates come as gpu_guess's do, as many as top_k; one warp filters them, the others
//         work out their noise, and the rest race.
// Versus  sample_stream.cu: a cluster a row in place of a warp or a few.
// Bytes   x once, or, where a guess is wrong, twice.
// Limits  sm_90; one top_k from 1 to 128, and less than all columns, or a temperature of 0; rows
//         that fit; f32, f16, bf16; dense rows, a positive scale.
// Proof   `onepass verify`, tests/ops/select/sample_gpu_test.cpp; numbers: results/h200/topk.json.

#include "ops/select/gpu/guess.cuh"
#include "ops/select/gpu/sample.cuh"
#include "ops/select/gpu/variants.hpp"

namespace onepass::ops::select {
namespace {

// So that a number of candidates that is not above it was asked for.
static_assert(gpu_select::kMostGuessed < kUnlessAsked);

template <class Row, int Share>
__global__ void __launch_bounds__(gpu_select::kGuessThreads, 2)
    sample_guess_rows(const __grid_constant__ typename Row::Args args,
                      const __grid_constant__ CommonOf<FlatPlace> common,
                      const __grid_constant__ SampleOptionsOfRows<FlatPlace> options,
                      const __grid_constant__ Meeting meeting) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) std::byte memory[];
  __shared__ typename Guess<Row, Share>::Shared guessed;
  __shared__ Team::Shared shared;
  __shared__ Gumbel noises[gpu_select::kMostGuessed];
  static_assert(sizeof(noises) <= gpu_select::kGuessAnswerBytes);
  await_previous();
  const std::int64_t at = common.first_row + cluster::index();
  Row row(args, at, 1.0F, 1);  // where it is; what it is divided by can wait
  const Guess<Row, Share> guess(guessed, memory, row);
  guess.ask();
  const Draw draw(common, options, at);
  row = Row(args, at, common.factor_for(draw.temperature), draw.temperature);
  const int k = draw.candidates(options.most_candidates);
  const Noise noise = noise_of(common, options, at);  // while the row is on its way
  const Selected selected = select_guessed(guess, row, shared, {memory, common.stages, Row::kPacks},
                                           common, meeting, k, Target{}, false);
  if (!selected.mine) return;
  assume_shared(selected.keys);
  write_draw(common, options, at, row, draw, OthersNoise{noise, noises}, selected);
#endif
}

}  // namespace

Status gpu_sample_guess(const RowArgs& args, const gpu_select::SelectLaunch& select) {
  return with_guess(args, select, [&]<class Row, int Share>() {
    return launch_select(sample_guess_rows<Row, Share>, "gpu_guess", args, select,
                         common_of<FlatPlace>(args, args.select->temperature, select),
                         sample_options<FlatPlace>(*args.select, args, gpu_select::kMostGuessed));
  });
}

}  // namespace onepass::ops::select
