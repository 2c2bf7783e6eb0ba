// The public softmax and cross-entropy ops: check, decide, run.

#include <vector>

#include "api/execute.hpp"
#include "dispatch/choose.hpp"
#include "dispatch/variant.hpp"
#include "onepass/ops.hpp"
#include "ops/loss/check.hpp"
#include "ops/softmax/check.hpp"
#include "rows/describe.hpp"
#include "rows/gpu/policy.hpp"

namespace onepass {
namespace {

// Values in GPU memory cannot be read without waiting for the GPU, so its kernels handle invalid
// ones.
Status check_values(const Context& context, const RowArgs& args) {
  if (context.device() != Device::cpu) return {};
  ONEPASS_TRY(check_row_values(args));
  return check_targets(args);
}

// The public name of the op's output.
std::string_view output_name(Op op) {
  switch (op) {
    case Op::cross_entropy: return "loss";
    case Op::softmax_backward:
    case Op::log_softmax_backward:
    case Op::cross_entropy_backward: return "dx";
    default: return "y";
  }
}

bool writes_loss(const RowArgs& args) { return args.op == Op::cross_entropy || args.loss; }

// Places what reduced losses need at the end of the workspace: the loss of each row, and for a
// gradient the factor of the mean.
void place_losses(RowArgs& args, const Problem& problem, std::size_t workspace_bytes) {
  auto* losses = reinterpret_cast<double*>(args.workspace + workspace_bytes -
                                           gpu_rows::loss_scratch_bytes(problem));
  if (writes_loss(args)) args.row_losses = losses;
  if (args.reduction == Reduction::mean && args.op == Op::cross_entropy_backward) {
    args.mean_scale = losses + (writes_loss(args) ? problem.rows : 0);
  }
}

template <class Options>
Status run(const Context& context, RowArgs& args, const Options& options) {
  Machine machine{};
  ONEPASS_TRY(machine_of(context, machine));
  Problem problem = describe(args);
  problem.batch_invariant = options.batch_invariant;
  if (context.device() == Device::cuda && !gpu_rows::refuse_no_gpu(problem, machine).empty()) {
    return {Code::unsupported, "dy: " + std::string(onepass::name(args.dy.dtype)) +
                                   " beside y of " + std::string(onepass::name(args.y.dtype)) +
                                   ": on a GPU both are f64, or neither"};
  }
  const bool writes_rows = traffic(args.op).writes > 0;
  const bool sums_losses = problem.reduced && writes_loss(args);  // to 0, where there are no rows
  const bool no_rows = problem.rows == 0 && !sums_losses;
  const bool no_columns = problem.cols == 0 && writes_rows && !args.lse && !args.loss;
  const Logits& z = args.logits;
  return execute(context, problem, machine, {options.variant, options.plan}, no_rows || no_columns,
                 {{"x", z.x.data},
                  {"scale", z.scale_rows.data},
                  {"temperature", z.temperature_rows.data},
                  {"mask.additive", z.additive.data},
                  {"mask.boolean", z.boolean.data},
                  {"mask.lengths", z.lengths.data},
                  {"y", args.y.data},
                  {"dy", args.dy.data},
                  {output_name(args.op), args.out.data},
                  {"lse", args.lse.data},
                  {"target", args.target.data},
                  {"weight", args.weight.data},
                  {"dloss", args.dloss.data},
                  {"loss", args.loss.data}},
                 args, [&](RowArgs& placed, const Decision& decision) {
                   if (problem.reduced) place_losses(placed, problem, decision.scratch_bytes);
                 });
}

Status forward(Op op, const Context& context, const ConstTensor& x, const Tensor& y,
               const SoftmaxOptions& options) {
  RowArgs args;
  ONEPASS_TRY(check_softmax(op, x, y, options, args));
  ONEPASS_TRY(check_values(context, args));
  return run(context, args, options);
}

Status backward(Op op, const Context& context, const ConstTensor& y, const ConstTensor& dy,
                const Tensor& dx, const BackwardOptions& options) {
  RowArgs args;
  ONEPASS_TRY(check_backward(op, y, dy, dx, options, args));
  ONEPASS_TRY(check_values(context, args));
  return run(context, args, options);
}

// The divisor of the mean: the sum of the targets' weights over the rows that are not ignored; with
// probabilities, the number of rows.
double counted_rows(const RowArgs& args) {
  if (args.has_probabilities) return static_cast<double>(args.space.rows);
  double count = 0;
  for (std::int64_t row = 0; row < args.space.rows; ++row) {
    const auto target = read_at<std::int64_t>(args.space, args.target, row);
    if (target != args.ignore_index) count += weight_of(args.weight, target);
  }
  return count;
}

// The factor of the mean's gradient.
double mean_scale(const RowArgs& args) {
  const double count = counted_rows(args);
  return count == 0 ? 0.0 : 1.0 / count;
}

// Runs blocks of rows and sums each in row order: the buffer has a fixed size, and the bits do not
// depend on the number of threads.
Status reduced_loss(const Context& context, RowArgs& args, const CrossEntropyOptions& options) {
  constexpr std::int64_t block = 4096;
  std::vector<double> losses(static_cast<std::size_t>(std::min(block, args.space.rows)));
  args.row_losses = losses.data();
  double total = 0;
  std::int64_t first = 0;
  do {  // at least once: a call without rows still checks its variant and returns a plan
    args.first_row = first;
    args.end_row = std::min(first + block, args.space.rows);
    if (Status status = run(context, args, options);
        !status.ok() || context.explanation() != nullptr) {
      return status;
    }
    for (std::int64_t i = 0; i < args.end_row - first; ++i) {
      total += losses[static_cast<std::size_t>(i)];
    }
    first += block;
  } while (first < args.space.rows);
  const double count = options.reduction == Reduction::mean ? counted_rows(args) : 1;
  const Operand& loss = args.loss ? args.loss : args.out;
  write(loss.data, loss.dtype, 0, count == 0 ? 0.0 : total / count);
  return {};
}

Status cross_entropy_op(Op op, const Context& context, const CrossEntropyTensors& tensors,
                        const CrossEntropyOptions& options) {
  RowArgs args;
  ONEPASS_TRY(check_cross_entropy(op, tensors, options, args));
  ONEPASS_TRY(check_values(context, args));
  if (context.device() == Device::cuda) {
    args.reduction = reduced_on_gpu(op, tensors.with_loss, options.reduction);
    return run(context, args, options);
  }
  if (op == Op::cross_entropy_backward && options.reduction == Reduction::mean) {
    args.dloss_scale = mean_scale(args);
  }
  const bool reduces = options.reduction != Reduction::none && writes_loss(args);
  return reduces ? reduced_loss(context, args, options) : run(context, args, options);
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
  return cross_entropy_op(Op::cross_entropy, context, {.x = x, .target = target, .loss = loss},
                          options);
}

Status cross_entropy_backward(const Context& context, ConstTensor x, ConstTensor target,
                              ConstTensor lse, ConstTensor dloss, Tensor dx,
                              const CrossEntropyOptions& options) {
  return cross_entropy_op(Op::cross_entropy_backward, context,
                          {.x = x, .target = target, .lse = lse, .dloss = dloss, .dx = dx},
                          options);
}

Status cross_entropy_with_gradient(const Context& context, ConstTensor x, ConstTensor target,
                                   Tensor loss, Tensor dx, const CrossEntropyOptions& options) {
  return cross_entropy_op(Op::cross_entropy_backward, context,
                          {.x = x, .target = target, .loss = loss, .dx = dx, .with_loss = true},
                          options);
}

}  // namespace onepass
