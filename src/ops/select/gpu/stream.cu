// topk/gpu_stream: many long rows, a warp each, or a few, or the warps of a cluster.
//
// Idea    a row streams through its warps: the fold of softmax, and candidates above the K-th of
//         512 groups' maxima. Between its first stage and its last a warp waits for no other.
// Versus  gpu_block: as many warps as fill the GPU in place of blocks that would come in rounds,
//         and wait for each other at every stage.
// Bytes   x once.
// Limits  K up to 256; f32, f16, bf16; dense rows, a positive scale and a temperature.
// Proof   `onepass verify`; numbers: results/h200/topk.json.

#include "ops/select/gpu/answer.cuh"
#include "ops/select/gpu/stream.cuh"
#include "ops/select/gpu/variants.hpp"

namespace onepass::ops::select {
namespace {

template <class Row, class Warps>
__global__ void __launch_bounds__(Warps::kMostThreads, Warps::kBlocksAtOnce)
    stream_rows(const __grid_constant__ typename Row::Args args,
                const __grid_constant__ CommonOf<FlatPlace> common,
                const __grid_constant__ TopkOutputsAt<FlatPlace> out) {
  __shared__ BlockFold<Add<float>>::Scratch sums;
  await_previous();
  const std::int64_t at = common.first_row + cluster::index();
  const double temperature = value_for(common.space, common.temperature, at);
  const Row row(args, at, common.factor_for(temperature), temperature);
  const Target target = target_of(common, out, row, at);
  const Selected selected =
      stream_row<Warps>(row, static_cast<int>(out.k), target, static_cast<bool>(out.target_rank));
  if (!selected.mine) return;
  write_selected(common, out, at, row, temperature, target, selected, sums);
}

}  // namespace

Status gpu_stream(const RowArgs& args, const gpu_select::StreamLaunch& stream) {
  return with_stream(args, stream, [&]<class Row, class Warps>(Type<Row>, Type<Warps>) {
    return launch_rows(stream_rows<Row, Warps>, "gpu_stream", args, stream,
                       common_of<FlatPlace>(args, temperature_of(args)),
                       outputs_of<FlatPlace>(args));
  });
}

}  // namespace onepass::ops::select
