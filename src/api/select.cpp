// The public select ops: check, decide, run.

#include <utility>

#include "api/execute.hpp"
#include "dispatch/choose.hpp"
#include "dispatch/variant.hpp"
#include "onepass/select.hpp"
#include "ops/select/check.hpp"

namespace onepass {
namespace {

// The public name of the op's first output.
std::string_view output_name(Op op) {
  return op == Op::sample ? "token" : op == Op::gate ? "weights" : "values";
}

template <class Options>
Status run(const Context& context, RowArgs& args, const Select& select, const Options& options) {
  const bool on_gpu = context.device() == Device::cuda;
  Machine machine{};
  ONEPASS_TRY(machine_of(context, machine));
  if (!on_gpu) ONEPASS_TRY(check_select_values(args, select));
  const Problem problem = describe(args, select, on_gpu);
  if (on_gpu && args.op == Op::sample && problem.in == DType::f64) {
    return {Code::unsupported, "x: f64: on a GPU sample takes f32, f16 and bf16"};
  }
  args.select = &select;
  const Logits& z = args.logits;
  return execute(context, problem, machine, {options.variant, options.plan}, problem.rows == 0,
                 {{args.op == Op::gate ? "scores" : "x", z.x.data},
                  {"scale", z.scale_rows.data},
                  {"temperature", z.temperature_rows.data},
                  {"mask.additive", z.additive.data},
                  {"mask.boolean", z.boolean.data},
                  {"mask.lengths", z.lengths.data},
                  {output_name(args.op), args.out.data},
                  {args.op == Op::gate ? "experts" : "indices", select.indices.data},
                  {"lse", args.lse.data},
                  {"target", args.target.data},
                  {"target_logprob", select.target_logprob.data},
                  {"target_rank", select.target_rank.data},
                  {"temperature", select.temperature.rows.data},
                  {"top_k", select.top_k.rows.data},
                  {"top_p", select.top_p.rows.data},
                  {"min_p", select.min_p.rows.data},
                  {"seed", select.seed.rows.data},
                  {"offset", select.offset.rows.data},
                  {"logprob", select.logprob.data},
                  {"valid", select.valid.data},
                  {"bias", select.bias.data}},
                 args);
}

}  // namespace

Status softmax_topk(const Context& context, ConstTensor x, Tensor values, Tensor indices,
                    const TopkOptions& options) {
  RowArgs args;
  Select select;
  ONEPASS_TRY(check_topk(x, values, indices, options, args, select));
  return run(context, args, select, options);
}

Status topk(const Context& context, ConstTensor x, Tensor values, Tensor indices,
            TopkOptions options) {
  options.values = TopkValues::logit;
  return softmax_topk(context, x, values, indices, options);
}

Status sample(const Context& context, ConstTensor x, Tensor token, const SampleOptions& options) {
  RowArgs args;
  Select select;
  ONEPASS_TRY(check_sample(x, token, options, args, select));
  return run(context, args, select, options);
}

Status gate(const Context& context, ConstTensor scores, Tensor weights, Tensor experts,
            const GateOptions& options) {
  RowArgs args;
  Select select;
  ONEPASS_TRY(check_gate(scores, weights, experts, options, args, select));
  return run(context, args, select, options);
}

}  // namespace onepass
