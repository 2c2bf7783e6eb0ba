// Arrays in NumPy's .npy files.
//
// A file is hostile until its header agrees with its real size; nothing is allocated before that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/files/files.hpp"
#include "onepass/status.hpp"
#include "onepass/tensor.hpp"

namespace onepass::cli {

// Uninitialised memory on a cache line's boundary. Never null once allocated, even for no bytes,
// since the ops take a null pointer for a mistake.
class AlignedBytes {
 public:
  static constexpr std::size_t kAlignment = 64;

  [[nodiscard]] bool allocate(std::size_t size);  // false: there is not that much memory

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

// A dense C-order array that owns its memory.
struct Array {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  AlignedBytes data;

  // An array of this shape with uninitialised elements.
  static Status make(DType dtype, std::vector<std::int64_t> shape, Array& out);

  Tensor view() { return {data.data(), dtype, shape}; }
  ConstTensor view() const { return {data.data(), dtype, shape}; }
  std::span<const std::byte> bytes() const { return {data.data(), data.size()}; }
};

// Versions 1.0 to 3.0, C order, little-endian f2, f4 and f8. NumPy has no bfloat16: with bf16_as_u2
// the bits of a u2 array are taken for it, without it u2 is an error that names the flag.
Status read_npy(const std::string& path, bool bf16_as_u2, Array& out);

// The bytes that numpy.save would write; bf16 goes out as u2.
Status write_npy(const std::string& path, DType dtype, std::span<const std::int64_t> shape,
                 std::span<const std::byte> bytes);

}  // namespace onepass::cli
