#include "ops/attention/cpu/backward_rest.hpp"

#include <algorithm>

#include "core/integers.hpp"
#include "ops/attention/cpu/backward_query.hpp"

namespace onepass {
namespace {

// Tokens first … end − 1 of all heads of a gradient.
void zero_tokens(const Heads& gradient, std::int64_t b, std::int64_t heads, std::int64_t first,
                 std::int64_t end, int dim) {
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t t = first; t < end; ++t) {
      const std::int64_t at = gradient.offset(b, h, t);
      for (int j = 0; j < dim; ++j) write_like(gradient.data, gradient.dtype, at + j, 0.0F);
    }
  }
}

// Where the keys of a sequence end, whatever its length, in tokens of k.
std::int64_t end_of_keys(const AttentionArgs& a, std::int64_t b) {
  return a.kv_offsets ? a.kv_offsets[b + 1] : a.keys;
}

// Calls body(s, b, query) for the queries that a row of the mask is of: row `token` of entry
// `batch`, or all of them where the mask has one.
template <class Body>
void for_each_query(const AttentionBackwardArgs& a, std::int64_t batch, std::int64_t token,
                    Body body) {
  const bool one_batch = a.mask_shape[0] == 1, one_token = a.mask_shape[2] == 1;
  const std::int64_t last = one_batch ? a.batch : batch + 1;
  for (std::int64_t b = one_batch ? 0 : batch; b < last; ++b) {
    const Sequence s = sequence_of(a, b);
    const std::int64_t first = one_token ? 0 : std::max<std::int64_t>(token - s.q_first, 0);
    const std::int64_t end = one_token ? s.queries : token - s.q_first + 1;
    for (std::int64_t q = first; q < std::min(end, s.queries); ++q) body(s, b, q);
  }
}

constexpr std::int64_t kColumns = 256;  // of a mask, summed together

// Columns first … first + count − 1 of a row of the mask, which all keys share if it has one.
template <class Stored>
void add_columns(const BackwardQuery<Stored>& row, const Sequence& s, bool shared,
                 std::int64_t first, std::int64_t count, double* sums) {
  Keys keys = row.live();
  if (!shared) {
    keys.begin = std::max(keys.begin, first - s.k_first);
    keys.end = std::min(keys.end, first + count - s.k_first);
  }
  for (std::int64_t t = keys.begin; t < keys.end; ++t) {
    sums[shared ? 0 : s.k_first + t - first] += static_cast<double>(row.at(t).d_z);
  }
}

// One item is some columns of one row of the mask.
template <class Stored>
void mask_item(const AttentionBackwardArgs& a, std::int64_t item, std::int64_t blocks) {
  const auto& shape = a.mask_shape;
  const std::int64_t first = item % blocks * kColumns;
  const std::int64_t token = item / blocks % shape[2];
  const std::int64_t head = item / blocks / shape[2] % shape[1];
  const std::int64_t batch = item / blocks / shape[2] / shape[1];
  const std::int64_t count = std::min(kColumns, shape[3] - first);
  const bool shared = shape[3] == 1;
  double sums[kColumns] = {};
  for_each_query(a, batch, token, [&](const Sequence& s, std::int64_t b, std::int64_t q) {
    const bool one_head = shape[1] == 1;
    for (std::int64_t h = one_head ? 0 : head; h < (one_head ? a.heads : head + 1); ++h) {
      add_columns(BackwardQuery<Stored>(a, s, b, h, q), s, shared, first, count, sums);
    }
  });
  const std::int64_t at = a.d_additive.offset(batch, head, token);
  for (std::int64_t c = 0; c < count; ++c) {
    write_like(a.d_additive.data, a.d_additive.dtype, at + (first + c) * a.d_additive.key, sums[c]);
  }
}

template <class Stored>
double sink_of_head(const AttentionBackwardArgs& a, std::int64_t h) {
  using T = typename BackwardQuery<Stored>::T;
  const T sink = read_like<T>(a.sinks.data, a.sinks.dtype, a.sinks.offset(0, h, 0));
  double sum = 0;
  for (std::int64_t b = 0; b < a.batch; ++b) {
    const Sequence s = sequence_of(a, b);
    for (std::int64_t q = 0; q < s.queries; ++q) {
      sum += static_cast<double>(BackwardQuery<Stored>(a, s, b, h, q).d_sink(sink));
    }
  }
  return sum;
}

}  // namespace

void zero_unused(const AttentionBackwardArgs& a, const Team& team) {
  if (a.accumulate) return;
  std::int64_t q_end = 0, k_end = 0;
  for (std::int64_t b = 0; b < a.batch; ++b) {
    const Sequence s = sequence_of(a, b);
    const std::int64_t first = s.k_first + (s.queries > 0 ? s.keys : 0);
    q_end = s.q_first + s.queries;
    k_end = end_of_keys(a, b);
    if (b % team.size() != team.rank()) continue;
    zero_tokens(a.d_k, b, a.kv_heads, first, k_end, a.dim);
    zero_tokens(a.d_v, b, a.kv_heads, first, k_end, a.dim_v);
  }
  if (team.rank() != 0) return;
  if (a.q_offsets) zero_tokens(a.d_q, 0, a.heads, q_end, a.queries, a.dim);
  if (!a.kv_offsets) return;
  zero_tokens(a.d_k, 0, a.kv_heads, k_end, a.keys, a.dim);
  zero_tokens(a.d_v, 0, a.kv_heads, k_end, a.keys, a.dim_v);
}

void sink_gradients(const AttentionBackwardArgs& a, const Team& team) {
  if (!a.d_sinks) return;
  for (std::int64_t h = team.rank(); h < a.heads; h += team.size()) {
    with_type_for<float>(a.q.dtype, [&]<class Stored>(Type<Stored>) {
      write_like(a.d_sinks.data, a.d_sinks.dtype, a.d_sinks.offset(0, h, 0),
                 sink_of_head<Stored>(a, h));
    });
  }
}

void mask_gradients(const AttentionBackwardArgs& a, const Team& team) {
  if (!a.d_additive) return;
  const std::int64_t blocks = ceil_div(a.mask_shape[3], kColumns);
  const std::int64_t items = a.mask_shape[0] * a.mask_shape[1] * a.mask_shape[2] * blocks;
  for (std::int64_t i = team.rank(); i < items; i += team.size()) {
    with_type_for<float>(a.q.dtype,
                         [&]<class Stored>(Type<Stored>) { mask_item<Stored>(a, i, blocks); });
  }
}

}  // namespace onepass
