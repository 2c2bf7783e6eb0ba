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
  launch.dim = a.dim <= 64 ? 64 : a.dim <= 128 ? 128 : 256;
  const int parts = ceil_div(launch.dim, kBackwardColumns);
  if (a.queries > 0) {
    launch.query_blocks = a.kv_heads * tiles_of(a.queries * a.group(), a.q_offsets, a.batch);
  }
  if (a.keys > 0) launch.key_blocks = a.kv_heads * parts * tiles_of(a.keys, a.kv_offsets, a.batch);
  launch.shared_bytes = backward_shared_bytes(launch.dim);
  launch.scratch_bytes = backward_scratch_bytes(a);
  return launch;
}

std::string refuse_backward_flash(const Problem& p, const Machine& m) {
  if (std::string no = refuse_tensor_cores(p, m); !no.empty()) return no;
  const AttentionFacts& a = p.attention;
  if (a.dim > 256) return "it takes dims up to 256";
  if (a.softcap || a.alibi || a.additive || a.boolean) {
    return "it hides keys by their place alone, without softcap, ALiBi or a mask in memory";
  }
  if (p.mixed_inputs) return "o and d_o have the dtype of q";
  if (!a.aligned) return "tokens begin at multiples of 16 bytes";
  const BackwardFlashLaunch launch = backward_flash(p, m);
  return refuse_size(a, sizes_of(launch), m);
}

}  // namespace onepass::gpu_attention
