// Arrays of tests on the GPU, and random ones.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <new>
#include <random>
#include <vector>

#include "cli/gpu/apparatus.hpp"
#include "tests/support/values.hpp"

namespace onepass::test {

inline Values random(DType dtype, const std::vector<std::int64_t>& shape, unsigned seed) {
  std::mt19937 source(seed);
  std::normal_distribution<double> distribution;
  Values values(dtype, shape);
  for (std::int64_t i = 0; i < values.size(); ++i) values.set(i, distribution(source));
  return values;
}

// Arrays of the CPU on the GPU, until they are brought back.
class Copies {
 public:
  Tensor operator()(Values& values) {
    Tensor t = values.tensor();
    Copy& copy = copies_.emplace_back();
    copy.of = &values;
    copy.bytes = static_cast<std::size_t>(values.size()) * size_of(t.dtype);
    if (!copy.buffer.allocate(std::max<std::size_t>(copy.bytes, 1)).ok()) throw std::bad_alloc();
    EXPECT_TRUE(gpu::upload(copy.buffer.data(), t.data, copy.bytes).ok());
    t.data = copy.buffer.data();
    return t;
  }
  void bring_back() {
    EXPECT_TRUE(gpu::synchronize().ok());
    for (Copy& copy : copies_) {
      EXPECT_TRUE(gpu::download(copy.of->tensor().data, copy.buffer.data(), copy.bytes).ok());
    }
  }

 private:
  struct Copy {
    Values* of;
    std::size_t bytes;
    gpu::Buffer buffer;
  };
  std::deque<Copy> copies_;
};

}  // namespace onepass::test
