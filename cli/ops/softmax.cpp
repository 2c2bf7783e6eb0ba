// The driver of softmax, log-softmax, logsumexp and the gradients of the first two.

#include "ops/softmax/check.hpp"

#include "cli/ops/driver.hpp"
#include "cli/ops/expect.hpp"
#include "cli/ops/rows.hpp"
#include "onepass/ops.hpp"
#include "rows/describe.hpp"

namespace onepass::cli {
namespace {

bool is_backward(Op op) { return op == Op::softmax_backward || op == Op::log_softmax_backward; }

std::vector<ArraySpec> arrays(const Case& c) {
  const bool backward = is_backward(c.op);
  const Access replaced = c.in_place ? Access::in_place : Access::input;
  std::vector<ArraySpec> all;
  all.push_back({array::x, backward ? Access::input : replaced, c.in, c.shape, in_layout(c)});
  if (backward) {
    all.push_back({array::dy, replaced, c.in, c.shape, in_layout(c)});
    all.push_back({array::forward_x, Access::input, c.in, c.shape, in_layout(c)});
  }
  if (!c.in_place && c.op == Op::logsumexp) {
    all.push_back({array::y, Access::output, c.out, c.row_shape()});
  } else if (!c.in_place) {
    all.push_back({array::y, Access::output, c.out, c.shape, out_layout(c)});
  }
  if (c.lse) all.push_back({array::lse, Access::output, wide(c), c.row_shape()});
  add_logits(c, all);
  return all;
}

void fill(Call& call, Random& random) {
  const Op op = call.spec().op;
  fill_logits(call, random);
  if (!is_backward(op)) return fill_x(call, array::x, random);
  fill_x(call, array::forward_x, random);
  set_each(call[array::dy], [&](std::int64_t) { return random.normal(); });
  for (std::int64_t r = 0; r < call.spec().rows(); ++r) {
    const oracle::Row z = oracle::logits(row_of(call, array::forward_x, r), call.transform(r));
    const oracle::Row y = op == Op::softmax_backward ? oracle::softmax(z) : oracle::log_softmax(z);
    for (std::size_t c = 0; c < y.size(); ++c) {
      call[array::x].set(call.index(r, static_cast<std::int64_t>(c)), y[c]);
    }
  }
}

SoftmaxOptions forward_options(const Case& c, const Tensors& t, std::string_view variant,
                               Plan* plan) {
  auto options = row_options<SoftmaxOptions>(c, t, variant, plan);
  options.lse = t[array::lse];
  return options;
}

BackwardOptions backward_options(const Case& c, const Tensors& t, std::string_view variant,
                                 Plan* plan) {
  auto options = row_options<BackwardOptions>(c, t, variant, plan);
  if (c.softcap > 0) options.x = t[array::forward_x];
  return options;
}

Status run(const Context& context, const Case& c, const Tensors& t, std::string_view variant,
           Plan* plan) {
  const Tensor& x = t[array::x];
  const Tensor& out = output_of(t);
  if (is_backward(c.op)) {
    const auto backward = c.op == Op::softmax_backward ? softmax_backward : log_softmax_backward;
    return backward(context, x, t[array::dy], out, backward_options(c, t, variant, plan));
  }
  const auto forward = c.op == Op::softmax       ? softmax
                       : c.op == Op::log_softmax ? log_softmax
                                                 : logsumexp;
  return forward(context, x, out, forward_options(c, t, variant, plan));
}

Status describe(const Case& c, const Tensors& t, Problem& out) {
  RowArgs args;
  const Status status = is_backward(c.op)
                            ? check_backward(c.op, t[array::x], t[array::dy], output_of(t),
                                             backward_options(c, t, {}, nullptr), args)
                            : check_softmax(c.op, t[array::x], output_of(t),
                                            forward_options(c, t, {}, nullptr), args);
  if (!status.ok()) return status;
  out = onepass::describe(args);
  out.batch_invariant = c.batch_invariant;
  return {};
}

}  // namespace

const Driver softmax_driver = {.check = nullptr,
                               .arrays = arrays,
                               .fill = fill,
                               .run = run,
                               .describe = describe,
                               .expect = expect_softmax,
                               .wrong_row = nullptr,
                               .flops = nullptr,
                               .quick = kQuickRows};

}  // namespace onepass::cli
