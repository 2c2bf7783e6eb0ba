// Ops that choose from a row: topk, softmax_topk, sample, gate.

#include "arguments.hpp"
#include "ops.hpp"

namespace onepass::python {
namespace {

// K becomes the extent of a new array, so it is looked at before the op can.
std::int64_t chosen(nb::handle k, const Tensor& x) {
  const std::int64_t count = integer("k", k);
  const std::int64_t cols = x.rank > 0 ? x.shape[x.rank - 1] : 0;
  if (x.rank == 0) raise_value("x", "has no dimension to choose from");
  if (count < 1 || count > cols) {
    raise_value("k", std::to_string(count) + " is not between 1 and " + std::to_string(cols) +
                         ", the last extent of x");
  }
  return count;
}

nb::object softmax_topk(nb::handle x, nb::handle k, nb::handle values, nb::handle sorted,
                        const nb::tuple& logits, nb::handle target, nb::handle out_dtype,
                        nb::handle indices_dtype, nb::handle return_lse, nb::handle out,
                        nb::handle variant) {
  Call call("x", x, out);
  TopkOptions options;
  options.values = static_cast<TopkValues>(
      choice("values", values, {"probability", "log_probability", "logit", "renormalized"}));
  options.sorted = flag("sorted", sorted);
  LogitArguments(logits).read(call, options);
  options.variant = text("variant", variant);
  options.target = call.input("target", target);
  const DType in = call.first().dtype;
  const DType index = index_dtype(indices_dtype);
  const Extents whole = Extents::of(call.first());
  const Extents rows = whole.without(-1);
  const Extents few = whole.with_last(chosen(k, call.first()));
  const Tensor best = call.output("values", few, dtype("dtype", out_dtype, in));
  const Tensor indices = call.output("indices", few, index);
  options.lse = call.output_if(flag("return_lse", return_lse), "lse", rows, sum_dtype(in));
  const bool has_target = options.target.present();
  options.target_logprob = call.output_if(has_target, "target_logprob", rows, sum_dtype(in));
  options.target_rank = call.output_if(has_target, "target_rank", rows, index);
  return call.run([&](const Context& context) {
    return onepass::softmax_topk(context, call.first(), best, indices, options);
  });
}

nb::object sample(nb::handle x, const nb::tuple& logits, nb::handle top_k, nb::handle top_p,
                  nb::handle min_p, nb::handle seed, nb::handle offset, nb::handle indices_dtype,
                  nb::handle return_logprob, nb::handle return_valid, nb::handle out,
                  nb::handle variant) {
  Call call("x", x, out);
  SampleOptions options;
  LogitArguments(logits).read(call, options);
  options.top_k = per_row_integer(call, "top_k", top_k);
  options.top_p = per_row(call, "top_p", top_p);
  options.min_p = per_row(call, "min_p", min_p);
  options.seed = per_row_integer(call, "seed", seed);
  options.offset = per_row_integer(call, "offset", offset);
  options.variant = text("variant", variant);
  const Extents rows = Extents::of(call.first()).without(-1);
  const Tensor token = call.output("token", rows, index_dtype(indices_dtype));
  options.logprob = call.output_if(flag("return_logprob", return_logprob), "logprob", rows,
                                   sum_dtype(call.first().dtype));
  options.valid = call.output_if(flag("return_valid", return_valid), "valid", rows, DType::u8);
  return call.run([&](const Context& context) {
    return onepass::sample(context, call.first(), token, options);
  });
}

nb::object gate(nb::handle scores, nb::handle k, nb::handle score, nb::handle bias,
                nb::handle renormalize, nb::handle scale, nb::handle out_dtype,
                nb::handle indices_dtype, nb::handle out, nb::handle variant) {
  Call call("scores", scores, out);
  GateOptions options;
  options.score = static_cast<GateScore>(choice("score", score, {"softmax", "sigmoid"}));
  options.bias = call.input("bias", bias);
  options.renormalize = flag("renormalize", renormalize);
  options.scale = number("scale", scale);
  options.variant = text("variant", variant);
  const Extents few = Extents::of(call.first()).with_last(chosen(k, call.first()));
  const Tensor weights = call.output("weights", few, dtype("dtype", out_dtype, call.first().dtype));
  const Tensor experts = call.output("experts", few, index_dtype(indices_dtype));
  return call.run([&](const Context& context) {
    return onepass::gate(context, call.first(), weights, experts, options);
  });
}

}  // namespace

void add_choices(nb::module_& module) {
  define(module, "softmax_topk", &softmax_topk);
  define(module, "sample", &sample);
  define(module, "gate", &gate);
}

}  // namespace onepass::python
