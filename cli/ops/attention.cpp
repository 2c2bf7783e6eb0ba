// Calls of attention.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cli/ops/call.hpp"
#include "cli/problem/sequences.hpp"
#include "core/number.hpp"

namespace onepass::cli {
namespace {

using Dimensions = std::vector<std::int64_t>;

// Above this many elements a block of values is repeated: timing needs no more.
constexpr std::int64_t kDistinct = 1 << 20;

void fill_normal(GuardedArray& array, bool dense, Random& random) {
  const Tensor& t = array.tensor();
  if (!dense || array.size() <= kDistinct) {
    for (std::int64_t i = 0; i < array.size(); ++i) array.set(i, random.normal());
    return;
  }
  auto* data = static_cast<std::byte*>(t.data);
  const std::size_t width = size_of(t.dtype);
  for (std::int64_t i = 0; i < kDistinct; ++i) write(data, t.dtype, i, random.normal());
  for (std::int64_t i = kDistinct; i < array.size(); i += kDistinct) {
    const auto count = static_cast<std::size_t>(std::min(kDistinct, array.size() - i)) * width;
    std::copy_n(data, count, data + static_cast<std::size_t>(i) * width);
  }
}

void fill_offsets(GuardedArray& array, const std::vector<std::int64_t>& counts) {
  std::int64_t at = 0;
  for (std::size_t b = 0; b < counts.size(); ++b) {
    array.set(static_cast<std::int64_t>(b), static_cast<double>(at));
    at += counts[b];
  }
  array.set(static_cast<std::int64_t>(counts.size()), static_cast<double>(at));
}

std::int64_t pages_of(std::int64_t keys, std::int64_t page) { return (keys + page - 1) / page; }

}  // namespace

Status Call::make_attention(Random& random) {
  if (Status status = make_attention_arrays(); !status.ok()) return status;
  fill_attention(random);
  if (pages_.present()) fill_pages(random);
  return {};
}

Status Call::make_attention_arrays() {
  const Case& c = case_;
  const Sequences s = sequences_of(c);
  const std::int64_t batch = c.shape[0], heads = c.shape[1], dim = c.shape[3];
  const bool ragged_keys = c.ragged && c.page == 0;
  const std::int64_t queries = c.ragged ? s.all_queries() : c.shape[2];
  const std::int64_t table = c.page > 0 ? pages_of(c.keys, c.page) : 0;  // pages of a sequence
  const std::int64_t keys = ragged_keys ? s.all_keys() : c.page > 0 ? table * c.page : c.keys;
  Status status;
  const auto make = [&](bool wanted, GuardedArray& array, DType dtype, const Dimensions& shape,
                        Layout layout = {}) {
    if (wanted && status.ok()) status = array.make(dtype, shape, layout);
  };
  // Heads before tokens, whichever lies further apart in memory.
  const auto make_tokens = [&](GuardedArray& array, DType dtype, Dimensions shape, Layout layout) {
    const auto head = static_cast<int>(shape.size()) - 3;
    const auto at = static_cast<std::size_t>(head);
    if (c.bshd) std::swap(shape[at], shape[at + 1]);
    make(true, array, dtype, shape, layout);
    if (c.bshd && status.ok()) array.swap_dimensions(head, head + 1);
  };
  const Layout layout{.pad = c.pad, .offset = c.offset};
  Layout out_layout = layout;
  if (c.out_offset >= 0) out_layout.offset = c.out_offset;
  const Dimensions q_shape =
      c.ragged ? Dimensions{heads, queries, dim} : Dimensions{batch, heads, queries, dim};
  const Dimensions kv_shape = ragged_keys  ? Dimensions{c.kv_heads, keys, dim}
                              : c.page > 0 ? Dimensions{batch * table + 1, c.kv_heads, c.page, dim}
                                           : Dimensions{batch, c.kv_heads, keys, dim};
  make_tokens(in_, c.in, q_shape, layout);
  make_tokens(k_, c.in, kv_shape, layout);
  make_tokens(v_, c.in, kv_shape, layout);
  make_tokens(out_, c.out, q_shape, out_layout);
  make(c.lse, lse_, DType::f32, Dimensions(q_shape.begin(), q_shape.end() - 1));
  const Dimensions mask = c.broadcast ? Dimensions{queries, keys}
                                      : Dimensions{c.ragged ? 1 : batch, heads, queries, keys};
  make(c.additive, additive_, c.in, mask);
  make(c.boolean, boolean_, DType::u8, mask);
  make(c.lengths || c.page > 0, lengths_, DType::i32, {batch});
  make(c.alibi, alibi_, DType::f32, {heads});
  make(c.sinks, sinks_, DType::f32, {heads});
  make(c.ragged, q_offsets_, DType::i32, {batch + 1});
  make(ragged_keys, kv_offsets_, DType::i64, {batch + 1});
  make(c.page > 0, pages_, DType::i32, {batch, table});
  return status;
}

void Call::fill_attention(Random& random) {
  const Sequences s = sequences_of(case_);
  const std::int64_t dim = case_.shape[3];
  const bool dense = case_.pad == 0;
  fill_normal(v_, dense, random);
  if (case_.fill == "random") {
    fill_normal(in_, dense, random);
    fill_normal(k_, dense, random);
  } else {
    // q = (1, 0, …) makes a key's first element its logit: a fill then means what it says.
    const Fill& fill = *find_fill(case_.fill);
    const double limit = largest(case_.in);
    for (std::int64_t i = 0; i < in_.size(); ++i) in_.set(i, i % dim == 0 ? 1 : 0);
    const std::int64_t tokens = k_.tensor().shape[static_cast<std::size_t>(k_.tensor().rank - 2)];
    for (std::int64_t i = 0; i < k_.size(); ++i) {
      const std::int64_t token = i / dim;
      const double value =
          i % dim == 0 ? fill.value(token / tokens, token % tokens, tokens, random.normal(), limit)
                       : 0;
      k_.set(i, value);
    }
  }
  for (std::int64_t i = 0; i < additive_.size(); ++i) {
    const bool hidden = random.uniform() < 0.1;
    additive_.set(i, hidden ? -std::numeric_limits<double>::infinity() : random.normal());
  }
  for (std::int64_t i = 0; i < boolean_.size(); ++i) {
    boolean_.set(i, random.uniform() < 0.7 ? 1 : 0);
  }
  for (std::int64_t h = 0; h < alibi_.size(); ++h) {  // as the paper has them
    const auto at = static_cast<double>(h + 1) / static_cast<double>(alibi_.size());
    alibi_.set(h, std::exp2(-8 * at));
  }
  for (std::int64_t h = 0; h < sinks_.size(); ++h) sinks_.set(h, random.normal());
  for (std::int64_t b = 0; b < lengths_.size(); ++b) {
    lengths_.set(b, static_cast<double>(s.lengths[static_cast<std::size_t>(b)]));
  }
  if (lengths_.present() && !kv_offsets_.present() && case_.page == 0) bury_unseen(s);
  if (q_offsets_.present()) fill_offsets(q_offsets_, s.queries);
  if (kv_offsets_.present()) fill_offsets(kv_offsets_, s.keys);
}

// What no length reaches is nobody's business: a weight of 0 does not make it harmless.
void Call::bury_unseen(const Sequences& s) {
  const std::int64_t tokens = case_.kv_heads * case_.keys;  // of a sequence, in all heads
  for (std::int64_t i = 0; i < k_.size(); ++i) {
    const std::int64_t token = i / case_.shape[3];
    if (token % case_.keys < s.lengths[static_cast<std::size_t>(token / tokens)]) continue;
    k_.set(i, std::numeric_limits<double>::quiet_NaN());
    v_.set(i, std::numeric_limits<double>::quiet_NaN());
  }
}

// Every sequence has pages from all over k; what no length reaches is nonsense, to be left alone.
void Call::fill_pages(Random& random) {
  const Sequences s = sequences_of(case_);
  std::vector<std::int64_t> order(static_cast<std::size_t>(k_.tensor().shape[0]));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::size_t i = order.size(); i-- > 1;) {
    std::swap(order[i], order[static_cast<std::size_t>(random.bits() % (i + 1))]);
  }
  const std::int64_t table = pages_.tensor().shape[1];
  for (std::int64_t i = 0; i < pages_.size(); ++i) {
    const std::int64_t length = s.lengths[static_cast<std::size_t>(i / table)];
    const bool reached = i % table * case_.page < length;
    pages_.set(i, reached ? static_cast<double>(order[static_cast<std::size_t>(i)]) : -7);
  }
}

Status Call::run_attention(const Context& context, std::string_view variant, Plan* plan) {
  AttentionOptions options{.softcap = case_.softcap,
                           .mask = mask(),
                           .alibi = view(alibi_),
                           .sinks = view(sinks_),
                           .q_offsets = view(q_offsets_),
                           .kv_offsets = view(kv_offsets_),
                           .pages = view(pages_),
                           .check_pages = false,
                           .split = case_.split,
                           .lse = view(lse_),
                           .variant = variant,
                           .plan = plan,
                           .batch_invariant = case_.batch_invariant};
  if (case_.scale != usual_scale(case_)) options.scale = case_.scale;
  return attention(context, view(in_), view(k_), view(v_), view(out_), options);
}

}  // namespace onepass::cli
