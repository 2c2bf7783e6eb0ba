// cross_entropy, its gradient, and both at once.

#include "arguments.hpp"
#include "onepass/ops.hpp"
#include "ops.hpp"

namespace onepass::python {
namespace {

// What all three share: (axis, logits, ignore_index, label_smoothing, z_loss, reduction, variant,
// batch_invariant), in the order in which onepass/_losses.py packs it.
CrossEntropyOptions read_options(Call& call, const nb::tuple& packed) {
  CrossEntropyOptions options;
  options.axis = static_cast<int>(integer("axis", packed[0]));
  LogitArguments(nb::borrow<nb::tuple>(packed[1])).read(call, options);
  options.ignore_index = integer("ignore_index", packed[2]);
  options.label_smoothing = number("label_smoothing", packed[3]);
  options.z_loss = number("z_loss", packed[4]);
  options.reduction =
      static_cast<Reduction>(choice("reduction", packed[5], {"none", "sum", "mean"}));
  options.variant = text("variant", packed[6]);
  options.batch_invariant = flag("batch_invariant", packed[7]);
  return options;
}

Extents rows_of(const Call& call, const CrossEntropyOptions& options) {
  return Extents::of(call.first()).without(options.axis);
}

Extents losses_of(const Call& call, const CrossEntropyOptions& options) {
  return options.reduction == Reduction::none ? rows_of(call, options) : Extents{};
}

nb::object cross_entropy(nb::handle x, nb::handle target, const nb::tuple& packed,
                         nb::handle out_dtype, nb::handle return_lse, nb::handle out) {
  Call call("x", x, out);
  CrossEntropyOptions options = read_options(call, packed);
  const ConstTensor classes = call.input("target", target);
  const DType in = call.first().dtype;
  const Tensor loss = call.output("out", losses_of(call, options), dtype("dtype", out_dtype, in));
  options.lse =
      call.output_if(flag("return_lse", return_lse), "lse", rows_of(call, options), sum_dtype(in));
  return call.run([&](const Context& context) {
    return onepass::cross_entropy(context, call.first(), classes, loss, options);
  });
}

nb::object cross_entropy_backward(nb::handle x, nb::handle target, nb::handle dloss, nb::handle lse,
                                  const nb::tuple& packed, nb::handle out_dtype, nb::handle out) {
  Call call("x", x, out);
  const CrossEntropyOptions options = read_options(call, packed);
  const ConstTensor classes = call.input("target", target);
  const ConstTensor gradient = call.input("dloss", dloss);
  const ConstTensor sums = call.input("lse", lse);
  const Tensor dx =
      call.output("out", Extents::of(call.first()), dtype("dtype", out_dtype, call.first().dtype));
  return call.run([&](const Context& context) {
    return onepass::cross_entropy_backward(context, call.first(), classes, sums, gradient, dx,
                                           options);
  });
}

nb::object cross_entropy_with_gradient(nb::handle x, nb::handle target, const nb::tuple& packed,
                                       nb::handle out_dtype, nb::handle return_lse,
                                       nb::handle out) {
  Call call("x", x, out);
  CrossEntropyOptions options = read_options(call, packed);
  const ConstTensor classes = call.input("target", target);
  const DType in = call.first().dtype;
  const Tensor loss = call.output("out", losses_of(call, options), dtype("dtype", out_dtype, in));
  const Tensor dx = call.output("out", Extents::of(call.first()), in);
  options.lse =
      call.output_if(flag("return_lse", return_lse), "lse", rows_of(call, options), sum_dtype(in));
  return call.run([&](const Context& context) {
    return onepass::cross_entropy_with_gradient(context, call.first(), classes, loss, dx, options);
  });
}

}  // namespace

void add_losses(nb::module_& module) {
  define(module, "cross_entropy", &cross_entropy);
  define(module, "cross_entropy_backward", &cross_entropy_backward);
  define(module, "cross_entropy_with_gradient", &cross_entropy_with_gradient);
}

}  // namespace onepass::python
