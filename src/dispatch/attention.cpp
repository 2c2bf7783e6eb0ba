#include "dispatch/attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "dispatch/attention_launch.hpp"
#include "dispatch/say.hpp"
#include "ops/attention/geometry.hpp"
#include "ops/attention/layout.hpp"
#include "ops/row/layout.hpp"
#include "ops/variant.hpp"

namespace onepass::attention_plan {
namespace {

// Products of a query's and a key's elements worth another thread: some ten microseconds.
constexpr double kGrain = 1 << 19;

// Fewest keys worth a part of their own.
constexpr std::int64_t kLeastPart = 512;

// Keys a part where a query's bits shall not depend on the batch and nobody asked for another number.
constexpr std::int64_t kInvariantPart = 1024;

double products(const Problem& p) {
  return static_cast<double>(p.rows) * static_cast<double>(p.cols) * p.attention.dim;
}

int worthwhile_threads(const Problem& p, const Machine& m, Reasons* reasons) {
  const double useful = std::max(1.0, std::floor(products(p) / kGrain));
  const int threads = static_cast<int>(std::min<double>(m.threads, useful));
  say(reasons, "threads = ", threads, ": ", products(p), " products keep ", useful, " busy at ",
      kGrain, " each, the machine has ", m.threads);
  return threads;
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
        " rows a kv head, whatever the batch: batch_invariant");
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

Plan plan_on_cpu(const Variant& variant, const Problem& p, const Machine& m, Reasons* reasons) {
  Plan plan{.variant = variant.name, .threads = worthwhile_threads(p, m, reasons)};
  if (variant.name == "cpu_naive") {
    plan.scratch_bytes = static_cast<std::size_t>(p.cols) * sizeof(float);
    say(reasons, "a query's scores: ", plan.scratch_bytes, " bytes a thread");
    return plan;
  }
  plan.keys = part_keys(p, plan.threads, reasons);
  plan.split = plan.keys == 0 ? 1
                              : static_cast<int>(std::min<std::int64_t>(
                                    std::max<std::int64_t>(ceil_div(p.cols, plan.keys), 1),
                                    std::numeric_limits<int>::max()));
  plan.scratch_bytes = FlashLayout(p.attention.dim).bytes();
  say(reasons, "a tile's queries, keys, values and sums: ", plan.scratch_bytes, " bytes a thread");
  return plan;
}

Plan plan_of(const Variant& variant, const Problem& p, const Machine& m, Reasons* reasons) {
  if (variant.device == Device::cpu) return plan_on_cpu(variant, p, m, reasons);
  Plan plan = variant.geometry(p, m);
  plan.variant = variant.name;
  say(reasons, plan.blocks, " blocks of ", plan.threads, " threads: ", variant.idea);
  if (plan.cluster > 1) {
    say(reasons, "a cluster of ", plan.cluster, " blocks shares the keys of a tile of rows");
  }
  if (plan.split > 1) {
    say(reasons, plan.split, " parts of ", plan.keys, " keys, joined by a second launch");
  }
  return plan;
}

}  // namespace

Plan choose(const Problem& p, const Machine& m, Reasons* reasons) {
  const Variant* chosen = nullptr;
  std::string refusal;  // of the first, which takes the most
  for (const Variant& v : variants(Op::attention)) {
    if (v.role != Role::ship || v.device != m.device()) continue;
    if (std::string no = v.refuses(p, m); !no.empty()) {
      if (refusal.empty()) refusal = std::string(v.name) + ": " + no;
    } else if (v.name == "hopper" && !p.batch_invariant && !attention_launch::hopper_fills(p, m)) {
      say(reasons, "not hopper: ", attention_launch::hopper_tiles(p.attention),
          " tiles of queries are few for ", m.gpu.processors, " SMs: blocks share their keys");
    } else if (v.name == "hopper" && attention_launch::hopper_wastes(p)) {
      say(reasons, "not hopper: its tiles have one head each, and queries are few: ",
          attention_launch::hopper_tiles(p.attention), " tiles that are mostly empty");
    } else {
      chosen = &v;
    }
  }
  if (chosen == nullptr) {
    say(reasons, "nothing runs this: attention: ", refusal);
    return {};
  }
  say(reasons, chosen->name, ": the last that ships and can run this");
  return plan_of(*chosen, p, m, reasons);
}

Status plan_variant(std::string_view wanted, const Problem& p, const Machine& m, Plan& plan,
                    Reasons* reasons) {
  const Variant* found = find_variant(Op::attention, wanted);
  if (found == nullptr) return no_such_variant(Op::attention, wanted);
  if (const std::string no = found->refuses(p, m); !no.empty()) {
    return {Code::unsupported, "variant: " + std::string(wanted) + " cannot run this: " + no};
  }
  say(reasons, wanted, ": asked for by name");
  plan = plan_of(*found, p, m, reasons);
  return {};
}

// Every tile reads its keys and values again; from memory where those of a head do not stay in a cache.
double planned_bytes(const Problem& p, const Plan& plan, const Machine& m) {
  namespace walk = ops::attention::geometry;
  const AttentionFacts& a = p.attention;
  if (plan.variant == "naive") return least_bytes(p) + walk::naive_bytes(a);
  if (plan.variant == "fused_softmax" || plan.variant == "fused_tuned") {
    return least_bytes(p) + walk::fused_bytes(a);
  }
  const double kv_head =
      2 * static_cast<double>(a.keys) * a.dim * static_cast<double>(size_of(p.in));
  if (kv_head <= static_cast<double>(std::max(m.l2, m.l3))) return least_bytes(p);
  const std::int64_t tile_rows = plan.variant == "cpu_naive" ? 1 : kFlashRows;
  const auto tiles = static_cast<double>(ceil_div(a.queries * a.group(), tile_rows));
  const double kv = 2 * key_tokens(a) * static_cast<double>(a.kv_heads) * a.dim *
                    static_cast<double>(size_of(p.in));
  return least_bytes(p) + std::max(tiles - 1, 0.0) * kv;
}

}  // namespace onepass::attention_plan
