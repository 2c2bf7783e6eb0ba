#include "rows/describe.hpp"

#include <cmath>

#include "rows/options.hpp"
#include "rows/packs.hpp"

namespace onepass {
namespace {

// The dtype that decides which type a call computes in.
DType computed_from(const RowArgs& args) {
  if (args.dy && args.dy.dtype == DType::f64) return DType::f64;
  return args.y ? args.y.dtype : args.logits.x.dtype;
}

}  // namespace
Status check_row_values(const RowArgs& args) {
  const Logits& z = args.logits;
  const std::int64_t cols = args.space.cols;
  ONEPASS_TRY(check_values<double>("scale", args.space, z.scale_rows, "finite",
                                   [](double v) { return std::isfinite(v); }));
  ONEPASS_TRY(check_values<double>("temperature", args.space, z.temperature_rows,
                                   "a positive number",
                                   [](double v) { return v > 0 && std::isfinite(v); }));
  const bool factors = z.scale_rows || z.temperature_rows;
  for (std::int64_t row = 0; factors && row < args.space.rows; ++row) {
    ONEPASS_TRY(check_factors(row_scale(args.space, z, row), row_temperature(args.space, z, row),
                              z.softcap, computed_from(args)));
  }
  if (!z.lengths) return {};  // saves making the text of an error
  return check_values<std::int64_t>("mask.lengths", args.space, z.lengths,
                                    "between 0 and " + std::to_string(cols),
                                    [cols](std::int64_t v) { return v >= 0 && v <= cols; });
}

Problem describe(const RowArgs& args) {
  const Operand& in = args.logits.x && !args.y ? args.logits.x : args.y;
  const Logits& z = args.logits;
  const bool full_out = traffic(args.op).writes > 0;
  Problem p{.op = args.op, .rows = args.space.rows, .cols = args.space.cols};
  p.in = computed_from(args);
  p.out = args.out.dtype;
  p.mixed_inputs = args.y && args.dy && args.y.dtype != args.dy.dtype;
  const auto last = static_cast<std::size_t>(args.space.rank - 1);
  const auto dense = [](const Operand& o) { return !o || o.col_stride == 1; };
  const auto side_by_side = [last](const Operand& o) { return o.row_strides[last] == 1; };
  const bool one = args.space.cols <= 1;
  p.unit_stride = one || (dense(in) && dense(args.dy) && (!full_out || dense(args.out)));
  p.unit_rows = !p.unit_stride && side_by_side(in) && (!full_out || side_by_side(args.out)) &&
                args.space.extent[last] > 1;
  p.even_rows = args.space.rank <= 1;
  p.aligned_rows = reinterpret_cast<std::uintptr_t>(in.data) % 16 == 0;
  for (int i = 0; i < args.space.rank; ++i) {
    const auto step = in.row_strides[i] * static_cast<std::int64_t>(size_of(in.dtype));
    p.aligned_rows = p.aligned_rows && (args.space.extent[i] == 1 || step % 16 == 0);
  }
  p.aligned_rows = p.aligned_rows || (!one && in.col_stride != 1);
  p.packed_rows = (args.op == Op::softmax || args.op == Op::log_softmax) &&
                  in_packs(args.space, in) && in_packs(args.space, args.out);
  p.plain = z.plain() && args.label_smoothing == 0;
  p.only_scaled = z.only_scaled();
  p.whole_rows = z.whole_rows();
  p.wants_lse = static_cast<bool>(args.lse);
  p.in_place = args.in_place;
  p.gives_loss = static_cast<bool>(args.loss);
  p.reduced = args.reduction != Reduction::none;
  p.weighted = args.weight || args.has_probabilities;
  p.probability_bytes = args.has_probabilities ? static_cast<int>(size_of(args.target.dtype)) : 0;
  return p;
}

}  // namespace onepass
