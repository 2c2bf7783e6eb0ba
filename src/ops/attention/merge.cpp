#include "ops/attention/merge.hpp"

#include "ops/attention/merge_layout.hpp"
#include "rows/options.hpp"
#include "runtime/gpu.hpp"
#include "runtime/workers.hpp"

namespace onepass {

Status make_merge_shape(const TensorRef& a, Shape& shape) {
  ONEPASS_TRY(check_tensor("a", a, false));
  if (a.rank == 0) return invalid("a", "a scalar has no last dimension");
  return Shape::make(a, -1, shape);
}

Status MergeLayout::values(std::string_view name, const TensorRef& t, bool written,
                           Operand& out) const {
  ONEPASS_TRY(check_tensor(name, t, written, check_floating));
  if (t.rank != a_.rank ||
      !std::equal(t.shape.begin(), t.shape.begin() + t.rank, a_.shape.begin())) {
    return invalid(name, "shape ", shape_text(t), " is not that of a, ", shape_text(a_));
  }
  return shape_.lay_full(name, t, Shape::Fit::exact, out);
}

Status MergeLayout::sums(std::string_view name, const TensorRef& t, bool written,
                         Operand& out) const {
  ONEPASS_TRY(check_tensor(name, t, written, check_sums));
  if (t.rank != a_.rank - 1 ||
      !std::equal(t.shape.begin(), t.shape.begin() + t.rank, a_.shape.begin())) {
    return invalid(name, "shape ", shape_text(t), " is not that of a without the last, ",
                   shape_text(a_));
  }
  return shape_.lay_rows(name, t, Shape::Fit::exact, out);
}

Status check_merge(ConstTensor a, ConstTensor lse_a, ConstTensor b, ConstTensor lse_b, Tensor o,
                   Tensor lse, MergeArgs& args) {
  args = {};
  Shape shape;
  ONEPASS_TRY(make_merge_shape(a, shape));
  const MergeLayout lay(a, shape);
  ONEPASS_TRY(lay.values("a", a, false, args.a));
  ONEPASS_TRY(lay.values("b", b, false, args.b));
  ONEPASS_TRY(lay.values("o", o, true, args.o));
  ONEPASS_TRY(lay.sums("lse_a", lse_a, false, args.lse_a));
  ONEPASS_TRY(lay.sums("lse_b", lse_b, false, args.lse_b));
  if (lse.present()) ONEPASS_TRY(lay.sums("lse", lse, true, args.lse));
  // o may be a or b, and lse may be lse_a or lse_b: each query's values are read before they are
  // written.
  bool in_place = false;
  ONEPASS_TRY(check_overlaps({{"o", o}}, {{"lse_a", lse_a}, {"lse_b", lse_b}, {"lse", lse}},
                             {{"a", a}, {"b", b}}, in_place));
  ONEPASS_TRY(check_overlaps({{"lse", lse}}, {{"a", a}, {"b", b}},
                             {{"lse_a", lse_a}, {"lse_b", lse_b}}, in_place));
  args.space = shape.space();
  std::vector<Operand*> present = {&args.a, &args.b, &args.o, &args.lse_a, &args.lse_b};
  if (args.lse) present.push_back(&args.lse);
  collapse(args.space, present);
  return {};
}

void for_merged_rows(const RowSpace& space, int threads,
                     const std::function<void(std::int64_t)>& body) {
  const std::int64_t elements = space.rows * std::max<std::int64_t>(space.cols, 1);
  const auto useful = std::max<std::int64_t>(elements >> 14, 1);
  run_team(static_cast<int>(std::min<std::int64_t>(threads, useful)), [&](Team& team) {
    constexpr std::int64_t block = 16;
    for (std::int64_t r = team.take(block); r < space.rows; r = team.take(block)) {
      for (std::int64_t row = r; row < std::min(r + block, space.rows); ++row) body(row);
    }
  });
}

void merge_on_cpu(const MergeArgs& args, int threads) {
  const RowSpace& space = args.space;
  for_merged_rows(space, threads, [&](std::int64_t row) {
    const auto value = [&](const Operand& operand, std::int64_t c = 0) {
      return read_at<double>(space, operand, row, c);
    };
    const Shares<double> by = shares(value(args.lse_a), value(args.lse_b));
    void* o = row_data(space, args.o, row);
    for (std::int64_t c = 0; c < space.cols; ++c) {
      const double both = by.a * value(args.a, c) + by.b * value(args.b, c);
      write(o, args.o.dtype, c * args.o.col_stride, both);
    }
    if (args.lse) write_at(space, args.lse, row, 0, by.lse);
  });
}

#ifndef ONEPASS_HAS_CUDA
Status merge_on_gpu(const MergeArgs&) { return gpu::available(); }
#endif

}  // namespace onepass
