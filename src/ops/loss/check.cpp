#include "ops/loss/check.hpp"

#include <cmath>

#include "rows/options.hpp"

namespace onepass {
namespace {

// Indices, or probabilities of x's shape.
Status lay_targets(const TensorRef& target, const TensorRef& x, std::int64_t ignore_index,
                   const Shape& shape, RowArgs& args) {
  if (!is_floating(target.dtype)) {
    ONEPASS_TRY(check_integers("target", target));
    return shape.lay_rows("target", target, Shape::Fit::exact, args.target);
  }
  args.has_probabilities = true;
  if (!shape.lay_full("target", target, Shape::Fit::exact, args.target).ok()) {
    return invalid("target", "dtype ", name(target.dtype), " and shape ", shape_text(target),
                   ": probabilities have the shape of x, ", shape_text(x),
                   ", and class indices are i32 or i64");
  }
  if (ignore_index >= 0) {
    return invalid("ignore_index", ignore_index,
                   " is a class, and targets that are probabilities have none to ignore");
  }
  return {};
}

}  // namespace

Status check_cross_entropy(Op op, const CrossEntropyTensors& t, const CrossEntropyOptions& options,
                           RowArgs& args) {
  args.op = op;
  const bool forward = op == Op::cross_entropy;
  const bool reduced = options.reduction != Reduction::none;
  Shape shape;
  ONEPASS_TRY(check_tensor("x", t.x, false, check_floating));
  ONEPASS_TRY(Shape::make(t.x, options.axis, shape));
  ONEPASS_TRY(shape.lay_full("x", t.x, Shape::Fit::exact, args.logits.x));
  ONEPASS_TRY(check_tensor("target", t.target, false));
  ONEPASS_TRY(lay_targets(t.target, t.x, options.ignore_index, shape, args));

  // One value per row, or a single one if losses are reduced.
  const auto lay_losses = [&](std::string_view name, const TensorRef& given, bool is_output,
                              Operand& laid) {
    ONEPASS_TRY(check_tensor(name, given, is_output, check_floating));
    if (!reduced) return shape.lay_rows(name, given, Shape::Fit::exact, laid);
    for (int i = 0; i < given.rank; ++i) {
      if (given.shape[i] != 1) {
        return invalid(name, "shape ", shape_text(given),
                       " is not one element, as a reduced loss is");
      }
    }
    laid = {.data = const_cast<void*>(given.data), .dtype = given.dtype};
    return Status{};
  };
  const bool both = !forward && t.with_loss;
  if (forward || both) {
    ONEPASS_TRY(lay_losses("loss", t.loss, true, forward ? args.out : args.loss));
    ONEPASS_TRY(lay_lse(options.lse, shape, args.lse));
  } else {
    ONEPASS_TRY(lay_losses("dloss", t.dloss, false, args.dloss));
    if (options.lse.present()) {
      return invalid("lse", "is an output of the forward; the backward takes it as an argument");
    }
    if (t.lse.present()) {
      ONEPASS_TRY(check_tensor("lse", t.lse, false, check_floating));
      ONEPASS_TRY(shape.lay_rows("lse", t.lse, Shape::Fit::exact, args.lse));
    }
  }
  if (!forward) {
    ONEPASS_TRY(check_tensor("dx", t.dx, true, check_floating));
    ONEPASS_TRY(shape.lay_full("dx", t.dx, Shape::Fit::exact, args.out));
  }
  ONEPASS_TRY(lay_logits(options, shape, t.x.dtype, args.logits));
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) {
    return invalid("label_smoothing", options.label_smoothing, " is not between 0 and 1");
  }
  if (!std::isfinite(options.z_loss)) return invalid("z_loss", options.z_loss, " is not finite");
  if (!fits(options.z_loss, t.x.dtype)) {
    return invalid("z_loss", options.z_loss, " is too small or too large for a loss computed in ",
                   name(compute_type(t.x.dtype)));
  }
  ONEPASS_TRY(lay_per_column("weight", options.weight, shape.cols(), "classes", args.weight));
  args.ignore_index = options.ignore_index;
  args.label_smoothing = options.label_smoothing;
  args.z_loss = options.z_loss;

  NamedList inputs = option_tensors(options);
  inputs.add(
      {{"target", t.target}, {"dloss", t.dloss}, {"lse", t.lse}, {"weight", options.weight}});
  if (forward) {
    inputs.add({{"x", t.x}});
    ONEPASS_TRY(
        check_overlaps({{"loss", t.loss}, {"lse", options.lse}}, inputs, {}, args.in_place));
  } else {
    NamedList outputs = {{"dx", t.dx}};
    if (both) outputs.add({{"loss", t.loss}, {"lse", options.lse}});
    ONEPASS_TRY(check_overlaps(outputs, inputs, {{"x", t.x}}, args.in_place));
  }
  lay_space(shape, args, {});
  return {};
}

Status check_targets(const RowArgs& args) {
  if (!args.target || args.has_probabilities) return {};  // before a text for an error is made
  const std::int64_t cols = args.space.cols;
  return check_values<std::int64_t>("target", args.space, args.target,
                                    "a class below " + std::to_string(cols) + " or ignore_index " +
                                        std::to_string(args.ignore_index),
                                    [cols, ignored = args.ignore_index](std::int64_t v) {
                                      return v == ignored || (v >= 0 && v < cols);
                                    });
}

}  // namespace onepass
