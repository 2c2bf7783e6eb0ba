// Inputs for verification and timing. Every named fill says which bug it catches.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "onepass/tensor.hpp"

namespace onepass::cli {

struct Fill {
  std::string_view name;
  std::string_view catches;
  // x of element c in a row of cols; `random` is standard normal, `limit` the largest finite value.
  double (*value)(std::int64_t row, std::int64_t c, std::int64_t cols, double random, double limit);
};

std::span<const Fill> fills();
const Fill* find_fill(std::string_view name);

// The largest finite value of a floating dtype.
double largest(DType dtype);

// A small generator with the same numbers on every platform.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15U + 1) {}
  std::uint64_t bits();
  double uniform();  // [0, 1)
  double normal();   // near enough: the sum of four uniforms, scaled to variance 1

 private:
  std::uint64_t state_;
};

}  // namespace onepass::cli
