// Cases by their text, and generators of what they are made of.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cstdint>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/problem/case.hpp"

namespace onepass::cli {

inline Case parsed(std::string_view text) {
  Case c;
  const Status status = parse_case(text, c);
  EXPECT_TRUE(status.ok()) << text << ": " << status.message();
  return c;
}

inline std::vector<std::string> words_of(std::string_view text) {
  std::istringstream words{std::string(text)};
  return {std::istream_iterator<std::string>(words), {}};
}

inline constexpr std::array kFloating = {DType::f32, DType::f16, DType::bf16, DType::f64};

inline rc::Gen<bool> seldom() {
  return rc::gen::map(rc::gen::inRange(0, 4), [](int k) { return k == 0; });
}

// `usual` more often than not.
template <class T>
rc::Gen<T> mostly(T usual, rc::Gen<T> other) {
  return rc::gen::weightedOneOf<T>({{3, rc::gen::just(usual)}, {1, std::move(other)}});
}

inline rc::Gen<std::vector<std::int64_t>> any_shape(int most_dimensions, int most) {
  return rc::gen::mapcat(rc::gen::inRange(1, most_dimensions + 1), [most](int rank) {
    return rc::gen::container<std::vector<std::int64_t>>(
        static_cast<std::size_t>(rank),
        rc::gen::oneOf(rc::gen::just<std::int64_t>(1), rc::gen::inRange<std::int64_t>(1, most)));
  });
}

}  // namespace onepass::cli
