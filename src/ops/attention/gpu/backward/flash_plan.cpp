#include "ops/attention/gpu/backward/plan.hpp"

namespace onepass::gpu_attention {
namespace {

// Blocks for tiles of every sequence; of sequences with lengths of their own, at most.
std::int64_t tiles_of(std::int64_t count, bool ragged, std::int64_t batch) {
  const std::int64_t tiles = ceil_div(count, kBackwardTile);
  return ragged ? tiles + batch : tiles * batch;
}

}  // namespace

BackwardFlashLaunch backward_flash(const Problem& p, const Machine&) {
  const AttentionFacts& a = p.attention;
  BackwardFlashLaunch launch{.threads = kBackwardThreads};
  launch.dim = a.dim <= 64 ? 64 : a.dim <= 128 ? 128 : a.dim <= 256 ? 256 : 512;
  launch.general = a.softcap || a.alibi || a.additive || a.boolean || a.dim > 256;
  const auto blocks = [&](std::int64_t count, bool ragged, int columns) {
    if (count == 0) return std::int64_t{0};
    return a.kv_heads * ceil_div(a.dim, columns) * tiles_of(count, ragged, a.batch);
  };
  launch.query_blocks = blocks(a.queries * a.group(), a.q_offsets, kBackwardQueryColumns);
  launch.key_blocks = blocks(a.keys, a.kv_offsets, kBackwardColumns);
  launch.shared_bytes = backward_shared_bytes(launch.dim, launch.general);
  launch.scratch_bytes = backward_scratch_bytes(a);
  return launch;
}

std::string refuse_backward_flash(const Problem& p, const Machine& m) {
  if (std::string no = refuse_tensor_cores(p, m); !no.empty()) return no;
  const AttentionFacts& a = p.attention;
  // Rounding it to q's dtype would cost more digits than docs/numerics.md allows.
  if (p.mixed_inputs) return "d_o has the dtype of q";
  if (!a.aligned) return "tokens begin at multiples of 16 bytes";
  const BackwardFlashLaunch launch = backward_flash(p, m);
  return refuse_size(a, sizes_of(launch), m);
}

}  // namespace onepass::gpu_attention
