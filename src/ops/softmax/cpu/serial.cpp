// softmax/cpu_serial: one thread, one element at a time.
//
// Idea    the textbook in the words of core/state.hpp: fold every element into a State, then
//         weigh every element with it. The reading copy of all the others.
// Versus  nothing: this is where the walk begins.
// Bytes   x twice and y once; the second read is from cache for rows that fit.
// Limits  none: every dtype, stride, mask and length; slow everywhere.
// Proof   tests/ops, `onepass verify`; numbers: results/.

#include <cmath>

#include "core/long_state.hpp"
#include "ops/softmax/cpu/variants.hpp"

namespace onepass::ops::softmax {
namespace {

// z of one element; the vectorised form of this is rows/cpu/tile-inl.hpp.
template <class T>
T logit(const RowArgs& args, std::int64_t row, std::int64_t c) {
  const Logits& l = args.logits;
  const auto element = [&](const Operand& operand) {
    return read_at<T>(args.space, operand, row, c);
  };
  if (l.boolean && element(l.boolean) == T(0)) return minus_infinity<T>();
  T z = element(l.x) * static_cast<T>(row_scale(args.space, l, row));
  if (l.softcap > 0) {
    const T cap = static_cast<T>(l.softcap);
    z = cap * std::tanh(z / cap);
  }
  z /= static_cast<T>(row_temperature(args.space, l, row));
  return l.additive ? z + element(l.additive) : z;
}

template <class T>
void one_row(const RowArgs& args, std::int64_t row) {
  const Columns live = live_columns(args.space, args.logits, row);
  LongState whole;
  for (std::int64_t c = live.begin; c < live.end; ++c) {
    whole = merge(whole, LongState(leaf(logit<T>(args, row, c))));
  }
  const State<T> state = narrow<T>(whole);
  const T lse = static_cast<T>(onepass::logsumexp(whole));
  const auto put = [&](const Operand& operand, std::int64_t c, T value) {
    write_at(args.space, operand, row, c, value);
  };
  if (args.lse) put(args.lse, 0, lse);
  if (args.op == Op::logsumexp) return put(args.out, 0, lse);
  const bool log = args.op == Op::log_softmax;
  for (std::int64_t c = 0; c < args.space.cols; ++c) {
    const bool hidden = c < live.begin || c >= live.end;
    const T z = hidden ? minus_infinity<T>() : logit<T>(args, row, c);
    const T log_weight = state.d == T(0) ? minus_infinity<T>() : (z - state.m) - std::log(state.d);
    // z − m is NaN where a +inf or NaN made d NaN, hidden or not: the row is NaN as a whole.
    put(args.out, c, log ? log_weight : weight(state, z));
  }
}

}  // namespace

Status cpu_serial(const RowArgs& args, const CpuLaunch&) {
  const bool wide = compute_type(args.logits.x.dtype) == DType::f64;
  for (std::int64_t row = args.first_row; row < args.end_row; ++row) {
    wide ? one_row<double>(args, row) : one_row<float>(args, row);
  }
  return {};
}

}  // namespace onepass::ops::softmax
