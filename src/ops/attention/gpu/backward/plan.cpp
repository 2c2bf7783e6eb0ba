#include "ops/attention/gpu/backward/plan.hpp"

#include <algorithm>

#include "core/reasons.hpp"
#include "onepass/plan.hpp"

namespace onepass::gpu_attention {

Plan BackwardSimtLaunch::plan() const {
  return {.threads = threads,
          .blocks = query_blocks + key_blocks,
          .details = text_of("dq=", query_blocks, " dk=", key_blocks,
                             " tile=", backward_simt_tile(columns), " shared=", shared_bytes)};
}

Plan BackwardFlashLaunch::plan() const {
  return {.threads = threads,
          .blocks = query_blocks + key_blocks,
          .details = text_of("dq=", query_blocks, " dk=", key_blocks, " dim=", dim,
                             " shared=", shared_bytes, word(" general", general))};
}

// With offsets every sequence has as many blocks as if it had all tokens: those past its own return
// at once.
BackwardSimtLaunch backward_simt(const Problem& p, const Machine&) {
  constexpr int kWarps = kBackwardSimtWarps;
  const AttentionFacts& a = p.attention;
  const int dim = std::max(a.dim, a.value_dim());
  BackwardSimtLaunch launch{.columns = dim <= 128 ? 4 : dim <= 256 ? 8 : 16};
  const std::int64_t heads = a.kv_heads * a.batch;
  launch.query_blocks = ceil_div(a.queries * a.group(), kWarps) * heads;
  if (launch.query_blocks > 0) launch.key_blocks = ceil_div(a.keys, kWarps) * heads;
  launch.threads = kWarps * 32;
  const int held = backward_simt_tile(launch.columns) + kWarps;
  const int floats = backward_simt_stride(a.dim) + backward_simt_stride(a.value_dim());
  launch.shared_bytes = static_cast<std::size_t>(held * floats) * sizeof(float);
  launch.scratch_bytes = backward_scratch_bytes(a);
  return launch;
}

std::string refuse_backward_simt(const Problem& p, const Machine& m) {
  if (m.device() != Device::cuda) return "it runs on a GPU";
  if (p.in == DType::f64 || p.out == DType::f64) return "it takes and gives f32, f16 and bf16";
  return refuse_size(p.attention, sizes_of(backward_simt(p, m)), m);
}

}  // namespace onepass::gpu_attention
