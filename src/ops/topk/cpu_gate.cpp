// gate: cpu_row.
//
// Idea    a row of scores is short: it is read into a buffer, scored there, and the K largest are sorted out.
// Bytes   scores once.
// Limits  none: any number of experts, every dtype and stride.
// Proof   tests/ops/gate_test.cpp.

#include <cmath>
#include <vector>

#include "ops/row/run.hpp"
#include "ops/topk/best.hpp"
#include "ops/topk/select.hpp"
#include "ops/topk/variants.hpp"

namespace onepass::ops::topk {
namespace {

template <class T>
class Gate {
 public:
  explicit Gate(const RowArgs& args)
      : args_(args), select_(*args.select), scores_(static_cast<std::size_t>(args.space.cols)) {}

  void run(std::int64_t row) {
    row_ = row;
    score();
    if (broken_) {
      for (std::int64_t i = 0; i < select_.k; ++i) put(i, std::numeric_limits<T>::quiet_NaN(), -1);
      return;
    }
    const auto last = order_.begin() + static_cast<std::ptrdiff_t>(select_.k);
    std::partial_sort(order_.begin(), last, order_.end());
    T sum = 0;
    for (auto it = order_.begin(); it != last; ++it)
      sum += scores_[static_cast<std::size_t>(it->index)];
    const T factor =
        static_cast<T>(select_.scale) / (select_.renormalize && sum != T(0) ? sum : T(1));
    for (std::int64_t i = 0; i < select_.k; ++i) {
      const std::int64_t expert = order_[static_cast<std::size_t>(i)].index;
      put(i, scores_[static_cast<std::size_t>(expert)] * factor, expert);
    }
  }

 private:
  // Scores, and the order by them or, which distinguishes more, by the logits.
  void score() {
    const Operand& x = args_.logits.x;
    const void* data = row_data(args_.space, x, row_);
    order_.clear();
    State<T> state = identity<T>();
    broken_ = false;
    for (std::int64_t e = 0; e < args_.space.cols; ++e) {
      const T z = read<T>(data, x.dtype, e * x.col_stride);
      broken_ = broken_ || std::isnan(z);
      state.m = std::max(state.m, z);
      order_.push_back({z, e});
    }
    const bool soft = select_.score == GateScore::softmax;
    for (std::size_t e = 0; e < scores_.size(); ++e) {
      const T z = order_[e].z;
      scores_[e] = soft ? std::exp(z - shift(state.m)) : T(1) / (T(1) + std::exp(-z));
      state.d += scores_[e];
    }
    if (soft && state.d != T(0)) {
      broken_ = broken_ || std::isnan(state.d);  // of +inf
      for (T& s : scores_) s /= state.d;
    }
    if (!select_.bias) return;
    for (std::size_t e = 0; e < scores_.size(); ++e) {
      const auto at = static_cast<std::int64_t>(e) * select_.bias.col_stride;
      order_[e].z = scores_[e] + read<T>(select_.bias.data, select_.bias.dtype, at);
      broken_ = broken_ || std::isnan(order_[e].z);
    }
  }

  void put(std::int64_t i, T weight, std::int64_t expert) const {
    write(row_data(args_.space, args_.out, row_), args_.out.dtype, i * args_.out.col_stride,
          weight);
    const Operand& experts = select_.indices;
    write(row_data(args_.space, experts, row_), experts.dtype, i * experts.col_stride, expert);
  }

  const RowArgs& args_;
  const Select& select_;
  std::int64_t row_ = 0;
  bool broken_ = false;  // the row has a NaN
  std::vector<T> scores_;
  std::vector<Candidate<T>> order_;
};

template <class T>
void gate_rows(const RowArgs& args, Team& team) {
  constexpr std::int64_t block = 16;
  Gate<T> gate(args);
  for (std::int64_t first = team.take(block); first < args.space.rows; first = team.take(block)) {
    for (std::int64_t r = first; r < std::min(first + block, args.space.rows); ++r) gate.run(r);
  }
}

void gate_worker(const RowArgs& args, const Plan&, Team& team, std::byte*) {
  compute_type(args.logits.x.dtype) == DType::f64 ? gate_rows<double>(args, team)
                                                  : gate_rows<float>(args, team);
}

}  // namespace

Status cpu_gate(const RowArgs& args, const Plan& plan) {
  return run_workers(args, plan, gate_worker);
}

}  // namespace onepass::ops::topk
