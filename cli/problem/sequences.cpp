#include "cli/problem/sequences.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cli/problem/fill.hpp"
#include "ops/attention/args.hpp"

namespace onepass::cli {
namespace {

std::int64_t total(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// From nothing to `most`: of several the first is empty and the last full.
std::vector<std::int64_t> drawn(std::int64_t batch, std::int64_t most, Random& random) {
  std::vector<std::int64_t> counts;
  for (std::int64_t b = 0; b < batch; ++b) {
    const auto any = static_cast<std::int64_t>(random.uniform() * static_cast<double>(most + 1));
    counts.push_back(b + 1 == batch ? most : b == 0 ? 0 : any);
  }
  return counts;
}

}  // namespace

std::int64_t Sequences::all_queries() const { return total(queries); }
std::int64_t Sequences::all_keys() const { return total(keys); }

Sequences sequences_of(const Case& c) {
  const std::int64_t batch = c.shape[0];
  Random random(c.seed + 1000003);
  Sequences s;
  s.queries.assign(static_cast<std::size_t>(batch), c.shape[2]);
  s.keys.assign(static_cast<std::size_t>(batch), c.keys);
  if (c.ragged) s.queries = drawn(batch, c.shape[2], random);
  if (c.ragged && c.page == 0) s.keys = drawn(batch, c.keys, random);
  s.lengths = s.keys;
  if (!c.lengths) return s;
  const std::vector<std::int64_t> lengths = drawn(batch, c.keys, random);
  for (std::size_t b = 0; b < lengths.size(); ++b) s.lengths[b] = std::min(lengths[b], s.keys[b]);
  return s;
}

double usual_scale(const Case& c) { return 1 / std::sqrt(static_cast<double>(c.shape.back())); }

Status complete_attention(bool has_scale, Case& c) {
  const auto bad = [](std::string text) { return Status{Code::invalid_argument, std::move(text)}; };
  if (c.shape.size() != 4) {
    return bad("problem: attention has a shape of batch x heads x queries x dim");
  }
  if (c.keys < 0) c.keys = c.shape[2];
  if (c.kv_heads < 0) c.kv_heads = c.shape[1];
  if (c.dim_v < 0) c.dim_v = c.shape[3];
  if (!has_scale) c.scale = usual_scale(c);
  if (c.axis != -1 || c.scale_rows || c.temperature != 1 || c.temperature_rows || c.in_place ||
      c.step != 1) {
    return bad("problem: attention has no axis, temperature, scale=row, in_place or step");
  }
  return {};
}

double live_pairs(const Case& c) {
  AttentionArgs args;
  args.causal = c.causal;
  args.window_left = c.window_left;
  args.window_right = c.window_right;
  const Sequences s = sequences_of(c);
  double pairs = 0;
  for (std::size_t b = 0; b < s.queries.size(); ++b) {
    const Sequence sequence{0, s.queries[b], 0, s.lengths[b]};
    for (std::int64_t q = 0; q < sequence.queries; ++q) {
      const Keys keys = live_keys(args, sequence, q);
      pairs += static_cast<double>(keys.end - keys.begin);
    }
  }
  return pairs * static_cast<double>(c.shape[1]);
}

}  // namespace onepass::cli
