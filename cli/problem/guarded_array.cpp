#include "cli/problem/guarded_array.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cli/gpu/apparatus.hpp"
#include "cli/problem/sanitizers.hpp"
#include "core/number.hpp"

#ifdef ONEPASS_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

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

void GuardedArray::guard(bool closed) const {
#ifdef ONEPASS_ADDRESS_SANITIZER
  const auto mark = closed ? __asan_poison_memory_region : __asan_unpoison_memory_region;
  mark(storage_.data(), first_);
  mark(storage_.data() + end_, storage_.size() - end_);
#else
  (void)closed;
#endif
}

class GuardedArray::Opened {
 public:
  explicit Opened(const GuardedArray& array) : array_(array) { array_.guard(false); }
  ~Opened() { array_.guard(true); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

 private:
  const GuardedArray& array_;
};

Status GuardedArray::allocate(double bytes) {
  const bool countable = bytes < 0x1p60;
  if (!countable || !storage_.allocate(static_cast<std::size_t>(bytes) + 2 * kGuard)) {
    return {Code::out_of_memory, fmt::format("no memory for an array of {:.0f} bytes", bytes)};
  }
  std::memset(storage_.data(), static_cast<int>(kPattern), storage_.size());
  return {};
}

Status GuardedArray::make(DType dtype, std::span<const std::int64_t> shape, Layout layout) {
  return make(dtype, shape, strides_of(shape, layout), layout.offset);
}

Status GuardedArray::make(DType dtype, std::span<const std::int64_t> shape,
                          std::span<const std::int64_t> strides, std::int64_t offset) {
  // In floating point first: a shape may be larger than what integers count.
  double elements = 1, low = 0, high = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    elements *= static_cast<double>(shape[i]);
    const double reach = static_cast<double>(shape[i] - 1) * static_cast<double>(strides[i]);
    (reach < 0 ? low : high) += reach;
  }
  const bool none = elements == 0;
  const auto width = static_cast<double>(size_of(dtype));
  const double spanned = none ? 0 : (high - low + 1) * width;
  const double before = static_cast<double>(offset) * width;
  if (Status status = allocate(before + spanned); !status.ok()) return status;
  size_ = static_cast<std::int64_t>(elements);
  first_ = kGuard + static_cast<std::size_t>(before);
  end_ = first_ + static_cast<std::size_t>(spanned);
  const auto lowest = none ? 0 : static_cast<std::size_t>(-low) * size_of(dtype);
  tensor_ = Tensor(storage_.data() + first_ + lowest, dtype, shape, strides);
  in_c_order_ = std::ranges::equal(strides, strides_of(shape, {}));
  guard(true);
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
  const auto width = static_cast<std::ptrdiff_t>(size_of(tensor_.dtype));
  // Elements that lie side by side are filled together: a byte at a time would take longer than
  // many a kernel that is measured.
  const int last = tensor_.rank - 1;
  const bool dense = last >= 0 && tensor_.strides[static_cast<std::size_t>(last)] == 1;
  const std::int64_t run = dense ? tensor_.shape[static_cast<std::size_t>(last)] : 1;
  for (std::int64_t i = 0; i < size_; i += run) {
    std::memset(data + offset_of(i) * width, std::to_integer<int>(kPoison),
                static_cast<std::size_t>(run * width));
  }
}

bool GuardedArray::poisoned() const {
  const auto* data = static_cast<const std::byte*>(tensor_.data);
  const auto width = static_cast<std::ptrdiff_t>(size_of(tensor_.dtype));
  for (std::int64_t i = 0; i < size_; ++i) {
    const std::byte* element = data + offset_of(i) * width;
    if (!std::all_of(element, element + width, [](std::byte b) { return b == kPoison; }))
      return false;
  }
  return true;
}

bool GuardedArray::intact() const {
  const Opened opened(*this);
  std::vector<char> element(storage_.size());  // not bits: this is what the guards cost
  const std::ptrdiff_t first = static_cast<const std::byte*>(tensor_.data) - storage_.data();
  const auto width = static_cast<std::ptrdiff_t>(size_of(tensor_.dtype));
  for (std::int64_t i = 0; i < size_; ++i) {
    std::fill_n(element.begin() + first + offset_of(i) * width, width, 1);
  }
  for (std::size_t b = 0; b < storage_.size(); ++b) {
    if (element[b] == 0 && storage_.data()[b] != kPattern) return false;
  }
  return true;
}

Status GuardedArray::make_like(const GuardedArray& other) {
  const auto bytes = static_cast<double>(other.storage_.size() - 2 * kGuard);
  if (Status status = allocate(bytes); !status.ok()) return status;
  first_ = other.first_;
  end_ = other.end_;
  size_ = other.size_;
  tensor_ = other.tensor_;
  in_c_order_ = other.in_c_order_;
  const auto* data = static_cast<const std::byte*>(other.tensor_.data);
  tensor_.data = storage_.data() + (data - other.storage_.data());
  guard(true);
  copy_from(other);
  return {};
}

void GuardedArray::copy_from(const GuardedArray& other) {
  const Opened mine(*this), theirs(other);
  std::memcpy(storage_.data(), other.storage_.data(), storage_.size());
}

Status GuardedArray::mirror() {
  if (Status status = twin_.allocate(storage_.size()); !status.ok()) return status;
  return upload();
}

Status GuardedArray::upload() {
  const Opened opened(*this);
  return gpu::upload(twin_.data(), storage_.data(), storage_.size());
}

Status GuardedArray::download() {
  const Opened opened(*this);
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
