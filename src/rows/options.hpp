// The building blocks of every row op's checks.
#pragma once

#include <array>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "core/try.hpp"
#include "rows/tensors.hpp"

namespace onepass {

struct Named {
  std::string_view name;
  TensorRef tensor;
};

// A list that never allocates, since every call makes some. It leaves out absent tensors, which
// overlap nothing.
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

// Refuses outputs that share memory with another argument. The first output may be one of `twins`,
// as a whole: in_place then says so.
Status check_overlaps(const NamedList& outputs, const NamedList& inputs, const NamedList& twins,
                      bool& in_place);

// Check an optional tensor with one value per row and lay it over the shape, to which inputs
// broadcast.
Status lay_row_input(std::string_view argument, const TensorRef& t, CheckDType check_dtype,
                     const Shape& shape, Operand& out);
Status lay_row_output(std::string_view argument, const TensorRef& t, CheckDType check_dtype,
                      const Shape& shape, Operand& out);
inline Status lay_lse(const TensorRef& lse, const Shape& shape, Operand& out) {
  return lay_row_output("lse", lse, check_sums, shape, out);
}

// One value for all rows, or a tensor of the values' kind, floating or integers.
template <class Option, class Value>
Status lay_per_row(std::string_view argument, const Option& option, const Shape& shape,
                   Value& value, Operand& rows) {
  value = option.value;
  return lay_row_input(argument, option.rows,
                       std::is_floating_point_v<Value> ? check_floating : check_integers, shape,
                       rows);
}

// An optional input with one value per column, the same for all rows; `columns` names these.
Status lay_per_column(std::string_view argument, const TensorRef& t, std::int64_t cols,
                      std::string_view columns, Operand& out);

// Gives args the shape's rows, with dimensions that all present operands walk as one made one.
// `more` are the op's own operands, beside those of RowArgs.
void lay_space(const Shape& shape, RowArgs& args, std::initializer_list<Operand*> more);

// One value per row, read as Value: a double does not hold every integer.
template <class Value, class Accept>
Status check_values(std::string_view argument, const RowSpace& space, const Operand& operand,
                    std::string_view wanted, Accept accept) {
  if (!operand) return {};
  for (std::int64_t row = 0; row < space.rows; ++row) {
    const auto value = read_at<Value>(space, operand, row);
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

// The factors of z: each must keep its digits, and so must the products that kernels take.
Status check_factors(double scale, double temperature, double softcap, DType dtype);
Status check_softcap(double softcap);
Status check_window(const Mask& mask);

Status lay_mask(const Mask& mask, const Shape& shape, Logits& logits);

// The fields that every options struct has.
template <class Options>
Status lay_logits(const Options& options, const Shape& shape, DType dtype, Logits& logits) {
  ONEPASS_TRY(lay_per_row("scale", options.scale, shape, logits.scale, logits.scale_rows));
  ONEPASS_TRY(lay_per_row("temperature", options.temperature, shape, logits.temperature,
                          logits.temperature_rows));
  if (!std::isfinite(logits.scale)) return invalid("scale", logits.scale, " is not finite");
  if (!(logits.temperature > 0) || !std::isfinite(logits.temperature)) {
    return invalid("temperature", logits.temperature, " is not a positive number");
  }
  ONEPASS_TRY(check_softcap(options.softcap));
  logits.softcap = options.softcap;
  ONEPASS_TRY(check_factors(logits.scale_rows ? 1 : logits.scale,
                            logits.temperature_rows ? 1 : logits.temperature, logits.softcap,
                            dtype));
  return lay_mask(options.mask, shape, logits);
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
