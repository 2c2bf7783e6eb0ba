#include "ops/attention/cpu/backward_plan.hpp"

#include <algorithm>

#include "ops/attention/cpu/backward_layout.hpp"
#include "ops/attention/cpu/plan.hpp"

namespace onepass {

Plan CpuAttentionBackwardLaunch::plan() const {
  return {.threads = threads,
          .scratch_bytes = scratch_bytes,
          .details = text_of("tile_keys=", tile_keys, " workspace=", workspace_bytes)};
}

CpuAttentionBackwardLaunch plan_backward_heads(const Problem& p, const Machine& m,
                                               Reasons* reasons) {
  const AttentionFacts& a = p.attention;
  CpuAttentionBackwardLaunch launch{.threads = attention_threads(p, m, reasons)};
  launch.scratch_bytes = static_cast<std::size_t>(a.keys) *
                         static_cast<std::size_t>(a.dim + a.value_dim()) *
                         size_of(compute_type(p.in));
  say(reasons, "the gradients of a head's keys: ", launch.scratch_bytes, " bytes per thread");
  return launch;
}

CpuAttentionBackwardLaunch plan_backward_tiles(const Problem& p, const Machine& m,
                                               Reasons* reasons) {
  const AttentionFacts& a = p.attention;
  const std::size_t element_bytes = size_of(compute_type(p.in));
  const auto heads_keys =
      static_cast<std::int64_t>(key_tokens(a) * static_cast<double>(a.kv_heads));
  CpuAttentionBackwardLaunch launch{.threads = attention_threads(p, m, reasons)};
  launch.tile_keys = backward_tile_keys(a.dim + a.value_dim(), heads_keys, element_bytes);
  const BackwardLayout layout(a.dim, a.value_dim(), launch.tile_keys);
  launch.scratch_bytes = layout.elements() * element_bytes;
  const std::int64_t tiles = ceil_div(a.keys, launch.tile_keys);
  // With sequences of their own lengths the most that there can be.
  const BackwardWorkspace workspace{.rows = p.rows,
                                    .tiles = ceil_div(p.rows, kFlashRows) + a.batch * a.kv_heads,
                                    .row_elements = tiles > 1 ? layout.padded : 0};
  launch.workspace_bytes = static_cast<std::size_t>(workspace.bytes(element_bytes));
  // Every tile of keys reads all queries, and reads and writes their sums.
  const double read =
      static_cast<double>(a.dim + a.value_dim()) * static_cast<double>(size_of(p.in));
  const double sums = 2.0 * static_cast<double>(workspace.row_elements * element_bytes);
  launch.extra_bytes = static_cast<double>(p.rows) *
                       static_cast<double>(std::max<std::int64_t>(tiles - 1, 0)) * (read + sums);
  say(reasons, "tiles of ", launch.tile_keys, " keys: with their gradients ", launch.scratch_bytes,
      " bytes per thread");
  say(reasons, "a workspace of ", launch.workspace_bytes,
      " bytes for all threads: a sum per element of q, two numbers per query");
  return launch;
}

}  // namespace onepass
