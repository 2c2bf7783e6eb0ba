#include "cli/guarded.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/number.hpp"

namespace onepass::cli {
namespace {

constexpr std::size_t kGuard = 256;  // bytes on either side
constexpr std::byte kPattern{0xA5};
constexpr std::byte kPoison{0xFF};

}  // namespace

std::vector<std::int64_t> strides_of(std::span<const std::int64_t> shape, Layout layout) {
  std::vector<std::int64_t> strides(shape.size());
  std::uint64_t stride = static_cast<std::uint64_t>(layout.step);  // unsigned: it may wrap around
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = static_cast<std::int64_t>(stride);
    stride *= static_cast<std::uint64_t>(shape[i]);
    if (i + 1 == shape.size()) stride += static_cast<std::uint64_t>(layout.pad);
  }
  return strides;
}

Status GuardedArray::make(DType dtype, std::span<const std::int64_t> shape, Layout layout) {
  // In floating point first: a shape may be larger than what integers count.
  double spanned = static_cast<double>(layout.step);
  for (std::size_t i = shape.size(); i-- > 0;) {
    spanned = spanned * static_cast<double>(shape[i]) +
              (i + 1 == shape.size() ? static_cast<double>(layout.pad) : 0.0);
  }
  spanned = (std::max(spanned, 1.0) + static_cast<double>(layout.offset)) *
            static_cast<double>(size_of(dtype));
  const bool countable = spanned < 0x1p60;
  const std::size_t bytes = countable ? static_cast<std::size_t>(spanned) + 2 * kGuard : 0;
  if (!countable || !storage_.allocate(bytes)) {
    return {Code::out_of_memory, fmt::format("no memory for an array of {:.0f} bytes", spanned)};
  }
  size_ = 1;
  for (const std::int64_t extent : shape) size_ *= extent;
  const std::vector<std::int64_t> strides = strides_of(shape, layout);
  std::memset(storage_.data(), static_cast<int>(kPattern), storage_.size());
  std::byte* first =
      storage_.data() + kGuard + static_cast<std::size_t>(layout.offset) * size_of(dtype);
  tensor_ = Tensor(first, dtype, shape, strides);
  in_c_order_ = strides == strides_of(shape, {});
  return {};
}

void GuardedArray::swap_dimensions(int a, int b) {
  const auto first = static_cast<std::size_t>(a);
  const auto second = static_cast<std::size_t>(b);
  std::swap(tensor_.shape[first], tensor_.shape[second]);
  std::swap(tensor_.strides[first], tensor_.strides[second]);
  in_c_order_ = false;
}

std::int64_t GuardedArray::offset_by_strides(std::int64_t i) const {
  std::int64_t offset = 0;
  for (int d = tensor_.rank - 1; d >= 0; --d) {
    const auto at = static_cast<std::size_t>(d);
    offset += i % tensor_.shape[at] * tensor_.strides[at];
    i /= tensor_.shape[at];
  }
  return offset;
}

double GuardedArray::get(std::int64_t i) const {
  return read<double>(tensor_.data, tensor_.dtype, offset_of(i));
}

void GuardedArray::set(std::int64_t i, double value) {
  write(tensor_.data, tensor_.dtype, offset_of(i), value);
}

void GuardedArray::poison() {
  auto* data = static_cast<std::byte*>(tensor_.data);
  const std::size_t width = size_of(tensor_.dtype);
  // Elements that lie side by side are filled together: a byte at a time would take longer than many
  // a kernel that is measured.
  const int last = tensor_.rank - 1;
  const bool dense = last >= 0 && tensor_.strides[static_cast<std::size_t>(last)] == 1;
  const std::int64_t run = dense ? tensor_.shape[static_cast<std::size_t>(last)] : 1;
  for (std::int64_t i = 0; i < size_; i += run) {
    std::memset(data + static_cast<std::size_t>(offset_of(i)) * width,
                std::to_integer<int>(kPoison), static_cast<std::size_t>(run) * width);
  }
}

bool GuardedArray::intact() const {
  std::vector<bool> element(storage_.size());
  const auto* data = static_cast<const std::byte*>(tensor_.data);
  const std::size_t width = size_of(tensor_.dtype);
  for (std::int64_t i = 0; i < size_; ++i) {
    const auto begin = static_cast<std::size_t>(data - storage_.data()) +
                       static_cast<std::size_t>(offset_of(i)) * width;
    std::fill_n(element.begin() + static_cast<std::ptrdiff_t>(begin), width, true);
  }
  for (std::size_t b = 0; b < storage_.size(); ++b) {
    if (!element[b] && storage_.data()[b] != kPattern) return false;
  }
  return true;
}

Status GuardedArray::make_like(const GuardedArray& other) {
  if (!storage_.allocate(other.storage_.size())) {
    return {Code::out_of_memory,
            fmt::format("no memory for an array of {} bytes", other.storage_.size())};
  }
  size_ = other.size_;
  tensor_ = other.tensor_;
  in_c_order_ = other.in_c_order_;
  const auto* data = static_cast<const std::byte*>(other.tensor_.data);
  tensor_.data = storage_.data() + (data - other.storage_.data());
  copy_from(other);
  return {};
}

void GuardedArray::copy_from(const GuardedArray& other) {
  std::memcpy(storage_.data(), other.storage_.data(), storage_.size());
}

Status GuardedArray::mirror() {
  if (Status status = twin_.allocate(storage_.size()); !status.ok()) return status;
  return upload();
}

Status GuardedArray::upload() {
  return gpu::upload(twin_.data(), storage_.data(), storage_.size());
}

Status GuardedArray::download() {
  return gpu::download(storage_.data(), twin_.data(), storage_.size());
}

Tensor GuardedArray::tensor_on(Device device) const {
  Tensor tensor = tensor_;
  if (device == Device::cuda && present()) {
    tensor.data = twin_.data() + (static_cast<const std::byte*>(tensor_.data) - storage_.data());
  }
  return tensor;
}

std::span<std::byte> GuardedArray::bytes_on_gpu() const {
  auto* data = static_cast<std::byte*>(tensor_on(Device::cuda).data);
  return {data, twin_.data() + twin_.size()};
}

}  // namespace onepass::cli
