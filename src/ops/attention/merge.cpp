#include "ops/attention/merge.hpp"

#include "rows/options.hpp"
#include "runtime/gpu.hpp"
#include "runtime/workers.hpp"

namespace onepass {

Status check_merge(ConstTensor a, ConstTensor lse_a, ConstTensor b, ConstTensor lse_b, Tensor o,
                   Tensor lse, MergeArgs& args) {
  args = {};
  Shape shape;
  const auto lay_o = [&](std::string_view name, const TensorRef& t, bool written, Operand& out) {
    ONEPASS_TRY(check_tensor(name, t, written, check_floating));
    if (t.rank != a.rank ||
        !std::equal(t.shape.begin(), t.shape.begin() + t.rank, a.shape.begin())) {
      return invalid(name, "shape ", shape_text(t), " is not that of a, ", shape_text(a));
    }
    return shape.lay_full(name, t, Shape::Fit::exact, out);
  };
  const auto lay_lse = [&](std::string_view name, const TensorRef& t, bool written, Operand& out) {
    ONEPASS_TRY(check_tensor(name, t, written, check_sums));
    if (t.rank != a.rank - 1 ||
        !std::equal(t.shape.begin(), t.shape.begin() + t.rank, a.shape.begin())) {
      return invalid(name, "shape ", shape_text(t), " is not that of a without the last, ",
                     shape_text(a));
    }
    return shape.lay_rows(name, t, Shape::Fit::exact, out);
  };
  ONEPASS_TRY(check_tensor("a", a, false));
  if (a.rank == 0) return invalid("a", "a scalar has no last dimension");
  ONEPASS_TRY(Shape::make(a, -1, shape));
  ONEPASS_TRY(lay_o("a", a, false, args.a));
  ONEPASS_TRY(lay_o("b", b, false, args.b));
  ONEPASS_TRY(lay_o("o", o, true, args.o));
  ONEPASS_TRY(lay_lse("lse_a", lse_a, false, args.lse_a));
  ONEPASS_TRY(lay_lse("lse_b", lse_b, false, args.lse_b));
  if (lse.present()) ONEPASS_TRY(lay_lse("lse", lse, true, args.lse));
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

void merge_on_cpu(const MergeArgs& args, int threads) {
  const RowSpace& space = args.space;
  const std::int64_t elements = space.rows * std::max<std::int64_t>(space.cols, 1);
  const auto useful = std::max<std::int64_t>(elements >> 14, 1);
  const auto value = [&](const Operand& operand, std::int64_t row, std::int64_t c = 0) {
    return read_at<double>(space, operand, row, c);
  };
  run_team(static_cast<int>(std::min<std::int64_t>(threads, useful)), [&](Team& team) {
    constexpr std::int64_t block = 16;
    for (std::int64_t r = team.take(block); r < space.rows; r = team.take(block)) {
      for (std::int64_t row = r; row < std::min(r + block, space.rows); ++row) {
        const Shares<double> by = shares(value(args.lse_a, row), value(args.lse_b, row));
        void* o = row_data(space, args.o, row);
        for (std::int64_t c = 0; c < space.cols; ++c) {
          const double both = by.a * value(args.a, row, c) + by.b * value(args.b, row, c);
          write(o, args.o.dtype, c * args.o.col_stride, both);
        }
        if (args.lse) write_at(space, args.lse, row, 0, by.lse);
      }
    }
  });
}

#ifndef ONEPASS_HAS_CUDA
Status merge_on_gpu(const MergeArgs&) { return gpu::available(); }
#endif

}  // namespace onepass
