// attention/cpu_naive: one query at a time, three loops.
//
// Idea    the scores of a query in a buffer, their maximum, then the values by their
//         weights: the textbook.
// Versus  nothing: this is where the walk begins, and what the others are measured beside.
// Bytes   every query reads all of its keys and values.
// Limits  none: every dtype, stride and option; slow everywhere.
// Proof   tests/ops/attention/attention_test.cpp, `onepass verify attention`.

#include <string>
#include <type_traits>

#include "core/problem.hpp"
#include "ops/attention/cpu/tiles.hpp"
#include "ops/attention/cpu/variants.hpp"
#include "ops/attention/logit.hpp"
#include "runtime/workers.hpp"

namespace onepass::ops::attention {
namespace {

constexpr int kMostDim = 512;

template <class Stored>
class Naive {
  using T = std::conditional_t<std::is_same_v<Stored, double>, double, float>;

 public:
  Naive(const AttentionArgs& args, const RowTiles& tiles, std::byte* scores)
      : a_(args), tiles_(tiles), scores_(reinterpret_cast<T*>(scores)) {}

  void run(const RowTile& tile) {
    const Sequence& s = tile.sequence;
    const std::int64_t b = tile.batch;
    const std::int64_t head = tiles_.head(tile, 0);
    const std::int64_t q = tiles_.query(tile, 0);
    const Keys keys = live_keys(a_, s, q);
    score(tile, keys);
    const State<T> first = first_state<T>(a_, head);
    T m = first.m;
    for (std::int64_t t = keys.begin; t < keys.end; ++t) {
      if (scores_[t] > m || scores_[t] != scores_[t]) m = scores_[t];  // a NaN is the largest
    }
    double d = static_cast<double>(first.d * rescale(m, first.m));
    T sum[kMostDim] = {};
    for (std::int64_t t = keys.begin; t < keys.end; ++t) {
      if (scores_[t] == minus_infinity<T>()) continue;  // not there, whatever its value
      const T weight = rescale(m, scores_[t]);
      d += static_cast<double>(weight);
      const Stored* v = row(a_.v, key_offset(a_, s, a_.v, b, tile.kv_head, t));
      for (int j = 0; j < a_.dim_v; ++j) sum[j] += weight * load_as<T>(v[j]);
    }
    const State<T> state{m, static_cast<T>(d)};
    const std::int64_t o = a_.o.offset(b, head, s.q_first + q);
    const T by = factor(state, state.m);
    for (int j = 0; j < a_.dim_v; ++j) write(a_.o.data, a_.o.dtype, o + j, sum[j] * by);
    if (!a_.lse) return;
    write(a_.lse.data, a_.lse.dtype, a_.lse.offset(b, head, s.q_first + q), logsumexp(state));
  }

 private:
  static const Stored* row(const Heads& operand, std::int64_t offset) {
    return static_cast<const Stored*>(operand.data) + offset;
  }

  void score(const RowTile& tile, Keys keys) {
    const Sequence& s = tile.sequence;
    const std::int64_t head = tiles_.head(tile, 0);
    const std::int64_t own = tiles_.query(tile, 0);
    const QueryMasks masks(a_, s, tile.batch, head, own);
    const T slope = slope_of<T>(a_, tile.batch, head);
    const auto scale = static_cast<T>(a_.scale);
    const auto cap = static_cast<T>(a_.softcap);
    const Stored* q = row(a_.q, a_.q.offset(tile.batch, head, s.q_first + own));
    for (std::int64_t t = keys.begin; t < keys.end; ++t) {
      if (masks.hides(t)) {
        scores_[t] = minus_infinity<T>();
        continue;
      }
      const Stored* k = row(a_.k, key_offset(a_, s, a_.k, tile.batch, tile.kv_head, t));
      T dot = 0;
      for (int j = 0; j < a_.dim; ++j) dot += load_as<T>(q[j]) * load_as<T>(k[j]);
      const auto distance = static_cast<T>(std::abs(t - own_key(s, own)));
      scores_[t] = capped(dot * scale, cap) - slope * distance + masks.template added<T>(t);
    }
  }

  const AttentionArgs& a_;
  const RowTiles& tiles_;
  T* scores_;
};

}  // namespace

Status cpu_naive(const AttentionArgs& args, const CpuAttentionLaunch& launch) {
  const RowTiles tiles(args, 1);
  const auto keys = static_cast<std::size_t>(args.keys);
  const std::size_t width = size_of(compute_type(args.q.dtype));
  std::byte* memory = scratch(static_cast<std::size_t>(launch.threads) * keys * width);
  if (memory == nullptr && keys > 0) {
    return {Code::out_of_memory, "no memory for the scores of " + std::to_string(keys) + " keys"};
  }
  run_team(launch.threads, [&](Team& team) {
    std::byte* scores = memory + static_cast<std::size_t>(team.rank()) * keys * width;
    with_type_for<float>(args.q.dtype, [&]<class Stored>(Type<Stored>) {
      Naive<Stored> naive(args, tiles, scores);
      for (std::int64_t i = team.take(1); i < tiles.count(); i = team.take(1)) {
        naive.run(tiles.at(i));
      }
    });
  });
  return {};
}

}  // namespace onepass::ops::attention
