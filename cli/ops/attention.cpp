// The driver of attention.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "cli/ops/attention.hpp"
#include "cli/ops/call.hpp"
#include "cli/ops/driver.hpp"
#include "cli/ops/expect.hpp"
#include "cli/ops/rows.hpp"
#include "cli/problem/sequences.hpp"
#include "onepass/attention.hpp"
#include "ops/attention/check.hpp"

namespace onepass::cli {
namespace {

using Dimensions = std::vector<std::int64_t>;

void fill_offsets(GuardedArray& array, const std::vector<std::int64_t>& counts) {
  std::int64_t at = 0;
  for (std::size_t b = 0; b < counts.size(); ++b) {
    array.set(static_cast<std::int64_t>(b), static_cast<double>(at));
    at += counts[b];
  }
  array.set(static_cast<std::int64_t>(counts.size()), static_cast<double>(at));
}

// The same shape but for the last dimension.
Dimensions with_dim(Dimensions shape, std::int64_t dim) {
  shape.back() = dim;
  return shape;
}

}  // namespace

std::vector<ArraySpec> attention_arrays(const Case& c) {
  const Sequences s = sequences_of(c);
  const std::int64_t batch = c.shape[0], heads = c.shape[1], dim = c.shape[3];
  const bool ragged_keys = c.ragged && c.page == 0;
  const std::int64_t queries = c.ragged ? s.all_queries() : c.shape[2];
  const std::int64_t table =
      c.page > 0 ? (c.keys + c.page - 1) / c.page : 0;  // pages of a sequence
  const std::int64_t keys = ragged_keys ? s.all_keys() : c.page > 0 ? table * c.page : c.keys;
  const Layout layout{.pad = c.pad, .offset = c.offset};
  const Layout out_layout{.pad = c.pad, .offset = c.out_offset >= 0 ? c.out_offset : c.offset};
  const Dimensions q_shape =
      c.ragged ? Dimensions{heads, queries, dim} : Dimensions{batch, heads, queries, dim};
  const Dimensions k_shape = ragged_keys  ? Dimensions{c.kv_heads, keys, dim}
                             : c.page > 0 ? Dimensions{batch * table + 1, c.kv_heads, c.page, dim}
                                          : Dimensions{batch, c.kv_heads, keys, dim};
  const Dimensions v_shape = with_dim(k_shape, c.dim_v), o_shape = with_dim(q_shape, c.dim_v);
  const Dimensions mask = c.broadcast ? Dimensions{queries, keys}
                                      : Dimensions{c.ragged ? 1 : batch, heads, queries, keys};
  std::vector<ArraySpec> all = {{array::x, Access::input, c.in, q_shape, layout, c.bshd},
                                {array::k, Access::input, c.in, k_shape, layout, c.bshd},
                                {array::v, Access::input, c.in, v_shape, layout, c.bshd},
                                {array::y, Access::output, c.out, o_shape, out_layout, c.bshd}};
  const auto add = [&all](bool wanted, array::Id id, DType dtype, const Dimensions& shape) {
    if (wanted) all.push_back({id, Access::input, dtype, shape});
  };
  add(c.additive, array::additive, c.in, mask);
  add(c.boolean, array::boolean, DType::u8, mask);
  add(c.lengths || c.page > 0, array::lengths, DType::i32, {batch});
  add(c.alibi, array::alibi, wide(c), {heads});
  add(c.sinks, array::sinks, wide(c), {heads});
  add(c.ragged, array::q_offsets, DType::i32, {batch + 1});
  add(ragged_keys, array::kv_offsets, DType::i64, {batch + 1});
  add(c.page > 0, array::pages, DType::i32, {batch, table});
  return all;
}

namespace {

// Makes keys that no length reaches NaN: a weight of 0 does not make them harmless.
void bury_unseen(Call& call, const Sequences& s) {
  const Case& spec = call.spec();
  const std::int64_t tokens = spec.kv_heads * spec.keys;  // of a sequence, in all heads
  for (const auto& [id, dim] : {std::pair(array::k, spec.shape[3]), {array::v, spec.dim_v}}) {
    for (std::int64_t i = 0; i < call[id].size(); ++i) {
      const std::int64_t token = i / dim;
      if (token % spec.keys < s.lengths[static_cast<std::size_t>(token / tokens)]) continue;
      call[id].set(i, std::numeric_limits<double>::quiet_NaN());
    }
  }
}

// Every sequence has pages from all over k; what no length reaches is nonsense, to be left alone.
void fill_pages(Call& call, const Sequences& s, Random& random) {
  GuardedArray& table = call[array::pages];
  std::vector<std::int64_t> order(static_cast<std::size_t>(call[array::k].tensor().shape[0]));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::size_t i = order.size(); i-- > 1;) {
    std::swap(order[i], order[static_cast<std::size_t>(random.bits() % (i + 1))]);
  }
  const std::int64_t most = table.tensor().shape[1];
  for (std::int64_t i = 0; i < table.size(); ++i) {
    const std::int64_t length = s.lengths[static_cast<std::size_t>(i / most)];
    const bool reached = i % most * call.spec().page < length;
    table.set(i, reached ? static_cast<double>(order[static_cast<std::size_t>(i)]) : -7);
  }
}

}  // namespace

