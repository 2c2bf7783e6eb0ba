#include "ops/softmax/check.hpp"

#include "rows/options.hpp"

namespace onepass {

Status check_softmax(Op op, ConstTensor x, Tensor y, const SoftmaxOptions& options, RowArgs& args) {
  args.op = op;
  Shape shape;
  ONEPASS_TRY(check_tensor("x", x, false, check_floating));
  ONEPASS_TRY(check_tensor("y", y, true, check_floating));
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
  lay_space(shape, args, {});
  return {};
}

Status check_backward(Op op, ConstTensor y, ConstTensor dy, Tensor dx,
                      const BackwardOptions& options, RowArgs& args) {
  args.op = op;
  Shape shape;
  ONEPASS_TRY(check_tensor("y", y, false, check_floating));
  ONEPASS_TRY(check_tensor("dy", dy, false, check_floating));
  ONEPASS_TRY(check_tensor("dx", dx, true, check_floating));
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
    ONEPASS_TRY(check_tensor("x", options.x, false, check_floating));
    ONEPASS_TRY(shape.lay_full("x", options.x, Shape::Fit::exact, args.logits.x));
  }
  ONEPASS_TRY(check_overlaps({{"dx", dx}}, option_tensors(options),
                             {{"y", y}, {"dy", dy}, {"x", options.x}}, args.in_place));
  lay_space(shape, args, {});
  return {};
}

}  // namespace onepass
