#include "ops/attention/cpu/plan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/integers.hpp"
#include "ops/attention/cpu/layout.hpp"

namespace onepass {
namespace {

// Products of a query's and a key's elements worth another thread: some ten microseconds.
constexpr double kGrain = 1 << 19;

// Fewest keys worth a part of their own.
constexpr std::int64_t kLeastPart = 512;

// Keys a part where a query's bits shall not depend on the batch and no part is asked
// for another number.
constexpr std::int64_t kInvariantPart = 1024;

double products(const Problem& p) {
  return static_cast<double>(p.rows) * static_cast<double>(p.cols) *
         (p.attention.dim + p.attention.value_dim()) / 2;
}

// Keys a part; 0: keys stay whole.
std::int64_t part_keys(const Problem& p, int threads, Reasons* reasons) {
  const AttentionFacts& a = p.attention;
  if (a.split > 0) {
    say(reasons, "keys cut into parts of ", a.split, ": asked for");
    return std::min(a.split, std::max<std::int64_t>(a.keys, 1));
  }
  const std::int64_t rows = a.queries * a.group();
  if (p.batch_invariant) {
    const bool cut = rows <= kFlashRows;
    say(reasons, cut ? "keys cut" : "keys whole", ": ", rows,
        " rows per kv head, whatever the batch: batch_invariant");
    return cut ? kInvariantPart : 0;
  }
  const std::int64_t tiles = a.kv_heads * (a.q_offsets ? 1 : a.batch) * ceil_div(rows, kFlashRows);
  const std::int64_t rounds = std::max<std::int64_t>(ceil_div(tiles, threads), 1);
  const double busy = static_cast<double>(tiles) / static_cast<double>(rounds * threads);
  const std::int64_t part =
      round_up(ceil_div(a.keys * std::max<std::int64_t>(tiles, 1), rounds * threads), kFlashKeys);
  const bool cut = threads > 1 && busy < 0.8 && part >= kLeastPart && part < a.keys;
  say(reasons, cut ? "keys cut" : "keys whole", ": ", tiles, " tiles of ", kFlashRows,
      " rows would keep ", threads, " threads ", static_cast<int>(busy * 100), " % busy");
  return cut ? part : 0;
}

}  // namespace

int attention_threads(const Problem& p, const Machine& m, Reasons* reasons) {
  const double useful = std::max(1.0, std::floor(products(p) / kGrain));
  const int threads = static_cast<int>(std::min<double>(m.threads, useful));
  say(reasons, "threads = ", threads, ": ", products(p), " products keep ", useful, " busy at ",
      kGrain, " each, the machine has ", m.threads);
  return threads;
}

Plan CpuAttentionLaunch::plan() const {
  return {.threads = threads,
          .split = parts,
          .scratch_bytes = scratch_bytes,
          .details = text_of("part_keys=", part_keys)};
}

CpuAttentionLaunch plan_queries(const Problem& p, const Machine& m, Reasons* reasons) {
  CpuAttentionLaunch launch{.threads = attention_threads(p, m, reasons)};
  launch.scratch_bytes = static_cast<std::size_t>(p.cols) * size_of(compute_type(p.in));
  say(reasons, "a query's scores: ", launch.scratch_bytes, " bytes per thread");
  return launch;
}

CpuAttentionLaunch plan_tiles(const Problem& p, const Machine& m, Reasons* reasons) {
  CpuAttentionLaunch launch{.threads = attention_threads(p, m, reasons)};
  launch.tile_rows = kFlashRows;
  launch.part_keys = part_keys(p, launch.threads, reasons);
  if (launch.part_keys > 0) {
    launch.parts = static_cast<int>(
        std::min<std::int64_t>(std::max<std::int64_t>(ceil_div(p.cols, launch.part_keys), 1),
                               std::numeric_limits<int>::max()));
  }
  launch.scratch_bytes = FlashLayout(p.attention.dim, p.attention.value_dim()).elements() *
                         size_of(compute_type(p.in));
  say(reasons, "a tile's queries, keys, values and sums: ", launch.scratch_bytes,
      " bytes per thread");
  return launch;
}

}  // namespace onepass
