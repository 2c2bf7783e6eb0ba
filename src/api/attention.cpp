// The public attention ops: check, decide, run.

#include <utility>

#include "api/execute.hpp"
#include "dispatch/choose.hpp"
#include "dispatch/variant.hpp"
#include "onepass/attention.hpp"
#include "ops/attention/check.hpp"
#include "ops/attention/check_backward.hpp"
#include "ops/attention/merge.hpp"
#include "ops/attention/merge_backward.hpp"

namespace onepass {
namespace {

// Of operands as wide as o, and of those with one value per query.
Explanation explain_merge(const RowSpace& space, std::initializer_list<const Operand*> values,
                          std::initializer_list<const Operand*> sums) {
  const auto rows = static_cast<double>(space.rows);
  const auto cols = static_cast<double>(space.cols);
  double row_bytes = 0;
  for (const Operand* each : values) row_bytes += cols * static_cast<double>(size_of(each->dtype));
  for (const Operand* each : sums) {
    if (*each) row_bytes += static_cast<double>(size_of(each->dtype));
  }
  return {.plan = {.variant = "merge"},
          .reasons = {"there is one way to merge"},
          .least_bytes = rows * row_bytes,
          .planned_bytes = rows * row_bytes};
}

}  // namespace

Status attention(const Context& context, ConstTensor q, ConstTensor k, ConstTensor v, Tensor o,
                 const AttentionOptions& options) {
  AttentionArgs args;
  ONEPASS_TRY(check_attention(q, k, v, o, options, args));
  Machine machine{};
  ONEPASS_TRY(machine_of(context, machine));
  if (context.device() == Device::cpu) ONEPASS_TRY(check_attention_values(args));
  Problem problem = describe(args);
  problem.batch_invariant = options.batch_invariant;
  return execute(context, problem, machine, {options.variant, options.plan}, problem.rows == 0,
                 {{"q", args.q.data},
                  {"k", args.k.data},
                  {"v", args.v.data},
                  {"o", args.o.data},
                  {"lse", args.lse.data},
                  {"mask.additive", args.additive.data},
                  {"mask.boolean", args.boolean.data},
                  {"mask.lengths", args.lengths.data},
                  {"alibi", args.alibi.data},
                  {"sinks", args.sinks.data},
                  {"q_offsets", args.q_offsets.data},
                  {"kv_offsets", args.kv_offsets.data},
                  {"pages", args.pages.table}},
                 args);
}

Status attention_backward(const Context& context, ConstTensor q, ConstTensor k, ConstTensor v,
                          ConstTensor o, ConstTensor lse, ConstTensor d_o, Tensor d_q, Tensor d_k,
                          Tensor d_v, const AttentionBackwardOptions& options) {
  AttentionBackwardArgs args;
  const AttentionBackwardTensors tensors{q, k, v, o, lse, d_o, d_q, d_k, d_v};
  ONEPASS_TRY(check_attention_backward(tensors, options, args));
  Machine machine{};
  ONEPASS_TRY(machine_of(context, machine));
  if (context.device() == Device::cpu) ONEPASS_TRY(check_attention_values(args));
  Problem problem = describe(args, options.deterministic);
  problem.batch_invariant = options.batch_invariant;
  // Without a query the gradients of the keys are still to be written.
  return execute(context, problem, machine, {options.variant, options.plan}, false,
                 {{"q", args.q.data},
                  {"k", args.k.data},
                  {"v", args.v.data},
                  {"o", args.o.data},
                  {"lse", args.lse.data},
                  {"d_o", args.d_o.data},
                  {"d_q", args.d_q.data},
                  {"d_k", args.d_k.data},
                  {"d_v", args.d_v.data},
                  {"d_lse", args.d_lse.data},
                  {"d_sinks", args.d_sinks.data},
                  {"d_additive", args.d_additive.data},
                  {"mask.additive", args.additive.data},
                  {"mask.boolean", args.boolean.data},
                  {"mask.lengths", args.lengths.data},
                  {"alibi", args.alibi.data},
                  {"sinks", args.sinks.data},
                  {"q_offsets", args.q_offsets.data},
                  {"kv_offsets", args.kv_offsets.data}},
                 args);
}

Status merge_attention(const Context& context, ConstTensor a, ConstTensor lse_a, ConstTensor b,
                       ConstTensor lse_b, Tensor o, Tensor lse) {
  MergeArgs args;
  ONEPASS_TRY(check_merge(a, lse_a, b, lse_b, o, lse, args));
  Machine machine{};
  ONEPASS_TRY(machine_of(context, machine));
  if (context.explanation() != nullptr) {
    *context.explanation() = explain_merge(args.space, {&args.a, &args.b, &args.o},
                                           {&args.lse_a, &args.lse_b, &args.lse});
    return {};
  }
  if (context.device() == Device::cuda) {
    args.queue = queue_of(context, machine);
    ONEPASS_TRY(check_reachable(context, {{"a", args.a.data},
                                          {"lse_a", args.lse_a.data},
                                          {"b", args.b.data},
                                          {"lse_b", args.lse_b.data},
                                          {"o", args.o.data},
                                          {"lse", args.lse.data}}));
    return merge_on_gpu(args);
  }
  merge_on_cpu(args, machine.threads);
  return {};
}

Status merge_attention_backward(const Context& context, ConstTensor a, ConstTensor lse_a,
                                ConstTensor b, ConstTensor lse_b, ConstTensor d_o,
                                ConstTensor d_lse, Tensor d_a, Tensor d_lse_a, Tensor d_b,
                                Tensor d_lse_b) {
  MergeBackwardArgs args;
  ONEPASS_TRY(
      check_merge_backward({a, lse_a, b, lse_b, d_o, d_lse, d_a, d_lse_a, d_b, d_lse_b}, args));
  Machine machine{};
  ONEPASS_TRY(machine_of(context, machine));
  if (context.explanation() != nullptr) {
    *context.explanation() =
        explain_merge(args.space, {&args.a, &args.b, &args.d_o, &args.d_a, &args.d_b},
                      {&args.lse_a, &args.lse_b, &args.d_lse, &args.d_lse_a, &args.d_lse_b});
    return {};
  }
  if (context.device() == Device::cuda) {
    args.queue = queue_of(context, machine);
    ONEPASS_TRY(check_reachable(context, {{"a", args.a.data},
                                          {"lse_a", args.lse_a.data},
                                          {"b", args.b.data},
                                          {"lse_b", args.lse_b.data},
                                          {"d_o", args.d_o.data},
                                          {"d_lse", args.d_lse.data},
                                          {"d_a", args.d_a.data},
                                          {"d_lse_a", args.d_lse_a.data},
                                          {"d_b", args.d_b.data},
                                          {"d_lse_b", args.d_lse_b.data}}));
    return merge_backward_on_gpu(args);
  }
  merge_backward_on_cpu(args, machine.threads);
  return {};
}

}  // namespace onepass
