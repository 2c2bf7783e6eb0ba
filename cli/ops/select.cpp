// The driver of top-k, sampling and the gate.

#include <cmath>

#include "cli/ops/check_select.hpp"
#include "cli/ops/driver.hpp"
#include "cli/ops/expect.hpp"
#include "cli/ops/rows.hpp"
#include "onepass/select.hpp"
#include "ops/select/check.hpp"

namespace onepass::cli {
namespace {

Status check(const Case& c) {
  const bool last = c.axis_index() + 1 == static_cast<std::int64_t>(c.shape.size());
  if (last && !c.in_place) return {};
  return {Code::invalid_argument,
          std::string(name(c.op)) + ": the row is the last dimension, and is not written"};
}

std::vector<ArraySpec> arrays(const Case& c) {
  const bool samples = c.op == Op::sample;
  const std::vector<std::int64_t> row_shape = c.row_shape();
  std::vector<std::int64_t> selected = row_shape;
  selected.push_back(c.k);
  std::vector<ArraySpec> all;
  const auto add = [&all](bool wanted, array::Id id, Access access, DType dtype,
                          const std::vector<std::int64_t>& shape) {
    if (wanted) all.push_back({id, access, dtype, shape});
  };
  all.push_back({array::x, Access::input, c.in, c.shape, in_layout(c)});
  add(true, array::y, Access::output, samples ? c.index : c.out, samples ? row_shape : selected);
  add(!samples, array::indices, Access::output, c.index, selected);
  add(c.lse, array::lse, Access::output, wide(c), row_shape);
  add(c.target, array::target, Access::input, DType::i64, row_shape);
  add(samples || c.target, array::logprob, Access::output, wide(c), row_shape);
  add(c.target, array::rank, Access::output, DType::i64, row_shape);
  add(samples, array::valid, Access::output, DType::u8, row_shape);
  add(samples, array::seed, Access::input, DType::i64, row_shape);
  add(c.bias, array::bias, Access::input, DType::f32, {c.cols()});
  add_logits(c, all);
  return all;
}

void fill(Call& call, Random& random) {
  fill_logits(call, random);
  set_each(call[array::seed], [&](std::int64_t) { return std::floor(random.uniform() * 1e9); });
  set_each(call[array::bias], [&](std::int64_t) { return std::floor(random.uniform() * 8) / 4; });
  fill_x(call, array::x, random);
  fill_targets(call, random);
}

TopkOptions topk_options(const Case& c, const Tensors& t) {
  return {.values = c.values,
          .sorted = !c.unsorted,
          .scale = scale_of(c, t),
          .temperature = temperature_of(c, t),
          .softcap = c.softcap,
          .mask = mask_of(c, t),
          .lse = t[array::lse],
          .target = t[array::target],
          .target_logprob = t[array::logprob],
          .target_rank = t[array::rank]};
}

// Seeds per row, or one for all of them.
SampleOptions sample_options(const Case& c, const Tensors& t) {
  const Tensor& seeds = t[array::seed];
  return {.temperature = temperature_of(c, t),
          .top_k = c.top_k,
          .top_p = c.top_p,
          .min_p = c.min_p,
          .seed = seeds.present() ? PerRowInteger(seeds) : static_cast<std::int64_t>(c.seed),
          .offset = static_cast<std::int64_t>(c.draw),
          .scale = scale_of(c, t),
          .softcap = c.softcap,
          .mask = mask_of(c, t),
          .logprob = t[array::logprob],
          .valid = t[array::valid]};
}

GateOptions gate_options(const Case& c, const Tensors& t) {
  return {.score = c.score, .bias = t[array::bias], .renormalize = c.renormalize, .scale = c.scale};
}

template <class Options>
Options with(Options options, std::string_view variant, Plan* plan) {
  options.variant = variant;
  options.plan = plan;
  return options;
}

Status run(const Context& context, const Case& c, const Tensors& t, std::string_view variant,
           Plan* plan) {
  const Tensor& x = t[array::x];
  const Tensor& out = t[array::y];
  switch (c.op) {
    case Op::topk:
      return softmax_topk(context, x, out, t[array::indices],
                          with(topk_options(c, t), variant, plan));
    case Op::sample: return sample(context, x, out, with(sample_options(c, t), variant, plan));
    default:
      return gate(context, x, out, t[array::indices], with(gate_options(c, t), variant, plan));
  }
}

Status describe(const Case& c, const Tensors& t, Problem& out) {
  const Tensor& x = t[array::x];
  const Tensor& y = t[array::y];
  RowArgs args;
  Select select;
  const Status status =
      c.op == Op::topk     ? check_topk(x, y, t[array::indices], topk_options(c, t), args, select)
      : c.op == Op::sample ? check_sample(x, y, sample_options(c, t), args, select)
                           : check_gate(x, y, t[array::indices], gate_options(c, t), args, select);
  if (status.ok()) out = onepass::describe(args, select, c.device == Device::cuda);
  return status;
}

}  // namespace

const Driver select_driver = {.check = check,
                              .arrays = arrays,
                              .fill = fill,
                              .run = run,
                              .describe = describe,
                              .expect = expect_select,
                              .wrong_row = check_select,
                              .flops = nullptr,
                              .quick = {}};

}  // namespace onepass::cli
