#include "rows/options.hpp"

#include <array>

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

Status check_integers(std::string_view argument, const TensorRef& t) {
  if (t.dtype == DType::i32 || t.dtype == DType::i64) return {};
  return invalid(argument, "dtype ", name(t.dtype), " is not i32 or i64");
}

Status lay_per_row(std::string_view argument, const PerRow& option, const Shape& shape,
                   double& value, Operand& rows) {
  value = option.value;
  if (!option.rows.present()) return {};
  ONEPASS_TRY(check_tensor(argument, option.rows, false));
  ONEPASS_TRY(check_floating(argument, option.rows));
  return shape.lay_rows(argument, option.rows, Shape::Fit::broadcast, rows);
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
  // The one that is farther from 1.
  const auto size = [](double v) { return v == 0 ? 0 : std::abs(std::log(std::abs(v))); };
  if (size(softcap) >= size(scale) && size(softcap) >= size(temperature))
    return refuse("softcap", softcap);
  return size(scale) > size(temperature) ? refuse("scale", scale)
                                         : refuse("temperature", temperature);
}

void collapse_present(RowArgs& args, std::span<Operand* const> more) {
  Logits& z = args.logits;
  std::array<Operand*, 32> present;  // every call comes here: no memory of its own
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

Status lay_lse(const TensorRef& lse, const Shape& shape, Operand& out) {
  if (!lse.present()) return {};
  ONEPASS_TRY(check_tensor("lse", lse, true));
  if (lse.dtype != DType::f32 && lse.dtype != DType::f64) {
    return invalid("lse", "dtype ", name(lse.dtype), " is not f32 or f64");
  }
  return shape.lay_rows("lse", lse, Shape::Fit::exact, out);
}

}  // namespace onepass
