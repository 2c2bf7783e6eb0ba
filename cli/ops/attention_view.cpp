#include <algorithm>
#include <iterator>
#include <numeric>

#include "cli/ops/attention.hpp"

namespace onepass::cli {

AttentionView::AttentionView(const Call& call)
    : call_(call), spec_(call.spec()), sequences_(sequences_of(spec_)) {
  std::exclusive_scan(sequences_.queries.begin(), sequences_.queries.end(),
                      std::back_inserter(q_first_), std::int64_t{0});
  std::exclusive_scan(sequences_.keys.begin(), sequences_.keys.end(), std::back_inserter(k_first_),
                      std::int64_t{0});
}

std::int64_t AttentionView::group() const {
  return std::max<std::int64_t>(spec_.shape[1] / std::max<std::int64_t>(spec_.kv_heads, 1), 1);
}

std::int64_t AttentionView::query_row(std::int64_t b, std::int64_t h, std::int64_t q) const {
  if (!spec_.ragged) return (b * spec_.shape[1] + h) * spec_.shape[2] + q;
  return h * sequences_.all_queries() + q_first_[static_cast<std::size_t>(b)] + q;
}

std::int64_t AttentionView::key_row(std::int64_t b, std::int64_t kv_head, std::int64_t t) const {
  if (spec_.page > 0) {
    const std::int64_t table = call_[array::pages].tensor().shape[1];
    const auto page =
        static_cast<std::int64_t>(call_[array::pages].get(b * table + t / spec_.page));
    return (page * spec_.kv_heads + kv_head) * spec_.page + t % spec_.page;
  }
  if (spec_.ragged) {
    return kv_head * sequences_.all_keys() + k_first_[static_cast<std::size_t>(b)] + t;
  }
  return (b * spec_.kv_heads + kv_head) * spec_.keys + t;
}

std::int64_t AttentionView::mask_index(const Tensor& mask, std::int64_t b, std::int64_t h,
                                       std::int64_t q, std::int64_t t) const {
  const auto last = static_cast<std::size_t>(mask.rank - 1);
  const auto at = static_cast<std::size_t>(b);
  const std::int64_t row = spec_.ragged ? q_first_[at] + q : q;
  const std::int64_t key = spec_.ragged && spec_.page == 0 ? k_first_[at] + t : t;
  const std::int64_t matrix = spec_.broadcast ? 0 : (spec_.ragged ? 0 : b * spec_.shape[1]) + h;
  return (matrix * mask.shape[last - 1] + row) * mask.shape[last] + key;
}

oracle::Row AttentionView::row(array::Id id, std::int64_t r, std::int64_t dim) const {
  oracle::Row values;
  for (std::int64_t j = 0; j < dim; ++j) values.push_back(call_[id].get(r * dim + j));
  return values;
}

oracle::Row AttentionView::keys(array::Id id, std::int64_t b, std::int64_t kv_head,
                                std::int64_t dim) const {
  oracle::Row all;
  for (std::int64_t t = 0; t < sequences_.lengths[static_cast<std::size_t>(b)]; ++t) {
    const oracle::Row one = row(id, key_row(b, kv_head, t), dim);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

oracle::Scores AttentionView::scores(std::int64_t b, std::int64_t h, std::int64_t q,
                                     std::int64_t first, std::int64_t count) const {
  const auto at = static_cast<std::size_t>(b);
  const std::int64_t queries = sequences_.queries[at], keys = sequences_.lengths[at];
  oracle::Scores s{
      .scale = spec_.scale, .softcap = spec_.softcap, .own = q + keys - queries - first};
  if (call_[array::alibi].present()) s.slope = call_[array::alibi].get(h);
  for (std::int64_t t = first; t < first + count; ++t) {
    const auto masked = [&](const GuardedArray& mask) {
      return mask.get(mask_index(mask.tensor(), b, h, q, t));
    };
    if (call_[array::additive].present()) s.additive.push_back(masked(call_[array::additive]));
    s.keep.push_back(
        (!call_[array::boolean].present() || masked(call_[array::boolean]) != 0) &&
        (!spec_.causal || oracle::causal_keeps(q, t, queries, keys)) &&
        oracle::window_keeps(q, t, queries, keys, spec_.window_left, spec_.window_right));
  }
  return s;
}

std::optional<double> AttentionView::sink(std::int64_t h) const {
  if (!call_[array::sinks].present()) return {};
  return call_[array::sinks].get(h);
}

}  // namespace onepass::cli
