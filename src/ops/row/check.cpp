#include "ops/row/check.hpp"

#include <cmath>

#include "ops/row/flat.hpp"
#include "ops/row/parts.hpp"

namespace onepass {
namespace {

// The dtype that tells which type a call computes in.
DType computed_from(const RowArgs& args) {
  if (args.dy && args.dy.dtype == DType::f64) return DType::f64;
  return args.y ? args.y.dtype : args.logits.x.dtype;
}

}  // namespace

Status check_softmax(Op op, ConstTensor x, Tensor y, const SoftmaxOptions& options, RowArgs& args) {
  args.op = op;
  Shape shape;
  ONEPASS_TRY(check_tensor("x", x, false));
  ONEPASS_TRY(check_floating("x", x));
  ONEPASS_TRY(check_tensor("y", y, true));
  ONEPASS_TRY(check_floating("y", y));
  ONEPASS_TRY(Shape::make(x, options.axis, shape));
  ONEPASS_TRY(shape.lay_full("x", x, Shape::Fit::exact, args.logits.x));
  ONEPASS_TRY(op == Op::logsumexp ? shape.lay_rows("y", y, Shape::Fit::exact, args.out)
                                  : shape.lay_full("y", y, Shape::Fit::exact, args.out));
  if (op == Op::logsumexp && options.lse.present()) {
    return invalid("lse", "logsumexp writes it to y already");
  }
  ONEPASS_TRY(lay_lse(options.lse, shape, args.lse));
  ONEPASS_TRY(lay_logits(options, shape, x.dtype, args.logits));
  NamedList inputs = option_tensors(options);
  NamedList twins;
  (op == Op::logsumexp ? inputs : twins).add({{"x", x}});
  ONEPASS_TRY(check_overlaps({{"y", y}, {"lse", options.lse}}, inputs, twins, args.in_place));
  args.space = shape.space();
  collapse_present(args, {});
  return {};
}

Status check_backward(Op op, ConstTensor y, ConstTensor dy, Tensor dx,
                      const BackwardOptions& options, RowArgs& args) {
  args.op = op;
  Shape shape;
  ONEPASS_TRY(check_tensor("y", y, false));
  ONEPASS_TRY(check_floating("y", y));
  ONEPASS_TRY(check_tensor("dy", dy, false));
  ONEPASS_TRY(check_floating("dy", dy));
  ONEPASS_TRY(check_tensor("dx", dx, true));
  ONEPASS_TRY(check_floating("dx", dx));
  ONEPASS_TRY(Shape::make(y, options.axis, shape));
  ONEPASS_TRY(shape.lay_full("y", y, Shape::Fit::exact, args.y));
  ONEPASS_TRY(shape.lay_full("dy", dy, Shape::Fit::exact, args.dy));
  ONEPASS_TRY(shape.lay_full("dx", dx, Shape::Fit::exact, args.out));
  const DType dtype = dy.dtype == DType::f64 ? dy.dtype : y.dtype;
  ONEPASS_TRY(lay_logits(options, shape, dtype, args.logits));
  if (options.softcap > 0) {
    if (!options.x.present()) {
      return invalid("x", "is missing: the gradient of softcap ", options.softcap, " needs it");
    }
    ONEPASS_TRY(check_tensor("x", options.x, false));
    ONEPASS_TRY(check_floating("x", options.x));
    ONEPASS_TRY(shape.lay_full("x", options.x, Shape::Fit::exact, args.logits.x));
  }
  ONEPASS_TRY(check_overlaps({{"dx", dx}}, option_tensors(options),
                             {{"y", y}, {"dy", dy}, {"x", options.x}}, args.in_place));
  args.space = shape.space();
  collapse_present(args, {});
  return {};
}

namespace {

Status lay_weight(const TensorRef& weight, std::int64_t classes, Operand& out) {
  if (!weight.present()) return {};
  ONEPASS_TRY(check_tensor("weight", weight, false));
  ONEPASS_TRY(check_floating("weight", weight));
  if (weight.rank != 1 || weight.shape[0] != classes) {
    return invalid("weight", "shape ", shape_text(weight), " is not one value for each of ",
                   classes, " classes");
  }
  out = {.data = const_cast<void*>(weight.data),
         .dtype = weight.dtype,
         .col_stride = weight.strides[0]};
  return {};
}

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
  ONEPASS_TRY(check_tensor("x", t.x, false));
  ONEPASS_TRY(check_floating("x", t.x));
  ONEPASS_TRY(Shape::make(t.x, options.axis, shape));
  ONEPASS_TRY(shape.lay_full("x", t.x, Shape::Fit::exact, args.logits.x));
  ONEPASS_TRY(check_tensor("target", t.target, false));
  ONEPASS_TRY(lay_targets(t.target, t.x, options.ignore_index, shape, args));

