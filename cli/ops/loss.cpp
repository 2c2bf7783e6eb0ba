// The driver of cross-entropy, its gradient, and both in one read.

#include "ops/loss/check.hpp"

#include <cmath>

#include "cli/ops/driver.hpp"
#include "cli/ops/expect.hpp"
#include "cli/ops/rows.hpp"
#include "onepass/ops.hpp"
#include "rows/describe.hpp"

namespace onepass::cli {
namespace {

Status check(const Case& c) {
  if (!c.probabilities || !c.ignore) return {};
  return {Code::invalid_argument, "ignore: no row of probabilities is ignored"};
}

std::vector<ArraySpec> arrays(const Case& c) {
  const bool backward = c.op == Op::cross_entropy_backward;
  const std::vector<std::int64_t> row_shape = c.row_shape();
  const std::vector<std::int64_t> loss_shape =
      c.reduction == Reduction::none ? row_shape : std::vector<std::int64_t>{};
  std::vector<ArraySpec> all;
  all.push_back(
      {array::x, c.in_place ? Access::in_place : Access::input, c.in, c.shape, in_layout(c)});
  if (!c.in_place && backward) {
    all.push_back({array::y, Access::output, c.out, c.shape, out_layout(c)});
  } else if (!c.in_place) {
    all.push_back({array::y, Access::output, c.out, loss_shape});
  }
  if (c.lse) {
    const Access access = writes_lse(c) ? Access::output : Access::input;
    all.push_back({array::lse, access, wide(c), row_shape});
  }
  if (c.probabilities) {
    all.push_back({array::target, Access::input, c.in, c.shape, in_layout(c)});
  } else {
    all.push_back({array::target, Access::input, DType::i64, row_shape});
  }
  if (c.weights) all.push_back({array::weight, Access::input, wide(c), {c.cols()}});
  if (c.loss) all.push_back({array::loss, Access::output, wide(c), loss_shape});
  if (backward && !c.loss) all.push_back({array::dloss, Access::input, wide(c), loss_shape});
  add_logits(c, all);
  return all;
}

// Where a class is hidden it has no probability, or the loss is infinite: in one row of five
// that is seen to.
void fill_probabilities(Call& call, Random& random) {
  const std::int64_t cols = call.spec().cols();
  for (std::int64_t r = 0; r < call.spec().rows(); ++r) {
    const oracle::Transform t = call.transform(r);
    for (std::int64_t c = 0; c < cols; ++c) {
      const auto at = static_cast<std::size_t>(c);
      const bool hidden =
          (!t.keep.empty() && !t.keep[at]) || (!t.additive.empty() && std::isinf(t.additive[at]));
      const double q = random.uniform() * 2 / static_cast<double>(cols);
      call[array::target].set(call.index(r, c), (hidden && r % 5 != 4) || c % 3 == 1 ? 0.0 : q);
    }
  }
}

void fill(Call& call, Random& random) {
  const Case& spec = call.spec();
  fill_logits(call, random);
  fill_x(call, array::x, random);
  set_each(call[array::weight],
           [&](std::int64_t c) { return c % 7 == 3 ? 0.0 : 0.25 + random.uniform(); });
  spec.probabilities ? fill_probabilities(call, random) : fill_targets(call, random);
  set_each(call[array::dloss], [&](std::int64_t) { return 0.5 + random.uniform(); });
  if (!spec.lse || writes_lse(spec)) return;
  for (std::int64_t r = 0; r < spec.rows(); ++r) {
    const oracle::Row z = oracle::logits(row_of(call, array::x, r), call.transform(r));
    call[array::lse].set(r, oracle::logsumexp(z));
  }
}

CrossEntropyOptions options_of(const Case& c, const Tensors& t, std::string_view variant,
                               Plan* plan) {
  auto options = row_options<CrossEntropyOptions>(c, t, variant, plan);
  options.ignore_index = kIgnore;
  options.weight = t[array::weight];
  options.label_smoothing = c.smoothing;
  options.z_loss = c.z_loss;
  options.reduction = c.reduction;
  if (c.op == Op::cross_entropy || c.loss) options.lse = t[array::lse];
  return options;
}

Status run(const Context& context, const Case& c, const Tensors& t, std::string_view variant,
           Plan* plan) {
  const CrossEntropyOptions options = options_of(c, t, variant, plan);
  const Tensor& x = t[array::x];
  const Tensor& target = t[array::target];
  const Tensor& out = output_of(t);
  if (c.op == Op::cross_entropy) return cross_entropy(context, x, target, out, options);
  if (c.loss) {
    return cross_entropy_with_gradient(context, x, target, t[array::loss], out, options);
  }
  return cross_entropy_backward(context, x, target, t[array::lse], t[array::dloss], out, options);
}

Status describe(const Case& c, const Tensors& t, Problem& out) {
  CrossEntropyTensors tensors{.x = t[array::x], .target = t[array::target], .with_loss = c.loss};
  if (c.op == Op::cross_entropy) {
    tensors.loss = output_of(t);
  } else {
    tensors.dx = output_of(t);
    tensors.loss = t[array::loss];
    tensors.dloss = t[array::dloss];
    if (!c.loss) tensors.lse = t[array::lse];
  }
  RowArgs args;
  const Status status = check_cross_entropy(c.op, tensors, options_of(c, t, {}, nullptr), args);
  if (!status.ok()) return status;
  if (c.device == Device::cuda) args.reduction = reduced_on_gpu(c.op, c.loss, c.reduction);
  out = onepass::describe(args);
  out.batch_invariant = c.batch_invariant;
  return {};
}

}  // namespace

const Driver loss_driver = {.check = check,
                            .arrays = arrays,
                            .fill = fill,
                            .run = run,
                            .describe = describe,
                            .expect = expect_loss,
                            .wrong_row = nullptr,
                            .flops = nullptr,
                            .quick = kQuickRows};

}  // namespace onepass::cli
