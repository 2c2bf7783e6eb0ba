// What the dispatcher is told of a case.
#include <algorithm>
#include <cmath>

#include "cli/problem/case.hpp"
#include "cli/problem/guarded_array.hpp"
#include "cli/problem/sequences.hpp"
#include "dispatch/machines.hpp"
#include "ops/select/args.hpp"
#include "rows/packs.hpp"
#include "runtime/gpu.hpp"
#include "runtime/host.hpp"

namespace onepass::cli {

Problem problem_of(const Case& c) {
  if (c.op == Op::attention) return attention_problem(c);
  Problem p{.op = c.op, .rows = c.rows(), .cols = c.cols(), .in = c.in, .out = c.out};
  const std::vector<std::int64_t> strides = strides_of(c.shape, {c.pad, c.step, c.offset});
  p.unit_stride = p.cols <= 1 || strides[static_cast<std::size_t>(c.axis_index())] == 1;
  std::vector<std::size_t> moving;  // dimensions of rows that move at all, the innermost first
  for (std::size_t i = c.shape.size(); i-- > 0;) {
    if (static_cast<std::int64_t>(i) != c.axis_index() && c.shape[i] != 1) moving.push_back(i);
  }
  p.unit_rows = !p.unit_stride && !moving.empty() && strides[moving.front()] == 1;
  std::int64_t stride = -1;  // of the last row dimension, then of it and those inside together
  for (const std::size_t i : moving) {
    p.even_rows = p.even_rows && (stride < 0 || strides[i] == stride);
    stride = strides[i] * c.shape[i];
  }
  const auto aligned = [&](DType dtype, std::int64_t offset) {
    const int lanes = pack_lanes(dtype);
    return offset % lanes == 0 &&
           std::ranges::all_of(moving, [&](std::size_t i) { return strides[i] % lanes == 0; });
  };
  p.aligned_rows = !p.unit_stride || aligned(c.in, c.offset);
  p.packed_rows = (c.op == Op::softmax || c.op == Op::log_softmax) && p.even_rows &&
                  p.unit_stride && p.aligned_rows &&
                  p.cols % std::max(pack_lanes(c.in), pack_lanes(c.out)) == 0 &&
                  aligned(c.out, c.out_offset >= 0 ? c.out_offset : c.offset);
  p.plain = c.scale == 1 && c.temperature == 1 && c.softcap == 0 && !c.scale_rows &&
            !c.temperature_rows && !c.additive && !c.boolean && c.smoothing == 0;
  p.only_scaled = c.scale > 0 && std::isfinite(c.scale) && c.softcap == 0 && !c.scale_rows &&
                  !c.additive && !c.boolean;
  p.gives_loss = c.loss;
  p.weighted = c.weights || c.probabilities;
  if (c.probabilities) p.probability_bytes = static_cast<int>(size_of(c.in));
  const bool needs_all = c.op == Op::cross_entropy || c.loss;  // all rows' losses, to reduce them
  const bool is_mean = c.op == Op::cross_entropy_backward && c.reduction == Reduction::mean;
  p.reduced =
      c.device == Device::cuda && ((needs_all && c.reduction != Reduction::none) || is_mean);
  p.whole_rows = !c.lengths && !c.causal && c.window_left < 0 && c.window_right < 0;
  p.wants_lse = c.lse || c.target;
  p.weighs = c.values == TopkValues::probability || c.values == TopkValues::renormalized;
  p.textbook = c.values == TopkValues::probability && !c.unsorted && c.index == DType::i64 &&
               c.axis_index() + 1 == static_cast<std::int64_t>(c.shape.size());
  p.in_place = c.in_place;
  p.batch_invariant = c.batch_invariant;
  if (c.op == Op::topk || c.op == Op::gate) p.k = c.k;
  const bool greedy = c.device == Device::cuda && !c.temperature_rows && c.temperature == 0;
  if (c.op == Op::sample) p.k = candidates_of_sample(c.top_k, greedy, p.cols);
  return p;
}

Status machine_of(const Case& c, Machine& out) {
  if (c.device == Device::cuda) return this_gpu(out);
  out = this_host(c.threads);
  return {};
}

Context context_of(const Case& c) {
  return c.device == Device::cuda ? Context::cuda() : Context::cpu(c.threads);
}

}  // namespace onepass::cli
