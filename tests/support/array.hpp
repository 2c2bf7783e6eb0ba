// An array on the GPU.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "cli/gpu/apparatus.hpp"

namespace onepass {

template <class T>
class Array {
 public:
  explicit Array(std::size_t size) : size_(size) { allocate(); }
  explicit Array(const std::vector<T>& values) : size_(values.size()) {
    allocate();
    EXPECT_TRUE(gpu::upload(memory_.data(), values.data(), size_ * sizeof(T)).ok());
  }

  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  void poison() const { EXPECT_TRUE(gpu::fill(memory_.data(), 0xFF, size_ * sizeof(T)).ok()); }
  std::vector<T> values() const {
    std::vector<T> out(size_);
    EXPECT_TRUE(gpu::synchronize().ok());
    EXPECT_TRUE(gpu::download(out.data(), memory_.data(), size_ * sizeof(T)).ok());
    return out;
  }

 private:
  void allocate() {
    if (!memory_.allocate(std::max<std::size_t>(size_ * sizeof(T), 1)).ok()) {
      throw std::runtime_error("no memory on the GPU");
    }
  }
  gpu::Buffer memory_;
  std::size_t size_;
};

}  // namespace onepass
