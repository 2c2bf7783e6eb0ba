// Arrays and calls for tests of the public API, apart from what the program's own verifier uses.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/number.hpp"
#include "core/problem.hpp"
#include "dispatch/variant.hpp"
#include "onepass/onepass.hpp"
#include "runtime/host.hpp"

namespace onepass::test {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr Op kForward[] = {Op::softmax, Op::log_softmax, Op::logsumexp};
inline constexpr DType kFloating[] = {DType::f32, DType::f16, DType::bf16, DType::f64};

// A dense array that starts out as NaN, or as the values given.
class Values {
 public:
  Values() = default;
  Values(DType dtype, std::vector<std::int64_t> shape) : dtype_(dtype), shape_(std::move(shape)) {
    for (const std::int64_t extent : shape_) size_ *= extent;
    memory_.assign(static_cast<std::size_t>(size_) + 1, ~std::uint64_t{0});
  }
  Values(DType dtype, std::vector<std::int64_t> shape, const std::vector<double>& values)
      : Values(dtype, std::move(shape)) {
    for (std::int64_t i = 0; i < size_; ++i) set(i, values.at(static_cast<std::size_t>(i)));
  }

  std::int64_t size() const { return size_; }
  double get(std::int64_t i) const { return read<double>(memory_.data(), dtype_, i); }
  void set(std::int64_t i, double value) { write(memory_.data(), dtype_, i, value); }
  Tensor tensor() { return {memory_.data(), dtype_, shape_}; }
  ConstTensor tensor() const { return {memory_.data(), dtype_, shape_}; }

  bool operator==(const Values& other) const = default;  // every bit
  friend void PrintTo(const Values& values, std::ostream* out) {
    *out << name(values.dtype_) << " [";
    for (std::int64_t i = 0; i < values.size_ && i < 40; ++i) *out << " " << values.get(i);
    *out << (values.size_ > 40 ? " …]" : " ]");
  }

 private:
  DType dtype_ = DType::f32;
  std::vector<std::int64_t> shape_;
  std::int64_t size_ = 1;
  std::vector<std::uint64_t> memory_;  // aligned for every dtype, with room to spare for the small
};

// Multiples of 1/2 between −8 and 8: exact in every dtype, and after a shift that is one as well.
inline std::vector<double> numbers(std::int64_t count, std::uint64_t seed = 1) {
  std::vector<double> values;
  std::uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    values.push_back(static_cast<double>(state >> 33 & 31) / 2 - 8);
  }
  return values;
}

inline Status forward(Op op, const Context& context, const Values& x, Values& y,
                      const SoftmaxOptions& options = {}) {
  switch (op) {
    case Op::softmax: return softmax(context, x.tensor(), y.tensor(), options);
    case Op::log_softmax: return log_softmax(context, x.tensor(), y.tensor(), options);
    default: return logsumexp(context, x.tensor(), y.tensor(), options);
  }
}

inline std::vector<std::int64_t> result_shape(Op op, std::int64_t rows, std::int64_t cols) {
  return op == Op::logsumexp ? std::vector{rows} : std::vector{rows, cols};
}

// Calls body once for each instruction set this machine has; the best is back afterwards.
inline void for_each_isa(const std::function<void()>& body) {
  for (const std::string& isa : runnable_isas()) {
    SCOPED_TRACE(isa);
    ASSERT_TRUE(force_isa(isa));
    body();
  }
  force_isa("");
}

// And once for each dtype and variant of an op, the dispatcher's own choice ("") among them.
inline void for_each_way(Op op, const std::function<void(DType, std::string_view)>& body) {
  for_each_isa([&] {
    for (const DType dtype : kFloating) {
      std::vector<std::string_view> names = {""};
      for (const Variant& v : variants(op)) {
        if (v.device == Device::cpu) names.push_back(v.name);
      }
      for (const std::string_view variant : names) {
        SCOPED_TRACE(std::string(name(op)) + " " + std::string(name(dtype)) +
                     " variant=" + std::string(variant));
        body(dtype, variant);
      }
    }
  });
}

}  // namespace onepass::test