  // One value a row, or one where losses are reduced.
  const auto lay_losses = [&](std::string_view name, const TensorRef& given, bool is_output,
                              Operand& laid) {
    ONEPASS_TRY(check_tensor(name, given, is_output));
    ONEPASS_TRY(check_floating(name, given));
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
      ONEPASS_TRY(check_tensor("lse", t.lse, false));
      ONEPASS_TRY(check_floating("lse", t.lse));
      ONEPASS_TRY(shape.lay_rows("lse", t.lse, Shape::Fit::exact, args.lse));
    }
  }
  if (!forward) {
    ONEPASS_TRY(check_tensor("dx", t.dx, true));
    ONEPASS_TRY(check_floating("dx", t.dx));
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
  ONEPASS_TRY(lay_weight(options.weight, shape.cols(), args.weight));
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
  args.space = shape.space();
  collapse_present(args, {});
  return {};
}

Status check_row_values(const RowArgs& args) {
  const Logits& z = args.logits;
  const std::int64_t cols = args.space.cols;
  ONEPASS_TRY(check_values<double>("scale", args.space, z.scale_rows, "finite",
                                   [](double v) { return std::isfinite(v); }));
  ONEPASS_TRY(check_values<double>("temperature", args.space, z.temperature_rows,
                                   "a positive number",
                                   [](double v) { return v > 0 && std::isfinite(v); }));
  const bool factors = z.scale_rows || z.temperature_rows;
  for (std::int64_t row = 0; factors && row < args.space.rows; ++row) {
    ONEPASS_TRY(check_factors(row_scale(args.space, z, row), row_temperature(args.space, z, row),
                              z.softcap, computed_from(args)));
  }
  if (z.lengths) {
    ONEPASS_TRY(check_values<std::int64_t>("mask.lengths", args.space, z.lengths,
                                           "between 0 and " + std::to_string(cols),
                                           [cols](std::int64_t v) { return v >= 0 && v <= cols; }));
  }
  if (!args.target || args.has_probabilities) return {};  // before a text for an error is made
  return check_values<std::int64_t>("target", args.space, args.target,
                                    "a class below " + std::to_string(cols) + " or ignore_index " +
                                        std::to_string(args.ignore_index),
                                    [cols, ignored = args.ignore_index](std::int64_t v) {
                                      return v == ignored || (v >= 0 && v < cols);
                                    });
}

Problem describe(const RowArgs& args) {
  const Operand& in = args.logits.x && !args.y ? args.logits.x : args.y;
  const Logits& z = args.logits;
  const bool full_out = traffic(args.op).writes > 0;
  Problem p{.op = args.op, .rows = args.space.rows, .cols = args.space.cols};
  p.in = computed_from(args);
  p.out = args.out.dtype;
  p.mixed_inputs = args.y && args.dy && args.y.dtype != args.dy.dtype;
  const auto last = static_cast<std::size_t>(args.space.rank - 1);
  const auto dense = [](const Operand& o) { return !o || o.col_stride == 1; };
  const auto side_by_side = [last](const Operand& o) { return o.row_strides[last] == 1; };
  const bool one = args.space.cols <= 1;
  p.unit_stride = one || (dense(in) && dense(args.dy) && (!full_out || dense(args.out)));
  p.unit_rows = !p.unit_stride && side_by_side(in) && (!full_out || side_by_side(args.out)) &&
                args.space.extent[last] > 1;
  p.even_rows = args.space.rank <= 1;
  p.aligned_rows = reinterpret_cast<std::uintptr_t>(in.data) % 16 == 0;
  for (int i = 0; i < args.space.rank; ++i) {
    const auto step = in.row_strides[i] * static_cast<std::int64_t>(size_of(in.dtype));
    p.aligned_rows = p.aligned_rows && (args.space.extent[i] == 1 || step % 16 == 0);
  }
  p.aligned_rows = p.aligned_rows || (!one && in.col_stride != 1);
  p.packed_rows = (args.op == Op::softmax || args.op == Op::log_softmax) &&
                  in_packs(args.space, in) && in_packs(args.space, args.out);
  p.plain = z.plain() && args.label_smoothing == 0;
  p.only_scaled = z.only_scaled();
  p.whole_rows = z.whole_rows();
  p.wants_lse = static_cast<bool>(args.lse);
  p.in_place = args.in_place;
  p.gives_loss = static_cast<bool>(args.loss);
  p.reduced = args.reduction != Reduction::none;
  p.weighted = args.weight || args.has_probabilities;
  p.probability_bytes = args.has_probabilities ? static_cast<int>(size_of(args.target.dtype)) : 0;
  return p;
}

}  // namespace onepass
