// The driver of attention's backward.

#include <fmt/format.h>

#include <algorithm>

#include "cli/ops/attention.hpp"
#include "cli/ops/driver.hpp"
#include "cli/ops/expect.hpp"
#include "cli/ops/rows.hpp"
#include "onepass/attention.hpp"
#include "ops/attention/check_backward.hpp"

namespace onepass::cli {
namespace {

Status check(const Case& c) {
  const auto refuse = [](std::string_view option, std::string_view why) {
    return Status{Code::invalid_argument, fmt::format("{}: {}", option, why)};
  };
  if (c.page > 0) return refuse("page", "keys in pages have no gradient");
  if (c.split > 0) return refuse("split", "attention_backward does not cut keys");
  if (c.batch_invariant) return refuse("batch_invariant", "attention_backward always is");
  if (c.d_sinks && !c.sinks) return refuse("d_sinks", "there are no sinks");
  if (c.d_additive && !c.additive) return refuse("d_additive", "there is no additive mask");
  return {};
}

// y is d_q.
std::vector<ArraySpec> arrays(const Case& c) {
  std::vector<ArraySpec> all = attention_arrays(c);
  const auto find = [&all](array::Id id) { return *std::ranges::find(all, id, &ArraySpec::id); };
  const ArraySpec q = find(array::x), k = find(array::k), v = find(array::v);
  const ArraySpec y = find(array::y);
  std::erase_if(all, [](const ArraySpec& spec) { return spec.id == array::y; });
  const auto input = [&](array::Id id) {
    all.push_back({id, Access::input, c.in, y.shape, q.layout, c.bshd});
  };
  const auto gradient = [&](array::Id id, const ArraySpec& of) {
    all.push_back(
        {id, c.accumulate ? Access::updated : Access::output, c.out, of.shape, y.layout, c.bshd});
  };
  input(array::o);
  input(array::d_o);
  gradient(array::y, q);
  gradient(array::d_k, k);
  gradient(array::d_v, v);
  const std::vector<std::int64_t> rows(q.shape.begin(), q.shape.end() - 1);
  all.push_back({array::lse, Access::input, wide(c), rows});
  if (c.d_lse) all.push_back({array::d_lse, Access::input, wide(c), rows});
  if (c.d_sinks) all.push_back({array::d_sinks, Access::output, wide(c), {c.shape[1]}});
  if (c.d_additive) {
    all.push_back({array::d_additive, Access::output, c.out, find(array::additive).shape});
  }
  return all;
}

}  // namespace

// o and lse are the library's own: whatever they are, the gradients follow from them. The textbook
// gives the same bits with all instruction sets, as the cases that share an expectation need.
void give_forward(Call& call) {
  const Case& c = call.spec();
  constexpr double kMuch = 1 << 30;
  const bool large = live_pairs(c) * static_cast<double>(c.shape[3]) > kMuch;
  Tensors t;
  for (const array::Id id : kAllArrays) {
    if (call[id].present()) t[id] = call[id].tensor();
  }
  AttentionOptions options = attention_options(c, t);
  options.variant = large ? "cpu_flash" : "cpu_naive";
  const Status status =
      attention(Context::cpu(), t[array::x], t[array::k], t[array::v], t[array::o], options);
  if (!status.ok()) throw std::runtime_error(status.message());
}

namespace {

void fill(Call& call, Random& random) {
  fill_attention(call, random);
  const bool dense = call.spec().pad == 0;
  fill_normal(call[array::d_o], 1, dense, random);
  set_each(call[array::d_lse], [&](std::int64_t) { return random.normal(); });
  if (call.spec().accumulate) {
    for (const array::Id id : {array::y, array::d_k, array::d_v}) {
      fill_normal(call[id], 1, dense, random);
    }
  }
  give_forward(call);
}

AttentionBackwardOptions options_of(const Case& c, const Tensors& t) {
  AttentionBackwardOptions options{.softcap = c.softcap,
                                   .mask = mask_of(c, t),
                                   .alibi = t[array::alibi],
                                   .sinks = t[array::sinks],
                                   .q_offsets = t[array::q_offsets],
                                   .kv_offsets = t[array::kv_offsets],
                                   .d_lse = t[array::d_lse],
                                   .d_sinks = t[array::d_sinks],
                                   .d_additive = t[array::d_additive],
                                   .accumulate = c.accumulate};
  if (c.scale != usual_scale(c)) options.scale = c.scale;
  return options;
}

Status run(const Context& context, const Case& c, const Tensors& t, std::string_view variant,
           Plan* plan) {
  AttentionBackwardOptions options = options_of(c, t);
  options.variant = variant;
  options.plan = plan;
  return attention_backward(context, t[array::x], t[array::k], t[array::v], t[array::o],
                            t[array::lse], t[array::d_o], t[array::y], t[array::d_k], t[array::d_v],
                            options);
}

Status describe(const Case& c, const Tensors& t, Problem& out) {
  AttentionBackwardArgs args;
  const Status status =
      check_attention_backward({t[array::x], t[array::k], t[array::v], t[array::o], t[array::lse],
                                t[array::d_o], t[array::y], t[array::d_k], t[array::d_v]},
                               options_of(c, t), args);
  if (!status.ok()) return status;
  out = onepass::describe(args, true);
  return {};
}

// Five products of matrices, over the live pairs.
double flops(const Case& c) {
  return 2 * live_pairs(c) * static_cast<double>(3 * c.shape[3] + 2 * c.dim_v);
}

constexpr std::string_view kQuick[] = {
    "1x2x65x64 f32",
    "2x4x129x64 bf16 kv_heads=2 causal d_lse",
    "1x2x33x96 f16:f32 keys=70 window=9,3 softcap=20 accumulate",
    "3x2x40x40 f32 offsets alibi sinks d_sinks bshd",
    "2x2x17x64 f32 keys=50 mask=additive+boolean d_additive",
    "1x2x20x24 f64 keys=33 dim_v=40",
};

}  // namespace

const Driver attention_backward_driver = {.check = check,
                                          .arrays = arrays,
                                          .fill = fill,
                                          .run = run,
                                          .describe = describe,
                                          .expect = expect_attention_backward,
                                          .wrong_row = nullptr,
                                          .flops = flops,
                                          .quick = kQuick};

}  // namespace onepass::cli
