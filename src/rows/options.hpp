// What the checks of all row ops are made of.
#pragma once

#include <array>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "core/try.hpp"
#include "rows/tensors.hpp"

namespace onepass {

struct Named {
  std::string_view name;
  TensorRef tensor;
};

// A few of them, without memory of its own: every call comes here. Absent ones, which overlap
// nothing, are left out.
class NamedList {
 public:
  NamedList() = default;
  NamedList(std::initializer_list<Named> all) { add(all); }

  void add(std::initializer_list<Named> more) {
    for (const Named& each : more) {
      if (each.tensor.present()) items_[size_++].emplace(each);
    }
  }

  std::size_t size() const { return size_; }
  const Named& operator[](std::size_t i) const { return *items_[i]; }

 private:
  std::array<std::optional<Named>, 16> items_;
  std::size_t size_ = 0;
};

// No output shares memory with another argument, except that the first may be one
// of `twins`, whole.
Status check_overlaps(const NamedList& outputs, const NamedList& inputs, const NamedList& twins,
                      bool& in_place);

Status check_integers(std::string_view argument, const TensorRef& t);

// One value for all rows, or a tensor of them.
Status lay_per_row(std::string_view argument, const PerRow& option, const Shape& shape,
                   double& value, Operand& rows);
Status lay_lse(const TensorRef& lse, const Shape& shape, Operand& out);

// Absent operands have no strides to agree on, and must not stand in the way. `more`
// are an op's own.
void collapse_present(RowArgs& args, std::span<Operand* const> more);

// One value per row, read as Value: a double does not hold every integer.
template <class Value, class Accept>
Status check_values(std::string_view argument, const RowSpace& space, const Operand& operand,
                    std::string_view wanted, Accept accept) {
  if (!operand) return {};
  for (std::int64_t row = 0; row < space.rows; ++row) {
    const auto value = read<Value>(row_data(space, operand, row), operand.dtype, 0);
    if (!accept(value)) return invalid(argument, value, " at row ", row, " is not ", wanted);
  }
  return {};
}

// Whether a factor keeps its digits in the type that logits of this dtype are computed in.
inline bool fits(double factor, DType dtype) {
  if (factor == 0) return true;
  return compute_type(dtype) == DType::f64 ? std::isnormal(factor)
                                           : std::isnormal(static_cast<float>(factor));
}

// The factors that z is made with: each must keep its digits, and so must what they are joined to.
Status check_factors(double scale, double temperature, double softcap, DType dtype);

// The fields that every options struct has.
template <class Options>
Status lay_logits(const Options& options, const Shape& shape, DType dtype, Logits& logits) {
  const Mask& mask = options.mask;
  ONEPASS_TRY(lay_per_row("scale", options.scale, shape, logits.scale, logits.scale_rows));
  ONEPASS_TRY(lay_per_row("temperature", options.temperature, shape, logits.temperature,
                          logits.temperature_rows));
  if (!std::isfinite(logits.scale)) return invalid("scale", logits.scale, " is not finite");
  if (!(logits.temperature > 0) || !std::isfinite(logits.temperature)) {
    return invalid("temperature", logits.temperature, " is not a positive number");
  }
  if (!(options.softcap >= 0) || !std::isfinite(options.softcap)) {
    return invalid("softcap", options.softcap, " is not 0 or a positive number");
  }
  logits.softcap = options.softcap;
  ONEPASS_TRY(check_factors(logits.scale_rows ? 1 : logits.scale,
                            logits.temperature_rows ? 1 : logits.temperature, logits.softcap,
                            dtype));
  if (mask.additive.present()) {
    ONEPASS_TRY(check_tensor("mask.additive", mask.additive, false));
    ONEPASS_TRY(check_floating("mask.additive", mask.additive));
    ONEPASS_TRY(
        shape.lay_full("mask.additive", mask.additive, Shape::Fit::broadcast, logits.additive));
  }
  if (mask.boolean.present()) {
    ONEPASS_TRY(check_tensor("mask.boolean", mask.boolean, false));
    if (mask.boolean.dtype != DType::u8) {
      return invalid("mask.boolean", "dtype ", name(mask.boolean.dtype), " is not u8");
    }
    ONEPASS_TRY(
        shape.lay_full("mask.boolean", mask.boolean, Shape::Fit::broadcast, logits.boolean));
  }
  if (mask.lengths.present()) {
    ONEPASS_TRY(check_tensor("mask.lengths", mask.lengths, false));
    ONEPASS_TRY(check_integers("mask.lengths", mask.lengths));
    ONEPASS_TRY(
        shape.lay_rows("mask.lengths", mask.lengths, Shape::Fit::broadcast, logits.lengths));
  }
  for (const auto& [side, reach] : {std::pair{"mask.window_left", mask.window_left},
                                    std::pair{"mask.window_right", mask.window_right}}) {
    if (reach < -1) return invalid(side, reach, " is neither -1 nor a distance");
  }
  logits.causal = mask.causal;
  logits.window_left = mask.window_left;
  logits.window_right = mask.window_right;
  logits.queries = shape.queries();
  return {};
}

template <class Options>
NamedList option_tensors(const Options& options) {
  return {{"scale", options.scale.rows},
          {"temperature", options.temperature.rows},
          {"mask.additive", options.mask.additive},
          {"mask.boolean", options.mask.boolean},
          {"mask.lengths", options.mask.lengths}};
}

}  // namespace onepass
