#include "cli/ops/rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/number.hpp"

namespace onepass::cli {
namespace {

// Above this many elements a block of values is repeated: timing needs no more.
constexpr std::int64_t kDistinct = 1 << 20;

PerRow per_row(double all, const Tensor& each) { return each.present() ? PerRow(each) : all; }

}  // namespace

Layout in_layout(const Case& c) { return {.pad = c.pad, .step = c.step, .offset = c.offset}; }

Layout out_layout(const Case& c) {
  return {.pad = c.pad, .step = c.step, .offset = c.out_offset >= 0 ? c.out_offset : c.offset};
}

DType wide(const Case& c) { return c.in == DType::f64 ? DType::f64 : DType::f32; }

void add_logits(const Case& c, std::vector<ArraySpec>& all) {
  std::vector<std::int64_t> mask_shape = c.shape;
  if (c.broadcast) {
    std::ranges::fill(mask_shape, 1);
    mask_shape[static_cast<std::size_t>(c.axis_index())] = c.cols();
  }
  const auto add = [&](bool wanted, array::Id id, DType dtype,
                       const std::vector<std::int64_t>& shape) {
    if (wanted) all.push_back({id, Access::input, dtype, shape});
  };
  const std::vector<std::int64_t> row_shape = c.row_shape();
  add(c.scale_rows, array::scale, wide(c), row_shape);
  add(c.temperature_rows, array::temperature, wide(c), row_shape);
  add(c.additive, array::additive, c.in, mask_shape);
  add(c.boolean, array::boolean, DType::u8, mask_shape);
  add(c.lengths, array::lengths, DType::i32, row_shape);
}

void fill_logits(Call& call, Random& random) {
  const auto around_one = [&](std::int64_t) { return 0.5 + random.uniform(); };
  set_each(call[array::scale], around_one);
  set_each(call[array::temperature], around_one);
  set_each(call[array::additive], [&](std::int64_t) {
    return random.uniform() < 0.1 ? -std::numeric_limits<double>::infinity() : random.normal();
  });
  set_each(call[array::boolean], [&](std::int64_t) { return random.uniform() < 0.7 ? 1 : 0; });
  const auto cols = static_cast<double>(call.spec().cols());
  set_each(call[array::lengths], [&](std::int64_t i) {
    if (i == 0) return 0.0;
    const bool last = i + 1 == call[array::lengths].size();
    return last ? cols : std::floor(random.uniform() * (cols + 1));
  });
}

void fill_normal(GuardedArray& array, double size, bool dense, Random& random) {
  if (!dense || array.size() <= kDistinct) {
    return set_each(array, [&](std::int64_t) { return size * random.normal(); });
  }
  const Tensor& t = array.tensor();
  auto* data = static_cast<std::byte*>(t.data);
  const std::size_t width = size_of(t.dtype);
  for (std::int64_t i = 0; i < kDistinct; ++i) write(data, t.dtype, i, size * random.normal());
  for (std::int64_t i = kDistinct; i < array.size(); i += kDistinct) {
    const auto count = static_cast<std::size_t>(std::min(kDistinct, array.size() - i)) * width;
    std::copy_n(data, count, data + static_cast<std::size_t>(i) * width);
  }
}

void fill_x(Call& call, array::Id id, Random& random) {
  const Case& c = call.spec();
  GuardedArray& x = call[id];
  const Fill& fill = *find_fill(c.fill);
  const double limit = largest(c.in);
  if (x.size() > kDistinct && c.fill == "random" && x.bytes() >= kDistinct * 8 && id == array::x &&
      c.pad == 0 && c.step == 1) {
    return fill_normal(x, 3, true, random);
  }
  for (std::int64_t r = 0; r < c.rows(); ++r) {
    for (std::int64_t col = 0; col < c.cols(); ++col) {
      x.set(call.index(r, col), fill.value(r, col, c.cols(), random.normal(), limit));
    }
  }
}

void fill_targets(Call& call, Random& random) {
  const std::int64_t cols = call.spec().cols();
  set_each(call[array::target], [&](std::int64_t r) {
    const auto target = static_cast<std::int64_t>(random.uniform() * static_cast<double>(cols));
    const bool ignored = (call.spec().ignore && r % 4 == 1) || cols == 0;
    return static_cast<double>(ignored ? kIgnore : target);
  });
}

oracle::Row row_of(const Call& call, array::Id id, std::int64_t r) {
  oracle::Row row;
  for (std::int64_t c = 0; c < call.spec().cols(); ++c) {
    row.push_back(call[id].get(call.index(r, c)));
  }
  return row;
}

Mask mask_of(const Case& c, const Tensors& t) {
  return {.additive = t[array::additive],
          .boolean = t[array::boolean],
          .lengths = t[array::lengths],
          .causal = c.causal,
          .window_left = c.window_left,
          .window_right = c.window_right};
}

PerRow scale_of(const Case& c, const Tensors& t) { return per_row(c.scale, t[array::scale]); }

PerRow temperature_of(const Case& c, const Tensors& t) {
  return per_row(c.temperature, t[array::temperature]);
}

}  // namespace onepass::cli