void fill_attention(Call& call, Random& random) {
  const Case& spec = call.spec();
  const Sequences s = sequences_of(spec);
  const std::int64_t dim = spec.shape[3];
  const bool dense = spec.pad == 0;
  GuardedArray& q = call[array::x];
  GuardedArray& k = call[array::k];
  fill_normal(call[array::v], 1, dense, random);
  if (spec.fill == "random") {
    fill_normal(q, 1, dense, random);
    fill_normal(k, 1, dense, random);
  } else {
    // q = (1, 0, …) makes a key's first element its logit: a fill then means what it says.
    const Fill& fill = *find_fill(spec.fill);
    // The backward multiplies by k: its largest logits leave room for that.
    const double most = largest(spec.in);
    const double limit = spec.op == Op::attention_backward ? std::sqrt(most) : most;
    const std::int64_t tokens = k.tensor().shape[static_cast<std::size_t>(k.tensor().rank - 2)];
    set_each(q, [&](std::int64_t i) { return i % dim == 0 ? 1 : 0; });
    set_each(k, [&](std::int64_t i) {
      if (i % dim != 0) return 0.0;
      const std::int64_t token = i / dim;
      return fill.value(token / tokens, token % tokens, tokens, random.normal(), limit);
    });
  }
  set_each(call[array::additive], [&](std::int64_t) {
    const bool hidden = random.uniform() < 0.1;
    return hidden ? -std::numeric_limits<double>::infinity() : random.normal();
  });
  set_each(call[array::boolean], [&](std::int64_t) { return random.uniform() < 0.7 ? 1 : 0; });
  set_each(call[array::alibi], [&](std::int64_t h) {  // as the paper has them
    return std::exp2(-8 * static_cast<double>(h + 1) / static_cast<double>(spec.shape[1]));
  });
  set_each(call[array::sinks], [&](std::int64_t) { return random.normal(); });
  set_each(call[array::lengths], [&](std::int64_t b) {
    return static_cast<double>(s.lengths[static_cast<std::size_t>(b)]);
  });
  if (spec.lengths && !spec.ragged && spec.page == 0) bury_unseen(call, s);
  if (spec.ragged) fill_offsets(call[array::q_offsets], s.queries);
  if (spec.ragged && spec.page == 0) fill_offsets(call[array::kv_offsets], s.keys);
  if (spec.page > 0) fill_pages(call, s, random);
}

AttentionOptions attention_options(const Case& c, const Tensors& t) {
  AttentionOptions options{.softcap = c.softcap,
                           .mask = mask_of(c, t),
                           .alibi = t[array::alibi],
                           .sinks = t[array::sinks],
                           .q_offsets = t[array::q_offsets],
                           .kv_offsets = t[array::kv_offsets],
                           .pages = t[array::pages],
                           .check_pages = false,
                           .split = c.split,
                           .lse = t[array::lse],
                           .batch_invariant = c.batch_invariant};
  if (c.scale != usual_scale(c)) options.scale = c.scale;
  return options;
}

namespace {

std::vector<ArraySpec> arrays(const Case& c) {
  std::vector<ArraySpec> all = attention_arrays(c);
  if (!c.lse) return all;
  const Dimensions& q = all.front().shape;
  all.push_back({array::lse, Access::output, wide(c), {q.begin(), q.end() - 1}});
  return all;
}

Status run(const Context& context, const Case& c, const Tensors& t, std::string_view variant,
           Plan* plan) {
  AttentionOptions options = attention_options(c, t);
  options.variant = variant;
  options.plan = plan;
  return attention(context, t[array::x], t[array::k], t[array::v], t[array::y], options);
}

Status describe(const Case& c, const Tensors& t, Problem& out) {
  AttentionArgs args;
  const Status status = check_attention(t[array::x], t[array::k], t[array::v], t[array::y],
                                        attention_options(c, t), args);
  if (!status.ok()) return status;
  out = onepass::describe(args);
  out.batch_invariant = c.batch_invariant;
  return {};
}

// Two products of matrices, over the live pairs.
double flops(const Case& c) {
  return 2 * live_pairs(c) * static_cast<double>(c.shape[3] + c.dim_v);
}

constexpr std::string_view kQuick[] = {
    "1x2x65x64 f32 lse",
    "2x4x129x64 bf16 kv_heads=2 causal lse",
    "1x2x33x96 f16 keys=70 window=9,3 softcap=20",
    "3x8x1x128 bf16 kv_heads=2 keys=300 page=16 lengths sinks lse",
    "3x2x40x40 f32 offsets alibi bshd lse",
    "2x2x17x64 f32 keys=50 mask=additive+boolean",
};

}  // namespace

const Driver attention_driver = {.check = nullptr,
                                 .arrays = arrays,
                                 .fill = fill_attention,
                                 .run = run,
                                 .describe = describe,
                                 .expect = expect_attention,
                                 .wrong_row = nullptr,
                                 .flops = flops,
                                 .quick = kQuick};

}  // namespace onepass::cli
