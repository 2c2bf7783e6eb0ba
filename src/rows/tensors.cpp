#include "rows/tensors.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "core/try.hpp"

namespace onepass {
namespace {

struct Dimension {
  std::int64_t extent, stride;
};

// The dimensions of more than one element, the widest step first.
class Moving {
 public:
  explicit Moving(const TensorRef& t) {
    for (int i = 0; i < t.rank; ++i) {
      if (t.shape[i] > 1) list_[count_++] = {t.shape[i], std::abs(t.strides[i])};
    }
    std::sort(list_.begin(), list_.begin() + count_,
              [](const Dimension& a, const Dimension& b) { return a.stride > b.stride; });
  }

  std::size_t size() const { return static_cast<std::size_t>(count_); }
  const Dimension& operator[](std::size_t i) const { return list_[i]; }

 private:
  std::array<Dimension, kMaxRank> list_;  // not a vector: every call comes here
  int count_ = 0;
};

bool empty(const TensorRef& t) {
  return std::any_of(t.shape.begin(), t.shape.begin() + t.rank,
                     [](std::int64_t extent) { return extent == 0; });
}

// The range of bytes that a tensor's elements lie in.
struct Bytes {
  std::uintptr_t begin, end;
};

Bytes bytes_of(const TensorRef& t) {
  const auto base = reinterpret_cast<std::uintptr_t>(t.data);
  if (empty(t)) return {base, base};
  std::int64_t low = 0;
  std::int64_t high = 0;
  for (int i = 0; i < t.rank; ++i) {
    const std::int64_t reach = (t.shape[i] - 1) * t.strides[i];
    (reach < 0 ? low : high) += reach;
  }
  const auto size = static_cast<std::int64_t>(size_of(t.dtype));
  return {base + static_cast<std::uintptr_t>(low * size),
          base + static_cast<std::uintptr_t>((high + 1) * size)};
}

// The bytes that the dimensions from `level` on span.
std::int64_t width(const Moving& d, std::size_t level, std::int64_t size) {
  std::int64_t elements = 1;
  for (std::size_t i = level; i < d.size(); ++i) elements += (d[i].extent - 1) * d[i].stride;
  return elements * size;
}

// Whether two arrays of equal steps share a byte; b begins `apart` bytes after a. Modulo the widest
// step, b begins within one step after a or within one step before it. Only where the inner
// dimensions can then reach each other, they are compared in turn.
bool meet(const Moving& a, std::int64_t size_a, const Moving& b, std::int64_t size_b,
          std::size_t level, std::int64_t apart) {
  if (level == a.size() || level == b.size()) {
    return apart < width(a, level, size_a) && -apart < width(b, level, size_b);
  }
  const std::int64_t step = a[level].stride * size_a;
  if (step == 0 || step != b[level].stride * size_b) return true;  // unknown: assume they do
  const std::int64_t behind = (apart % step + step) % step;
  for (const std::int64_t each : {behind, behind - step}) {
    if (each < width(a, level + 1, size_a) && -each < width(b, level + 1, size_b) &&
        meet(a, size_a, b, size_b, level + 1, each)) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

std::string shape_text(const TensorRef& tensor) {
  return shape_text(tensor.shape.first(static_cast<std::size_t>(tensor.rank)));
}

Status check_tensor(std::string_view argument, const TensorRef& t, bool written) {
  if (!t.present()) return invalid(argument, "is missing");
  if (t.rank > kMaxRank) {
    return invalid(argument, "has more than ", kMaxRank,
                   " dimensions, or strides that do not match its shape");
  }
  if (size_of(t.dtype) == 0) {
    return invalid(argument, "dtype ", static_cast<int>(t.dtype), " does not exist");
  }
  std::int64_t elements = 1;
  for (int i = 0; i < t.rank; ++i) {
    if (t.shape[i] < 0) return invalid(argument, "shape has ", t.shape[i], " at dimension ", i);
    if (__builtin_mul_overflow(elements, t.shape[i], &elements)) {
      return invalid(argument, "shape ", shape_text(t), " has more elements than 64 bits count");
    }
  }
  if (elements == 0) return {};
  std::int64_t reach = 1;
  for (int i = 0; i < t.rank; ++i) {
    std::int64_t step = 0;
    if (t.strides[i] == std::numeric_limits<std::int64_t>::min() ||
        __builtin_mul_overflow(t.shape[i] - 1, std::abs(t.strides[i]), &step) ||
        __builtin_add_overflow(reach, step, &reach)) {
      return invalid(argument, "stride ", t.strides[i], " at dimension ", i, " overflows");
    }
  }
  if (reach > std::numeric_limits<std::int64_t>::max() / 8) {
    return invalid(argument, "shape ", shape_text(t), " spans more bytes than 64 bits count");
  }
  if (t.data == nullptr) return invalid(argument, "is a null pointer with shape ", shape_text(t));
  if (reinterpret_cast<std::uintptr_t>(t.data) % size_of(t.dtype) != 0) {
    return invalid(argument, "pointer ", t.data, " is not aligned to its dtype ", name(t.dtype));
  }
  // Each stride must step over the dimensions within it. A stride of 0 broadcasts an input.
  const Moving dimensions(t);
  std::int64_t width = 1;
  for (std::size_t i = dimensions.size(); i-- > 0;) {
    const auto [extent, stride] = dimensions[i];
    if (stride < width && (written || stride != 0)) {
      return invalid(argument, "stride ", stride, " is smaller than the ", width,
                     " elements it must step over");
    }
    if (stride != 0) width += (extent - 1) * stride;
  }
  return {};
}

Status check_tensor(std::string_view argument, const TensorRef& t, bool written,
                    CheckDType check_dtype) {
  ONEPASS_TRY(check_tensor(argument, t, written));
  return check_dtype(argument, t);
}

Status check_floating(std::string_view argument, const TensorRef& t) {
  if (is_floating(t.dtype)) return {};
  return invalid(argument, "dtype ", name(t.dtype), " is not one of f32, f16, bf16, f64");
}

Status check_integers(std::string_view argument, const TensorRef& t) {
  if (t.dtype == DType::i32 || t.dtype == DType::i64) return {};
  return invalid(argument, "dtype ", name(t.dtype), " is not i32 or i64");
}

Status check_u8(std::string_view argument, const TensorRef& t) {
  if (t.dtype == DType::u8) return {};
  return invalid(argument, "dtype ", name(t.dtype), " is not u8");
}

Status check_sums(std::string_view argument, const TensorRef& t) {
  if (t.dtype == DType::f32 || t.dtype == DType::f64) return {};
  return invalid(argument, "dtype ", name(t.dtype), " is not f32 or f64");
}

Status Shape::make(const TensorRef& x, int axis, Shape& out) {
  const int rank = std::max(x.rank, 1);
  out.rank_ = static_cast<std::size_t>(rank);
  std::copy_n(x.shape.begin(), x.rank, out.full_.begin());
  if (axis < -rank || axis >= rank) {
    return invalid("axis", axis, " is outside a tensor of ", rank, " dimensions");
  }
  out.axis_ = axis < 0 ? axis + rank : axis;
  const auto after = std::copy_n(out.full_.begin(), out.axis_, out.outer_.begin());
  std::copy(out.full_.begin() + out.axis_ + 1, out.full_.begin() + rank, after);
  out.rows_ = 1;
  for (const std::int64_t extent : out.outer()) {
    if (__builtin_mul_overflow(out.rows_, extent, &out.rows_)) {
      return invalid("x", "shape ", shape_text(x), " has more rows than 64 bits count");
    }
  }
  return {};
}

RowSpace Shape::space() const {
  RowSpace space{.rows = rows(), .cols = cols(), .rank = static_cast<int>(outer().size())};
  std::ranges::copy(outer(), space.extent.begin());
  return space;
}

Status Shape::lay_full(std::string_view argument, const TensorRef& t, Fit fit, Operand& out) const {
  const int rank = static_cast<int>(rank_);
  const bool scalar_x = t.rank == 0 && rank == 1 && full_[0] == 1;
  const int missing = rank - t.rank;
  bool fits = missing >= 0 && (fit == Fit::broadcast || missing == 0 || scalar_x);
  std::int64_t strides[kMaxRank] = {};
  for (int i = 0; fits && i < t.rank; ++i) {
    const std::int64_t wanted = full_[static_cast<std::size_t>(i + missing)];
    if (t.shape[i] == wanted) {
      strides[i + missing] = t.strides[i];
    } else {
      fits = fit == Fit::broadcast && t.shape[i] == 1;
    }
  }
  if (!fits) {
    return invalid(argument, "shape ", shape_text(t),
                   fit == Fit::exact ? " is not that of x, " : " does not broadcast to that of x, ",
                   shape_text(full()));
  }
  out = {.data = const_cast<void*>(t.data), .dtype = t.dtype, .col_stride = strides[axis_]};
  for (int i = 0, o = 0; i < rank; ++i) {
    if (i != axis_) out.row_strides[static_cast<std::size_t>(o++)] = strides[i];
  }
  return {};
}

Status Shape::lay_rows(std::string_view argument, const TensorRef& t, Fit fit, Operand& out) const {
  const bool keeps_axis = t.rank == static_cast<int>(rank_) && t.rank > 0 && t.shape[axis_] == 1;
  const int given = t.rank - (keeps_axis ? 1 : 0);
  const int missing = static_cast<int>(outer().size()) - given;
  bool fits = missing >= 0 && (fit == Fit::broadcast || missing == 0);
  Operand laid{.data = const_cast<void*>(t.data), .dtype = t.dtype};
  for (int i = 0; fits && i < given; ++i) {
    const int from = keeps_axis && i >= axis_ ? i + 1 : i;
    const auto o = static_cast<std::size_t>(i + missing);
    if (t.shape[from] == outer_[o]) {
      laid.row_strides[o] = t.strides[from];
    } else {
      fits = fit == Fit::broadcast && t.shape[from] == 1;
    }
  }
  if (!fits) {
    return invalid(argument, "shape ", shape_text(t),
                   fit == Fit::exact ? " is not that of x without the axis, "
                                     : " does not broadcast to that of x without the axis, ",
                   shape_text(outer()));
  }
  out = laid;
  return {};
}

void collapse(RowSpace& space, std::span<Operand* const> operands) {
  int kept = 0;
  for (int i = 0; i < space.rank; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (space.extent[at] == 1) continue;
    const auto last = static_cast<std::size_t>(kept - 1);
    const bool joins =
        kept > 0 && std::all_of(operands.begin(), operands.end(), [&](const Operand* o) {
          return o->row_strides[last] == o->row_strides[at] * space.extent[at];
        });
    const auto to = static_cast<std::size_t>(joins ? kept - 1 : kept);
    space.extent[to] = joins ? space.extent[to] * space.extent[at] : space.extent[at];
    for (Operand* o : operands) o->row_strides[to] = o->row_strides[at];
    kept += joins ? 0 : 1;
  }
  if (kept == 0) {
    space.extent[0] = 1;
    for (Operand* o : operands) o->row_strides[0] = 0;
    kept = 1;
  }
  space.rank = kept;
}

bool same_elements(const TensorRef& a, const TensorRef& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.rank != b.rank) return false;
  for (int i = 0; i < a.rank; ++i) {
    if (a.shape[i] != b.shape[i]) return false;
    if (a.shape[i] > 1 && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

bool overlap(const TensorRef& a, const TensorRef& b) {
  if (!a.present() || !b.present()) return false;
  const Bytes first = bytes_of(a);
  const Bytes second = bytes_of(b);
  if (first.begin == first.end || second.begin == second.end) return false;
  if (first.begin >= second.end || second.begin >= first.end) return false;
  // The ranges overlap, but the elements need not: they may be windows of one wider array.
  return meet(Moving(a), static_cast<std::int64_t>(size_of(a.dtype)), Moving(b),
              static_cast<std::int64_t>(size_of(b.dtype)), 0,
              static_cast<std::int64_t>(second.begin - first.begin));
}

}  // namespace onepass
