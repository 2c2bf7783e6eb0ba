// An array between guard bytes, of any layout: what a kernel may touch and what it must not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cli/files/npy.hpp"
#include "onepass/context.hpp"
#include "onepass/status.hpp"
#include "onepass/tensor.hpp"
#include "runtime/gpu.hpp"

namespace onepass::cli {

struct Layout {
  std::int64_t pad = 0;     // elements after each run of the last dimension
  std::int64_t step = 1;    // stride of the last dimension
  std::int64_t offset = 0;  // elements past an aligned address
};

std::vector<std::int64_t> strides_of(std::span<const std::int64_t> shape, Layout layout);

class GuardedArray {
 public:
  // Every byte, element or not, holds the guard pattern until it is set or poisoned.
  // AddressSanitizer reports whoever touches what lies before the first element or behind the last.
  Status make(DType dtype, std::span<const std::int64_t> shape, Layout layout = {});
  // The same with any strides, negative ones and 0 included; `offset` is that of
  // the lowest element.
  Status make(DType dtype, std::span<const std::int64_t> shape,
              std::span<const std::int64_t> strides, std::int64_t offset);

  // From here on two dimensions stand in each other's place; the memory stays as it is.
  void swap_dimensions(int a, int b);

  bool present() const { return tensor_.present(); }
  const Tensor& tensor() const { return tensor_; }
  std::int64_t size() const { return size_; }
  std::size_t bytes() const { return storage_.size(); }

  // Element i in C order.
  double get(std::int64_t i) const;
  void set(std::int64_t i, double value);

  void poison();          // every element becomes NaN (all bits set)
  bool poisoned() const;  // every element still is
  bool intact() const;    // no byte outside the elements has changed

  void copy_from(const GuardedArray& other);  // same make()
  Status make_like(const GuardedArray& other);

  // The same bytes in the GPU's memory, guards and all, as far past an aligned address.
  Status mirror();
  Status upload();
  Status download();
  Tensor tensor_on(Device device) const;
  std::span<std::byte> bytes_on_gpu() const;  // from the first element on

 private:
  std::int64_t offset_of(std::int64_t i) const { return in_c_order_ ? i : offset_by_strides(i); }
  std::int64_t offset_by_strides(std::int64_t i) const;
  Status allocate(double bytes);
  class Opened;  // while there is one, guards may be read
  void guard(bool closed) const;

  AlignedBytes storage_;
  std::size_t first_ = 0, end_ = 0;  // bytes of the storage that elements span
  Tensor tensor_;
  std::int64_t size_ = 0;
  bool in_c_order_ = true;  // elements lie as they are counted
  gpu::Buffer twin_;
};

}  // namespace onepass::cli
