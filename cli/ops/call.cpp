#include "cli/ops/call.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/gpu/apparatus.hpp"
#include "cli/problem/fill.hpp"

namespace onepass::cli {
namespace {

// Options of another op's, then what its own driver refuses.
Status check_family(const Case& c) {
  if (c.loss && c.op != Op::cross_entropy_backward) {
    return {Code::invalid_argument, "loss: only cross_entropy_backward can give it beside dx"};
  }
  if ((c.weights || c.probabilities) && &driver_of(c.op) != &loss_driver) {
    return {Code::invalid_argument,
            fmt::format("{}: {} has none", c.weights ? "weights" : "probabilities", name(c.op))};
  }
  const auto check = driver_of(c.op).check;
  return check == nullptr ? Status{} : check(c);
}

// The shape as it lies in memory. Token-major, dimension `head` and the next are then exchanged.
std::vector<std::int64_t> shape_in_memory(const ArraySpec& spec, int& head) {
  std::vector<std::int64_t> shape = spec.shape;
  head = static_cast<int>(shape.size()) - 3;
  if (!spec.token_major) return shape;
  const auto at = static_cast<std::size_t>(head);
  std::swap(shape[at], shape[at + 1]);
  return shape;
}

Status allocate(const ArraySpec& spec, GuardedArray& array) {
  int head = 0;
  const std::vector<std::int64_t> shape = shape_in_memory(spec, head);
  const Status status = array.make(spec.dtype, shape, spec.layout);
  if (status.ok() && spec.token_major) array.swap_dimensions(head, head + 1);
  return status;
}

}  // namespace

std::int64_t Call::index(std::int64_t r, std::int64_t c) const {
  return r / inner_ * case_.cols() * inner_ + c * inner_ + r % inner_;
}

Status Call::make(const Case& wanted) {
  case_ = wanted;
  inner_ = 1;
  for (std::size_t i = static_cast<std::size_t>(case_.axis_index()) + 1; i < case_.shape.size();
       ++i) {
    inner_ *= case_.shape[i];
  }
  if (find_fill(case_.fill) == nullptr) {
    return {Code::invalid_argument, fmt::format("fill: there is no '{}'", case_.fill)};
  }
  if (Status status = check_family(case_); !status.ok()) return status;
  if (case_.in_place && case_.in != case_.out) {
    return {Code::invalid_argument, "in_place: needs one dtype for input and output"};
  }
  if (case_.rows() > (std::int64_t{1} << 32)) {
    return {Code::out_of_memory, fmt::format("{} rows are more than can be checked", case_.rows())};
  }
  specs_ = driver().arrays(case_);
  out_ = array::y;
  for (const ArraySpec& spec : specs_) {
    if (Status status = allocate(spec, arrays_[spec.id]); !status.ok()) return status;
    if (spec.access == Access::in_place) out_ = spec.id;
  }
  Random random(case_.seed);
  driver().fill(*this, random);
  for (const ArraySpec& spec : specs_) {
    if (!keeps_values(spec.access)) continue;
    const Status status = pristine_[spec.id].make_like(arrays_[spec.id]);
    if (!status.ok()) return status;
  }
  return to_device();
}

Status Call::to_device() {
  for (const ArraySpec& spec : specs_) {
    if (case_.device == Device::cpu) break;
    if (Status status = arrays_[spec.id].mirror(); !status.ok()) return status;
  }
  return {};
}

bool Call::writes(array::Id id) const {
  const auto spec = std::ranges::find(specs_, id, &ArraySpec::id);
  return spec != specs_.end() && spec->access != Access::input;
}

Status Call::make_like(const Call& other) {
  case_ = other.case_;
  specs_ = other.specs_;
  out_ = other.out_;
  inner_ = other.inner_;
  for (const ArraySpec& spec : specs_) {
    const Status status = arrays_[spec.id].make_like(other.arrays_[spec.id]);
    if (!status.ok()) return status;
  }
  for (const auto& [id, array] : other.pristine_) {
    if (Status status = pristine_[id].make_like(array); !status.ok()) return status;
  }
  return to_device();
}

Status Call::reset() {
  std::vector<std::span<std::byte>> all;
  for (const ArraySpec& spec : specs_) {
    GuardedArray& array = arrays_[spec.id];
    if (keeps_values(spec.access)) array.copy_from(pristine_.at(spec.id));
    if (spec.access == Access::output) array.poison();
    if (case_.device == Device::cpu) continue;
    if (spec.access != Access::input) {
      if (Status status = array.upload(); !status.ok()) return status;
    }
    all.push_back(array.bytes_on_gpu());
  }
  return case_.device == Device::cpu ? Status{} : gpu::arrive_late(all);
}

Status Call::fetch() {
  if (case_.device == Device::cpu) return {};
  if (Status status = gpu::synchronize(); !status.ok()) return status;
  for (const ArraySpec& spec : specs_) {
    if (spec.access == Access::input) continue;
    if (Status status = arrays_[spec.id].download(); !status.ok()) return status;
  }
  return {};
}

Status Call::run(const Context& context, std::string_view variant, Plan* plan) {
  Tensors tensors;
  for (const ArraySpec& spec : specs_) tensors[spec.id] = view(arrays_[spec.id]);
  return driver().run(context, case_, tensors, variant, plan);
}

oracle::Transform Call::transform(std::int64_t r) const {
  const std::int64_t cols = case_.cols();
  const std::int64_t queries = case_.shape.size() < 2 ? 1 : case_.row_shape().back();
  const GuardedArray& scale = arrays_[array::scale];
  const GuardedArray& temperature = arrays_[array::temperature];
  const GuardedArray& additive = arrays_[array::additive];
  const GuardedArray& boolean = arrays_[array::boolean];
  const GuardedArray& lengths = arrays_[array::lengths];
  oracle::Transform t{.scale = scale.present() ? scale.get(r) : case_.scale,
                      .temperature = temperature.present() ? temperature.get(r) : case_.temperature,
                      .softcap = case_.softcap};
  const auto masked = [&](const GuardedArray& a, std::int64_t c) {
    return a.get(case_.broadcast ? c : index(r, c));
  };
  const bool hides = boolean.present() || lengths.present() || case_.causal ||
                     case_.window_left >= 0 || case_.window_right >= 0;
  for (std::int64_t c = 0; c < cols; ++c) {
    if (additive.present()) t.additive.push_back(masked(additive, c));
    if (!hides) continue;
    const std::int64_t q = queries == 0 ? 0 : r % queries;
    t.keep.push_back(
        (!boolean.present() || masked(boolean, c) != 0) &&
        (!lengths.present() || static_cast<double>(c) < lengths.get(r)) &&
        (!case_.causal || oracle::causal_keeps(q, c, queries, cols)) &&
        oracle::window_keeps(q, c, queries, cols, case_.window_left, case_.window_right));
  }
  return t;
}

Status describe(const Case& c, Problem& out) {
  if (Status status = check_family(c); !status.ok()) return status;
  constexpr double kMost = 0x1p62;
  constexpr std::size_t kApart = 4096;
  Tensors tensors;
  std::uintptr_t at = kApart;
  for (const ArraySpec& spec : driver_of(c.op).arrays(c)) {
    int head = 0;
    const std::vector<std::int64_t> shape = shape_in_memory(spec, head);
    const std::vector<std::int64_t> strides = strides_of(shape, spec.layout);
    const auto width = static_cast<double>(size_of(spec.dtype));
    double elements = 1 + static_cast<double>(spec.layout.offset);
    for (std::size_t i = 0; i < shape.size(); ++i) {
      elements += static_cast<double>(shape[i]) * static_cast<double>(strides[i]);
    }
    if (static_cast<double>(at) + elements * width > kMost) {
      return {Code::invalid_argument,
              fmt::format("problem: '{}' spans more bytes than 2^62", to_string(c))};
    }
    auto* data = reinterpret_cast<std::byte*>(at) +
                 static_cast<std::size_t>(spec.layout.offset) * size_of(spec.dtype);
    Tensor& tensor = tensors[spec.id] = Tensor(data, spec.dtype, shape, strides);
    if (spec.token_major) {
      const auto first = static_cast<std::size_t>(head);
      std::swap(tensor.shape[first], tensor.shape[first + 1]);
      std::swap(tensor.strides[first], tensor.strides[first + 1]);
    }
    at += (static_cast<std::uintptr_t>(elements * width) / kApart + 2) * kApart;
  }
  return driver_of(c.op).describe(c, tensors, out);
}

}  // namespace onepass::cli
