#include "ops/attention/cpu/backward_plan.hpp"

#include <algorithm>

#include "ops/attention/cpu/backward_layout.hpp"
#include "ops/attention/cpu/plan.hpp"

namespace onepass {
namespace {

// Bytes moved beside inputs and outputs: a row's sums, written and read once per tile of keys, and
// its query and do, read again by every tile, unless those of a kv head stay in a cache.
double read_again(const Problem& p, const Machine& m, std::int64_t tiles, double row_sums) {
  const AttentionFacts& a = p.attention;
  const double row = (a.dim + a.value_dim()) * static_cast<double>(size_of(p.in)) + row_sums / 2;
  const double head = static_cast<double>(a.queries) * static_cast<double>(a.group()) * row;
  const auto rows = static_cast<double>(p.rows);
  if (head <= static_cast<double>(std::max(m.l2, m.l3))) return rows * row_sums;
  return rows * static_cast<double>(tiles - 1) * (row + row_sums / 2);
}

}  // namespace

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
  launch.extra_bytes = tiles > 1 ? read_again(p, m, tiles, layout.padded * 2.0 * element_bytes) : 0;
  say(reasons, "tiles of ", launch.tile_keys, " keys: with their gradients ", launch.scratch_bytes,
      " bytes per thread");
  say(reasons, "a workspace of ", launch.workspace_bytes,
      " bytes for all threads: a sum per element of q, two numbers per query");
  return launch;
}

}  // namespace onepass
