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

TopkValues values_of(nb::handle given) {
  return static_cast<TopkValues>(
      choice("values", given, {"probability", "log_probability", "logit", "renormalized"}));
}

// topk is softmax_topk that gives logits.
template <bool LogitsAlone>
nb::object topk(Arguments& given) {
  const auto [x, k] = given.next<2>();
  const nb::handle values = LogitsAlone ? nb::handle() : given.next();
  const auto [sorted, target] = given.next<2>();
  const auto logits = LogitArguments::next(given);
  const auto [out_dtype, indices_dtype, return_lse, out, variant] = given.next<5>();
  Call call("x", x, out);
  TopkOptions options;
  options.values = LogitsAlone ? TopkValues::logit : values_of(values);
  options.sorted = flag("sorted", sorted);
  logits.read(call, options);
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

nb::object sample(Arguments& given) {
  const auto [x, temperature, top_k, top_p, min_p, seed, offset, scale, softcap] = given.next<9>();
  const LogitArguments logits{scale, temperature, softcap, MaskArguments::next(given)};
  const auto [indices_dtype, return_logprob, return_valid, out, variant] = given.next<5>();
  Call call("x", x, out);
  SampleOptions options;
  logits.read(call, options);
  options.top_k = per_row_integer(call, "top_k", top_k);
  options.top_p = per_row(call, "top_p", top_p);
  options.min_p = per_row(call, "min_p", min_p);
  options.seed = per_row_bits(call, "seed", seed);
  options.offset = per_row_bits(call, "offset", offset);
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

nb::object gate(Arguments& given) {
  const auto [scores, k, score, bias, renormalize, scale, out_dtype, indices_dtype, out, variant] =
      given.next<10>();
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

void define_select() {
  const Names shared{"sorted", "target",      LogitArguments::names(),
                     "dtype",  "index_dtype", "return_lse",
                     "out",    "variant"};
  define("topk", {"x", "k", shared}, &topk<true>);
  define("softmax_topk", {"x", "k", "values", shared}, &topk<false>);
  define(
      "sample",
      {"x", "temperature", "top_k", "top_p", "min_p", "seed", "offset", "scale", "softcap",
       MaskArguments::names(), "index_dtype", "return_logprob", "return_valid", "out", "variant"},
      &sample);
  define("gate",
         {"scores", "k", "score", "bias", "renormalize", "scale", "dtype", "index_dtype", "out",
          "variant"},
         &gate);
}

}  // namespace onepass::python
