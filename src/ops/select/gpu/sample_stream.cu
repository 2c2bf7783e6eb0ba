// sample/gpu_stream: a token of each of many long rows, with a top_k for all of them.
//
// Idea    candidates come as gpu_stream's do, as many as top_k; one warp filters them and
//         lets the rest race.
// Versus  sample_block.cu: rows stream through warps in place of blocks that wait at every stage,
//         and there are always enough candidates, so that no row is read again.
// Bytes   x once.
// Limits  one top_k from 1 to 128, and less than all columns, or a temperature of 0; f32, f16,
//         bf16; dense rows, a positive scale.
// Proof   `onepass verify`, tests/ops/select/sample_gpu_test.cpp; numbers: results/h200/topk.json.

#include "ops/select/gpu/sample.cuh"
#include "ops/select/gpu/stream.cuh"
#include "ops/select/gpu/variants.hpp"

namespace onepass::ops::select {
namespace {

// So that a number of candidates that is not above it was asked for.
static_assert(gpu_select::kMostSampleStream < kUnlessAsked);

template <class Row, class Warps>
__global__ void __launch_bounds__(Warps::kMostThreads, Warps::kBlocksAtOnce)
    sample_stream_rows(const __grid_constant__ typename Row::Args args,
                       const __grid_constant__ CommonOf<FlatPlace> common,
                       const __grid_constant__ SampleOptionsOfRows<FlatPlace> options) {
  await_previous();
  const std::int64_t at = common.first_row + cluster::index();
  const Draw draw(common, options, at);
  const Row row(args, at, common.factor_for(draw.temperature), draw.temperature);
  const int k = draw.candidates(options.most_candidates);
  const Selected selected = stream_row<Warps>(row, k, Target{}, false);
  if (!selected.mine) return;
  write_draw(common, options, at, row, draw, OwnNoise{noise_of(common, options, at)}, selected);
}

}  // namespace

Status gpu_sample_stream(const RowArgs& args, const gpu_select::StreamLaunch& stream) {
  return with_stream(args, stream, [&]<class Row, class Warps>(Type<Row>, Type<Warps>) {
    const auto options = sample_options<FlatPlace>(*args.select, args,
                                                   static_cast<int>(gpu_select::kMostSampleStream));
    return launch_rows(sample_stream_rows<Row, Warps>, "gpu_stream", args, stream,
                       common_of<FlatPlace>(args, args.select->temperature), options);
  });
}

}  // namespace onepass::ops::select
