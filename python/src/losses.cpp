// cross_entropy, its gradient, and both at once.

#include "arguments.hpp"
#include "onepass/ops.hpp"
#include "ops.hpp"

namespace onepass::python {
namespace {

// The arguments that all three share, in their order.
struct LossArguments {
  nb::handle axis, weight, ignore_index, label_smoothing, z_loss, reduction;
  LogitArguments logits;

  static Names names() {
    return {"axis",   "weight",    "ignore_index",         "label_smoothing",
            "z_loss", "reduction", LogitArguments::names()};
  }
  static LossArguments next(Arguments& given) {
    return {given.next(),
            given.next(),
            given.next(),
            given.next(),
            given.next(),
            given.next(),
            LogitArguments::next(given)};
  }

  CrossEntropyOptions read(Call& call, nb::handle variant, nb::handle batch_invariant) const {
    CrossEntropyOptions options;
    options.axis = axis_of(call.first(), axis);
    logits.read(call, options);
    options.weight = call.input("weight", weight);
    options.ignore_index = integer("ignore_index", ignore_index);
    options.label_smoothing = number("label_smoothing", label_smoothing);
    options.z_loss = number("z_loss", z_loss);
    options.reduction =
        static_cast<Reduction>(choice("reduction", reduction, {"none", "sum", "mean"}));
    options.variant = text("variant", variant);
    options.batch_invariant = flag("batch_invariant", batch_invariant);
    return options;
  }
};

Extents rows_of(const Call& call, const CrossEntropyOptions& options) {
  return Extents::of(call.first()).without(options.axis);
}

Extents losses_of(const Call& call, const CrossEntropyOptions& options) {
  return options.reduction == Reduction::none ? rows_of(call, options) : Extents{};
}

// cross_entropy, or with the gradient cross_entropy_with_gradient.
template <bool WithGradient>
nb::object losses(Arguments& given) {
  const auto [x, target] = given.next<2>();
  const auto loss_options = LossArguments::next(given);
  const auto [out_dtype, return_lse, out, variant, batch_invariant] = given.next<5>();
  Call call("x", x, out);
  CrossEntropyOptions options = loss_options.read(call, variant, batch_invariant);
  const ConstTensor classes = call.input("target", target);
  const DType in = call.first().dtype;
  const Tensor loss = call.output("loss", losses_of(call, options), dtype("dtype", out_dtype, in));
  const Tensor dx = call.output_if(WithGradient, "dx", Extents::of(call.first()), in);
  options.lse =
      call.output_if(flag("return_lse", return_lse), "lse", rows_of(call, options), sum_dtype(in));
  return call.run([&](const Context& context) {
    return WithGradient ? onepass::cross_entropy_with_gradient(context, call.first(), classes, loss,
                                                               dx, options)
                        : onepass::cross_entropy(context, call.first(), classes, loss, options);
  });
}

nb::object backward(Arguments& given) {
  const auto [x, target, dloss, lse] = given.next<4>();
  const auto loss_options = LossArguments::next(given);
  const auto [out_dtype, out, variant, batch_invariant] = given.next<4>();
  Call call("x", x, out);
  const CrossEntropyOptions options = loss_options.read(call, variant, batch_invariant);
  const ConstTensor classes = call.input("target", target);
  const ConstTensor gradient = call.input("dloss", dloss);
  const ConstTensor sums = call.input("lse", lse);
  const Tensor dx =
      call.output("dx", Extents::of(call.first()), dtype("dtype", out_dtype, call.first().dtype));
  return call.run([&](const Context& context) {
    return onepass::cross_entropy_backward(context, call.first(), classes, sums, gradient, dx,
                                           options);
  });
}

}  // namespace

void define_losses() {
  const Names forward_names{"x",   "target",  LossArguments::names(), "dtype", "return_lse",
                            "out", "variant", "batch_invariant"};
  define("cross_entropy", forward_names, &losses<false>);
  define("cross_entropy_backward",
         {"x", "target", "dloss", "lse", LossArguments::names(), "dtype", "out", "variant",
          "batch_invariant"},
         &backward);
  define("cross_entropy_with_gradient", forward_names, &losses<true>);
}

}  // namespace onepass::python
