// Checks of one tensor, and its layout over a space of rows.
#pragma once

#include <array>
#include <span>
#include <sstream>
#include <string>

#include "onepass/status.hpp"
#include "onepass/tensor.hpp"
#include "rows/args.hpp"

namespace onepass {

// "x: shape has -3 at dimension 0"
template <class... Parts>
Status invalid(std::string_view argument, const Parts&... parts) {
  std::ostringstream text;
  text << argument << ": ";
  (text << ... << parts);
  return {Code::invalid_argument, text.str()};
}

// A tensor of either kind, by reference: every call of an op makes some, and copying shapes costs
// time.
struct TensorRef {
  const void* data;
  DType dtype;
  int rank;
  std::span<const std::int64_t, kMaxRank> shape, strides;

  template <class Void>
  TensorRef(const BasicTensor<Void>& t)
      : data(t.data), dtype(t.dtype), rank(t.rank), shape(t.shape), strides(t.strides) {}
  template <class Void>
  TensorRef(const BasicTensor<Void>&&) = delete;  // would dangle

  bool present() const { return rank >= 0; }
};

std::string shape_text(std::span<const std::int64_t> shape);
std::string shape_text(const TensorRef& tensor);

// Checks that the pointer, the shape and the strides of a tensor are consistent. If it is
// `written`, no two elements may share memory.
Status check_tensor(std::string_view argument, const TensorRef& tensor, bool written);

// What a dtype must be: one of the four floating types, i32 or i64, u8 for flags, f32 or f64 for an
// output of sums.
Status check_floating(std::string_view argument, const TensorRef& tensor);
Status check_integers(std::string_view argument, const TensorRef& tensor);
Status check_u8(std::string_view argument, const TensorRef& tensor);
Status check_sums(std::string_view argument, const TensorRef& tensor);

// check_tensor, then one of these.
using CheckDType = Status(std::string_view argument, const TensorRef& tensor);
Status check_tensor(std::string_view argument, const TensorRef& tensor, bool written,
                    CheckDType check_dtype);

// The shape of x, and how it divides into rows and an axis.
class Shape {
 public:
  static Status make(const TensorRef& x, int axis, Shape& out);

  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return full()[static_cast<std::size_t>(axis_)]; }
  std::int64_t queries() const { return outer().empty() ? 1 : outer().back(); }
  RowSpace space() const;

  enum class Fit { exact, broadcast };
  // A tensor with one column for each of x's.
  Status lay_full(std::string_view argument, const TensorRef& t, Fit fit, Operand& out) const;
  // A tensor with one value per row; an axis that is kept with extent 1 is fine.
  Status lay_rows(std::string_view argument, const TensorRef& t, Fit fit, Operand& out) const;

 private:
  std::span<const std::int64_t> full() const { return {full_.data(), rank_}; }
  std::span<const std::int64_t> outer() const { return {outer_.data(), rank_ - 1}; }

  std::array<std::int64_t, kMaxRank> full_{1};  // x's shape; {1} for a scalar
  std::array<std::int64_t, kMaxRank> outer_{};  // the same without the axis
  std::size_t rank_ = 1;
  int axis_ = 0;
  std::int64_t rows_ = 0;
};

// Merges dimensions that all operands can walk as one.
void collapse(RowSpace& space, std::span<Operand* const> operands);

// Whether two tensors share a byte, and whether they are the same elements in the same places.
bool overlap(const TensorRef& a, const TensorRef& b);
bool same_elements(const TensorRef& a, const TensorRef& b);

}  // namespace onepass
