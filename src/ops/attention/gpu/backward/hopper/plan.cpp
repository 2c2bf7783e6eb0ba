#include "ops/attention/gpu/backward/hopper/plan.hpp"

#include <algorithm>

#include "core/reasons.hpp"
#include "onepass/plan.hpp"
#include "ops/attention/gpu/backward/hopper/turns.hpp"

namespace onepass::gpu_attention {

Plan BackwardHopperLaunch::plan() const {
  return {.threads = threads,
          .blocks = blocks,
          .details = text_of("tile=", backward_hopper_queries(dim), "x", kHopperBackwardKeys,
                             " dim=", dim)};
}

namespace {

// As many as have a turn.
template <int TileQueries>
int blocks_of(const AttentionFacts& a, const Machine& m) {
  const auto window = [](std::int64_t keys) { return static_cast<int>(std::min(keys, kMost32)); };
  const ops::attention::Sight most{static_cast<int>(a.queries), static_cast<int>(a.keys),
                                   window(a.window_left), a.causal ? 0 : window(a.window_right)};
  return ops::attention::Turns<kHopperBackwardKeys, TileQueries>(
             static_cast<int>(a.group()), most, static_cast<int>(a.batch * a.kv_heads),
             std::min(m.gpu.processors, kHopperBackwardBlocks))
      .blocks;
}

}  // namespace

BackwardHopperLaunch backward_hopper(const Problem& p, const Machine& m) {
  const AttentionFacts& a = p.attention;
  BackwardHopperLaunch launch{.dim = backward_hopper_dim(a.dim), .threads = kHopperBackwardThreads};
  const int queries = backward_hopper_queries(launch.dim);
  const std::int64_t heads = a.batch * a.heads;
  launch.query_tiles = heads * ceil_div(a.queries, queries);
  launch.blocks = launch.dim == 64 ? blocks_of<backward_hopper_queries(64)>(a, m)
                                   : blocks_of<backward_hopper_queries(128)>(a, m);
  constexpr std::size_t kLine = 128;
  const std::int64_t sums = launch.query_tiles * queries * launch.dim;
  launch.sums_at = round_up(backward_scratch_bytes(a), kLine);
  launch.added_at = launch.sums_at + static_cast<std::size_t>(sums) * sizeof(float);
  launch.scratch_bytes =
      launch.added_at + static_cast<std::size_t>(launch.query_tiles) * sizeof(int);
  return launch;
}

std::string refuse_backward_hopper(const Problem& p, const Machine& m) {
  const AttentionFacts& a = p.attention;
  if (m.device() != Device::cuda || m.gpu.sm != 90) return "it needs sm_90";
  if (p.in != DType::f16 && p.in != DType::bf16) return "it takes f16 and bf16";
  if (!a.one_dim()) return "its values have the dim of its keys";
  if (a.dim > 128) return "it takes dims up to 128";
  if (p.mixed_inputs) return "d_o has the dtype of q";
  if (a.q_offsets || a.kv_offsets) return "its sequences are not packed";
  if (a.softcap || a.alibi || a.additive || a.boolean) {
    return "it hides keys by their place alone, without softcap, ALiBi or a mask in memory";
  }
  if (!a.aligned) return "tokens begin at multiples of 16 bytes";
  if (!a.strided) return "its strides must be positive";
  const int queries = backward_hopper_queries(backward_hopper_dim(a.dim));
  if (ceil_div(a.queries, queries) > ops::attention::Rival::kMostTiles) {
    return "it counts tiles of queries with 16 bits";
  }
  if (p.batch_invariant) return "it adds to dq in an order that depends on the batch";
  if (a.queries == 0 || a.keys == 0 || a.heads == 0 || a.batch == 0) {
    return "it needs at least one query and one key";
  }
  const std::int64_t columns = a.batch * a.kv_heads * ceil_div(a.keys, kHopperBackwardKeys);
  if (a.queries * a.group() > kMost32 || a.keys > kMost32 || columns > kMost32) {
    return "its rows and keys are counted with 31 bits";
  }
  return {};
}

}  // namespace onepass::gpu_attention
