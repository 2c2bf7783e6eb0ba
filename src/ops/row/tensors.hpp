// Checks of one tensor, and its layout over a space of rows.
#pragma once

#include <array>
#include <span>
#include <sstream>
#include <string>

#include "onepass/status.hpp"
#include "onepass/tensor.hpp"
#include "ops/row/args.hpp"

namespace onepass {

// "x: shape has -3 at dimension 0"
template <class... Parts>
Status invalid(std::string_view argument, const Parts&... parts) {
  std::ostringstream text;
  text << argument << ": ";
  (text << ... << parts);
  return {Code::invalid_argument, text.str()};
}

std::string shape_text(std::span<const std::int64_t> shape);
std::string shape_text(const ConstTensor& tensor);

// A pointer, a shape and strides that make sense together. `written` also asks that no two elements
// share memory.
Status check_tensor(std::string_view argument, const ConstTensor& tensor, bool written);

// One of the four floating types; the kernels take any pair of them.
Status check_floating(std::string_view argument, const ConstTensor& tensor);

// The shape of x, and how it divides into rows and an axis.
class Shape {
 public:
  static Status make(const ConstTensor& x, int axis, Shape& out);

  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return full()[static_cast<std::size_t>(axis_)]; }
  std::int64_t queries() const { return outer().empty() ? 1 : outer().back(); }
  RowSpace space() const;

  enum class Fit { exact, broadcast };
  // A tensor with a column for each of x's.
  Status lay_full(std::string_view argument, const ConstTensor& t, Fit fit, Operand& out) const;
  // A tensor with one value a row; a kept axis of extent 1 is fine.
  Status lay_rows(std::string_view argument, const ConstTensor& t, Fit fit, Operand& out) const;

 private:
  std::span<const std::int64_t> full() const { return {full_.data(), rank_}; }
  std::span<const std::int64_t> outer() const { return {outer_.data(), rank_ - 1}; }

  std::array<std::int64_t, kMaxRank> full_{1};  // x's shape; {1} for a scalar
  std::array<std::int64_t, kMaxRank> outer_{};  // the same without the axis
  std::size_t rank_ = 1;
  int axis_ = 0;
  std::int64_t rows_ = 0;
};

// Makes dimensions that all operands walk as one into one.
void collapse(RowSpace& space, std::span<Operand* const> operands);

// Whether two tensors share a byte, and whether they are the same elements in the same places.
bool overlap(const ConstTensor& a, const ConstTensor& b);
bool same_elements(const ConstTensor& a, const ConstTensor& b);

}  // namespace onepass
