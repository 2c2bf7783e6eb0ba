// softmax, log_softmax, logsumexp and the gradients of the first two.

#include "arguments.hpp"
#include "onepass/ops.hpp"
#include "ops.hpp"

namespace onepass::python {
namespace {

using Forward = Status(const Context&, ConstTensor, Tensor, const SoftmaxOptions&);
using Backward = Status(const Context&, ConstTensor, ConstTensor, Tensor, const BackwardOptions&);

template <Forward op>
nb::object forward(Arguments& given) {
  constexpr bool keeps_axis = op != &onepass::logsumexp;
  const auto [x, axis] = given.next<2>();
  const auto logits = LogitArguments::next(given);
  const nb::handle out_dtype = given.next();
  const nb::handle return_lse = keeps_axis ? given.next() : nb::handle(Py_False);
  const auto [out, variant, batch_invariant] = given.next<3>();
  Call call("x", x, out);
  SoftmaxOptions options;
  options.axis = axis_of(call.first(), axis);
  logits.read(call, options);
  options.variant = text("variant", variant);
  options.batch_invariant = flag("batch_invariant", batch_invariant);
  const Extents whole = Extents::of(call.first());
  const Extents rows = whole.without(options.axis);
  const DType in = call.first().dtype;
  const Tensor y = call.output("y", keeps_axis ? whole : rows, dtype("dtype", out_dtype, in));
  options.lse = call.output_if(flag("return_lse", return_lse), "lse", rows, sum_dtype(in));
  return call.run([&](const Context& context) { return op(context, call.first(), y, options); });
}

template <Backward op>
nb::object backward(Arguments& given) {
  const auto [y, dy, axis, x] = given.next<4>();
  const auto logits = LogitArguments::next(given);
  const auto [out_dtype, out, variant, batch_invariant] = given.next<4>();
  Call call("y", y, out);
  BackwardOptions options;
  options.axis = axis_of(call.first(), axis);
  logits.read(call, options);
  options.x = call.input("x", x);
  options.variant = text("variant", variant);
  options.batch_invariant = flag("batch_invariant", batch_invariant);
  const ConstTensor gradient = call.input("dy", dy);
  const Tensor dx =
      call.output("dx", Extents::of(call.first()), dtype("dtype", out_dtype, call.first().dtype));
  return call.run(
      [&](const Context& context) { return op(context, call.first(), gradient, dx, options); });
}

}  // namespace

void define_rows() {
  const Names forward_names{"x",   "axis",    LogitArguments::names(), "dtype", "return_lse",
                            "out", "variant", "batch_invariant"};
  const Names backward_names{
      "y",   "dy",      "axis",           "x", LogitArguments::names(), "dtype",
      "out", "variant", "batch_invariant"};
  define("softmax", forward_names, &forward<onepass::softmax>);
  define("log_softmax", forward_names, &forward<onepass::log_softmax>);
  define("logsumexp",
         {"x", "axis", LogitArguments::names(), "dtype", "out", "variant", "batch_invariant"},
         &forward<onepass::logsumexp>);
  define("softmax_backward", backward_names, &backward<onepass::softmax_backward>);
  define("log_softmax_backward", backward_names, &backward<onepass::log_softmax_backward>);
}

}  // namespace onepass::python
