// Calls of the ops that choose from a row.

#include <cmath>

#include "cli/ops/call.hpp"

namespace onepass::cli {

// Outputs and options of the ops that choose from a row.
Status Call::make_chosen(Random& random) {
  const std::vector<std::int64_t> row_shape = case_.row_shape();
  std::vector<std::int64_t> chosen_shape = row_shape;
  chosen_shape.push_back(case_.k);
  Status status;
  const auto make = [&](bool wanted, GuardedArray& array, DType dtype, const auto& shape) {
    if (wanted && status.ok()) status = array.make(dtype, shape);
  };
  const bool samples = case_.op == Op::sample;
  make(true, out_, samples ? case_.index : case_.out, samples ? row_shape : chosen_shape);
  make(!samples, indices_, case_.index, chosen_shape);
  make(samples || case_.target, logprob_, case_.in == DType::f64 ? DType::f64 : DType::f32,
       row_shape);
  make(case_.target, rank_, DType::i64, row_shape);
  make(samples, valid_, DType::u8, row_shape);
  make(samples, seeds_, DType::i64, row_shape);
  make(case_.bias, bias_, DType::f32, std::vector{case_.cols()});
  if (!status.ok()) return status;
  for (std::int64_t r = 0; r < seeds_.size(); ++r)
    seeds_.set(r, std::floor(random.uniform() * 1e9));
  for (std::int64_t e = 0; e < bias_.size(); ++e)
    bias_.set(e, std::floor(random.uniform() * 8) / 4);
  return {};
}

Status Call::run_chosen(const Context& context, std::string_view variant, Plan* plan) {
  const PerRow scale = scale_.present() ? PerRow(view(scale_)) : PerRow(case_.scale);
  const PerRow temperature =
      temperature_.present() ? PerRow(view(temperature_)) : PerRow(case_.temperature);
  const Tensor in = view(in_);
  switch (case_.op) {
    case Op::topk:
      return softmax_topk(context, in, view(out_), view(indices_),
                          {.values = case_.values,
                           .sorted = !case_.unsorted,
                           .scale = scale,
                           .temperature = temperature,
                           .softcap = case_.softcap,
                           .mask = mask(),
                           .lse = view(lse_),
                           .target = view(target_),
                           .target_logprob = view(logprob_),
                           .target_rank = view(rank_),
                           .variant = variant,
                           .plan = plan});
    case Op::sample:
      return sample(context, in, view(out_),
                    {.temperature = temperature,
                     .top_k = case_.top_k,
                     .top_p = case_.top_p,
                     .min_p = case_.min_p,
                     .seed = view(seeds_),
                     .scale = scale,
                     .softcap = case_.softcap,
                     .mask = mask(),
                     .logprob = view(logprob_),
                     .valid = view(valid_),
                     .variant = variant,
                     .plan = plan});
    default:
      return gate(context, in, view(out_), view(indices_),
                  {.score = case_.score,
                   .bias = view(bias_),
                   .renormalize = case_.renormalize,
                   .scale = case_.scale,
                   .variant = variant,
                   .plan = plan});
  }
}

}  // namespace onepass::cli
