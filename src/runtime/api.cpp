// The public ops: check, plan, run.

#include <vector>

#include "dispatch/choose.hpp"
#include "onepass/ops.hpp"
#include "ops/row/check.hpp"
#include "ops/variant.hpp"
#include "runtime/host.hpp"

namespace onepass {
namespace {

Status run(const Context& context, const RowArgs& args, std::string_view variant, Plan* plan_out) {
  if (context.threads() < 0) {
    return {Code::invalid_argument,
            "context: threads " + std::to_string(context.threads()) + " is negative"};
  }
  const Problem problem = describe(args);
  const Machine machine = host(context.threads());
  Plan plan;
  if (variant.empty()) {
    plan = choose(problem, machine);
  } else if (Status status = plan_variant(variant, problem, machine, plan); !status.ok()) {
    return status;
  }
  if (plan_out != nullptr) *plan_out = plan;
  const bool writes_rows = traffic(args.op).writes > 0;
  if (problem.rows == 0 || (problem.cols == 0 && writes_rows && !args.lse)) return {};
  return find_variant(args.op, plan.variant)->run(args, plan);
}

Status forward(Op op, const Context& context, const ConstTensor& x, const Tensor& y,
               const SoftmaxOptions& options) {
  RowArgs args;
  if (Status status = check_softmax(op, x, y, options, args); !status.ok()) return status;
  return run(context, args, options.variant, options.plan);
}

Status backward(Op op, const Context& context, const ConstTensor& y, const ConstTensor& dy,
                const Tensor& dx, const BackwardOptions& options) {
  RowArgs args;
  if (Status status = check_backward(op, y, dy, dx, options, args); !status.ok()) return status;
  return run(context, args, options.variant, options.plan);
}

std::int64_t counted_rows(const RowArgs& args) {
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < args.space.rows; ++row) {
    const auto target =
        read<std::int64_t>(row_data(args.space, args.target, row), args.target.dtype, 0);
    count += target == args.ignore_index ? 0 : 1;
  }
  return count;
}

// Blocks of rows, each summed in row order: one buffer of fixed size, and the same bits whatever
// the number of threads.
Status reduced_loss(const Context& context, RowArgs& args, const CrossEntropyOptions& options) {
  constexpr std::int64_t block = 4096;
  std::vector<double> losses(static_cast<std::size_t>(std::min(block, args.space.rows)));
  args.row_losses = losses.data();
  double total = 0;
  std::int64_t first = 0;
  do {  // once even for no rows: the variant and the plan are still asked for
    args.first_row = first;
    args.end_row = std::min(first + block, args.space.rows);
    if (Status status = run(context, args, options.variant, options.plan); !status.ok()) {
      return status;
    }
    for (std::int64_t i = 0; i < args.end_row - first; ++i) {
      total += losses[static_cast<std::size_t>(i)];
    }
    first += block;
  } while (first < args.space.rows);
  const std::int64_t count = options.reduction == Reduction::mean ? counted_rows(args) : 1;
  write(args.out.data, args.out.dtype, 0, count == 0 ? 0.0 : total / static_cast<double>(count));
  return {};
}

}  // namespace

Status softmax(const Context& context, ConstTensor x, Tensor y, const SoftmaxOptions& options) {
  return forward(Op::softmax, context, x, y, options);
}

Status log_softmax(const Context& context, ConstTensor x, Tensor y, const SoftmaxOptions& options) {
  return forward(Op::log_softmax, context, x, y, options);
}

Status logsumexp(const Context& context, ConstTensor x, Tensor y, const SoftmaxOptions& options) {
  return forward(Op::logsumexp, context, x, y, options);
}

Status softmax_backward(const Context& context, ConstTensor y, ConstTensor dy, Tensor dx,
                        const BackwardOptions& options) {
  return backward(Op::softmax_backward, context, y, dy, dx, options);
}

Status log_softmax_backward(const Context& context, ConstTensor y, ConstTensor dy, Tensor dx,
                            const BackwardOptions& options) {
  return backward(Op::log_softmax_backward, context, y, dy, dx, options);
}

Status cross_entropy(const Context& context, ConstTensor x, ConstTensor target, Tensor loss,
                     const CrossEntropyOptions& options) {
  RowArgs args;
  const CrossEntropyTensors tensors{.x = x, .target = target, .loss = loss};
  if (Status status = check_cross_entropy(Op::cross_entropy, tensors, options, args);
      !status.ok()) {
    return status;
  }
  if (options.reduction != Reduction::none) return reduced_loss(context, args, options);
  return run(context, args, options.variant, options.plan);
}

Status cross_entropy_backward(const Context& context, ConstTensor x, ConstTensor target,
                              ConstTensor lse, ConstTensor dloss, Tensor dx,
                              const CrossEntropyOptions& options) {
  RowArgs args;
  const CrossEntropyTensors tensors{.x = x, .target = target, .lse = lse, .dloss = dloss, .dx = dx};
  if (Status status = check_cross_entropy(Op::cross_entropy_backward, tensors, options, args);
      !status.ok()) {
    return status;
  }
  if (options.reduction == Reduction::mean) {
    const std::int64_t count = counted_rows(args);
    args.dloss_scale = count == 0 ? 0.0 : 1.0 / static_cast<double>(count);
  }
  return run(context, args, options.variant, options.plan);
}

}  // namespace onepass
