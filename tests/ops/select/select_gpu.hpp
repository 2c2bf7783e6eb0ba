// The suite of tests that choose from rows on a GPU, and logits for it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "runtime/gpu.hpp"

namespace onepass {

inline std::vector<float> normal_logits(std::int64_t count, float sigma = 2) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> x(static_cast<std::size_t>(count));
  for (float& value : x) value = normal(random);
  return x;
}

class SelectGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const Status status = gpu::available(); !status.ok()) GTEST_SKIP() << status.message();
  }
};

}  // namespace onepass
