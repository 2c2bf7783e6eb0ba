#include "ops/attention/merge_backward.hpp"

#include <algorithm>
#include <vector>

#include "ops/attention/merge.hpp"
#include "ops/attention/merge_layout.hpp"
#include "rows/options.hpp"
#include "runtime/gpu.hpp"
#include "runtime/workers.hpp"

namespace onepass {
namespace {

// The gradients of one query.
void merge_row(const MergeBackwardArgs& args, std::int64_t row) {
  const RowSpace& space = args.space;
  const auto value = [&](const Operand& operand, std::int64_t c = 0) {
    return read_at<double>(space, operand, row, c);
  };
  const Shares<double> by = shares(value(args.lse_a), value(args.lse_b));
  void* const d_a = row_data(space, args.d_a, row);
  void* const d_b = row_data(space, args.d_b, row);
  double difference = 0;
  for (std::int64_t c = 0; c < space.cols; ++c) {
    const double d_o = value(args.d_o, c);
    difference += d_o * (value(args.a, c) - value(args.b, c));
    write(d_a, args.d_a.dtype, c * args.d_a.col_stride, by.a * d_o);
    write(d_b, args.d_b.dtype, c * args.d_b.col_stride, by.b * d_o);
  }
  const double d_lse = args.d_lse ? value(args.d_lse) : 0;
  write_at(space, args.d_lse_a, row, 0, gradient_of_lse(by.a, by.b, difference, d_lse));
  write_at(space, args.d_lse_b, row, 0, gradient_of_lse(by.b, by.a, -difference, d_lse));
}

}  // namespace

Status check_merge_backward(const MergeBackwardTensors& t, MergeBackwardArgs& args) {
  args = {};
  Shape shape;
  ONEPASS_TRY(make_merge_shape(t.a, shape));
  const MergeLayout lay(t.a, shape);
  ONEPASS_TRY(lay.values("a", t.a, false, args.a));
  ONEPASS_TRY(lay.values("b", t.b, false, args.b));
  ONEPASS_TRY(lay.values("d_o", t.d_o, false, args.d_o));
  ONEPASS_TRY(lay.values("d_a", t.d_a, true, args.d_a));
  ONEPASS_TRY(lay.values("d_b", t.d_b, true, args.d_b));
  ONEPASS_TRY(lay.sums("lse_a", t.lse_a, false, args.lse_a));
  ONEPASS_TRY(lay.sums("lse_b", t.lse_b, false, args.lse_b));
  if (t.d_lse.present()) ONEPASS_TRY(lay.sums("d_lse", t.d_lse, false, args.d_lse));
  ONEPASS_TRY(lay.sums("d_lse_a", t.d_lse_a, true, args.d_lse_a));
  ONEPASS_TRY(lay.sums("d_lse_b", t.d_lse_b, true, args.d_lse_b));
  bool in_place = false;
  ONEPASS_TRY(check_overlaps(
      {{"d_a", t.d_a}, {"d_b", t.d_b}, {"d_lse_a", t.d_lse_a}, {"d_lse_b", t.d_lse_b}},
      {{"a", t.a},
       {"b", t.b},
       {"d_o", t.d_o},
       {"lse_a", t.lse_a},
       {"lse_b", t.lse_b},
       {"d_lse", t.d_lse}},
      {}, in_place));
  args.space = shape.space();
  std::vector<Operand*> present = {&args.a,     &args.b,     &args.d_o,     &args.d_a,    &args.d_b,
                                   &args.lse_a, &args.lse_b, &args.d_lse_a, &args.d_lse_b};
  if (args.d_lse) present.push_back(&args.d_lse);
  collapse(args.space, present);
  return {};
}

void merge_backward_on_cpu(const MergeBackwardArgs& args, int threads) {
  for_merged_rows(args.space, threads, [&](std::int64_t row) { merge_row(args, row); });
}

#ifndef ONEPASS_HAS_CUDA
Status merge_backward_on_gpu(const MergeBackwardArgs&) { return gpu::available(); }
#endif

}  // namespace onepass
