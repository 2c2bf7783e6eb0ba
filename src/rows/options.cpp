#include "rows/options.hpp"

#include <array>
#include <utility>

namespace onepass {

Status check_overlaps(const NamedList& outputs, const NamedList& inputs, const NamedList& twins,
                      bool& in_place) {
  in_place = false;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Named& out = outputs[i];
    for (std::size_t j = 0; j < i; ++j) {
      if (overlap(out.tensor, outputs[j].tensor)) {
        return invalid(out.name, "overlaps ", outputs[j].name);
      }
    }
    for (std::size_t j = 0; j < inputs.size(); ++j) {
      if (overlap(out.tensor, inputs[j].tensor)) {
        return invalid(out.name, "overlaps ", inputs[j].name);
      }
    }
    for (std::size_t j = 0; j < twins.size(); ++j) {
      const Named& twin = twins[j];
      if (!overlap(out.tensor, twin.tensor)) continue;
      if (i == 0 && same_elements(out.tensor, twin.tensor)) {
        in_place = true;
      } else {
        return invalid(out.name, "overlaps ", twin.name,
                       " without being the same tensor of the same dtype");
      }
    }
  }
  return {};
}

Status lay_row_input(std::string_view argument, const TensorRef& t, CheckDType check_dtype,
                     const Shape& shape, Operand& out) {
  if (!t.present()) return {};
  ONEPASS_TRY(check_tensor(argument, t, false, check_dtype));
  return shape.lay_rows(argument, t, Shape::Fit::broadcast, out);
}

Status lay_row_output(std::string_view argument, const TensorRef& t, CheckDType check_dtype,
                      const Shape& shape, Operand& out) {
  if (!t.present()) return {};
  ONEPASS_TRY(check_tensor(argument, t, true, check_dtype));
  return shape.lay_rows(argument, t, Shape::Fit::exact, out);
}

Status lay_per_column(std::string_view argument, const TensorRef& t, std::int64_t cols,
                      std::string_view columns, Operand& out) {
  if (!t.present()) return {};
  ONEPASS_TRY(check_tensor(argument, t, false, check_floating));
  if (t.rank != 1 || t.shape[0] != cols) {
    return invalid(argument, "shape ", shape_text(t), " is not one value for each of ", cols, " ",
                   columns);
  }
  out = {.data = const_cast<void*>(t.data), .dtype = t.dtype, .col_stride = t.strides[0]};
  return {};
}

Status check_softcap(double softcap) {
  if (softcap >= 0 && std::isfinite(softcap)) return {};
  return invalid("softcap", softcap, " is not 0 or a positive number");
}

Status check_window(const Mask& mask) {
  for (const auto& [side, reach] : {std::pair{"mask.window_left", mask.window_left},
                                    std::pair{"mask.window_right", mask.window_right}}) {
    if (reach < -1) return invalid(side, reach, " is neither -1 nor a distance");
  }
  return {};
}

Status lay_mask(const Mask& mask, const Shape& shape, Logits& logits) {
  if (mask.additive.present()) {
    ONEPASS_TRY(check_tensor("mask.additive", mask.additive, false, check_floating));
    ONEPASS_TRY(
        shape.lay_full("mask.additive", mask.additive, Shape::Fit::broadcast, logits.additive));
  }
  if (mask.boolean.present()) {
    ONEPASS_TRY(check_tensor("mask.boolean", mask.boolean, false, check_u8));
    ONEPASS_TRY(
        shape.lay_full("mask.boolean", mask.boolean, Shape::Fit::broadcast, logits.boolean));
  }
  ONEPASS_TRY(lay_row_input("mask.lengths", mask.lengths, check_integers, shape, logits.lengths));
  ONEPASS_TRY(check_window(mask));
  logits.causal = mask.causal;
  logits.window_left = mask.window_left;
  logits.window_right = mask.window_right;
  logits.queries = shape.queries();
  return {};
}

Status check_factors(double scale, double temperature, double softcap, DType dtype) {
  const std::string_view type = name(compute_type(dtype));
  const auto refuse = [type](std::string_view argument, double value) {
    return invalid(argument, value, " is too small or too large for logits computed in ", type);
  };
  const bool joined = softcap == 0
                          ? fits(scale / temperature, dtype)
                          : fits(scale / softcap, dtype) && fits(softcap / temperature, dtype) &&
                                fits(1 / temperature, dtype);
  if (!fits(softcap, dtype)) return refuse("softcap", softcap);
  if (joined) return {};
  // Names the factor that is farthest from 1.
  const auto size = [](double v) { return v == 0 ? 0 : std::abs(std::log(std::abs(v))); };
  if (size(softcap) >= size(scale) && size(softcap) >= size(temperature))
    return refuse("softcap", softcap);
  return size(scale) > size(temperature) ? refuse("scale", scale)
                                         : refuse("temperature", temperature);
}

void lay_space(const Shape& shape, RowArgs& args, std::initializer_list<Operand*> more) {
  args.space = shape.space();
  Logits& z = args.logits;
  // Absent operands have no strides to agree on. Not a vector: every call comes here.
  std::array<Operand*, 32> present;
  std::size_t count = 0;
  const auto add = [&](Operand* o) {
    if (*o) present[count++] = o;
  };
  for (Operand* o :
       {&z.x, &z.scale_rows, &z.temperature_rows, &z.additive, &z.boolean, &z.lengths, &args.y,
        &args.dy, &args.out, &args.lse, &args.target, &args.dloss, &args.loss}) {
    add(o);
  }
  for (Operand* o : more) add(o);
  collapse(args.space, std::span(present).first(count));
  args.end_row = args.space.rows;
}

}  // namespace onepass
