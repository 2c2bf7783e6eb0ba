#include "cli/problem/fill.hpp"

#include <cmath>
#include <limits>

namespace onepass::cli {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

constexpr Fill kFills[] = {
    {"random", "wrong indexing, lost or doubled elements",
     [](std::int64_t, std::int64_t, std::int64_t, double random, double) { return 3 * random; }},
    {"all_minus_inf", "-inf - -inf = NaN in a row that is masked away",
     [](std::int64_t row, std::int64_t, std::int64_t, double random, double) {
       return row % 2 == 0 ? -kInf : random;
     }},
    {"some_minus_inf", "a -inf that weighs something, a first element of -inf",
     [](std::int64_t row, std::int64_t c, std::int64_t, double random, double) {
       return (c + row) % 3 == 0 ? -kInf : random;
     }},
    {"nan", "a NaN that vanishes in a max or a guard, or that reaches a neighbouring row",
     [](std::int64_t row, std::int64_t c, std::int64_t cols, double random, double) {
       return row % 3 == 0 && c == (row * 7 + cols / 2) % cols ? kNan : random;
     }},
    {"plus_inf", "inf - inf hidden by a guard that meant -inf",
     [](std::int64_t row, std::int64_t c, std::int64_t cols, double random, double) {
       return row % 3 == 1 && c == cols - 1 ? kInf : random;
     }},
    {"huge_offset", "a sum of exponentials without the maximum taken off: overflow",
     [](std::int64_t row, std::int64_t, std::int64_t, double random, double) {
       return (row % 2 == 0 ? 1000 : -1000) + 4 * random;
     }},
    {"equal", "a sum that loses small terms: every weight is 1/cols",
     [](std::int64_t row, std::int64_t, std::int64_t, double, double) {
       return static_cast<double>(row % 5) - 2;
     }},
    {"ascending", "a rescale left out when the maximum moves at every step",
     [](std::int64_t, std::int64_t c, std::int64_t cols, double, double) {
       return 20.0 * static_cast<double>(c) / static_cast<double>(cols) - 10;
     }},
    {"descending", "a maximum taken from the end of the row",
     [](std::int64_t, std::int64_t c, std::int64_t cols, double, double) {
       return 10 - 20.0 * static_cast<double>(c) / static_cast<double>(cols);
     }},
    {"ties", "a tie of maxima counted once",
     [](std::int64_t, std::int64_t c, std::int64_t, double random, double) {
       return c % 4 == 0 ? 5.0 : std::round(random);
     }},
    {"extremes", "x scaled by log2 e before the subtraction: finite inputs that become inf",
     [](std::int64_t row, std::int64_t c, std::int64_t, double random, double limit) {
       const double near = 0.88 * limit;
       return (c + row) % 5 == 0 ? near : (c + row) % 5 == 1 ? -near : random;
     }},
    {"clustered", "the largest all in one thread's slice, every 256th: more than its list can hold",
     [](std::int64_t row, std::int64_t c, std::int64_t, double random, double) {
       return (c + row) % 256 == 0 ? 10 + random : random;
     }},
    {"crumbs",
     "a long sum that drops what is below half an ulp of it: one weight of 1, a thousand others "
     "are 6e-8",
     [](std::int64_t row, std::int64_t c, std::int64_t cols, double, double) {
       return c == row * 7 % cols ? 0 : std::log(5.9e-8 / 1024);
     }},
    {"level", "a long sum of equal weights, whose additions all round the same way",
     [](std::int64_t row, std::int64_t c, std::int64_t cols, double, double) {
       return c == cols / 3 ? 0 : -0.7 - 0.3 * static_cast<double>(row % 8);
     }},
};

}  // namespace

std::span<const Fill> fills() { return kFills; }

const Fill* find_fill(std::string_view name) {
  for (const Fill& fill : kFills) {
    if (fill.name == name) return &fill;
  }
  return nullptr;
}

double largest(DType dtype) {
  switch (dtype) {
    case DType::f16: return 65504;
    case DType::bf16: return 0x1.FEp127;
    case DType::f64: return std::numeric_limits<double>::max();
    default: return std::numeric_limits<float>::max();
  }
}

std::uint64_t Random::bits() {  // splitmix64
  state_ += 0x9E3779B97F4A7C15U;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

double Random::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

double Random::normal() {
  const double sum = uniform() + uniform() + uniform() + uniform();
  return (sum - 2) * 1.7320508075688772;
}

}  // namespace onepass::cli
