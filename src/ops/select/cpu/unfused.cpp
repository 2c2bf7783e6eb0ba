// topk/cpu_unfused: softmax, then select. What one writes without this library.
//
// Idea    the row's probabilities go to memory, and std::partial_sort finds where the largest are.
// Versus  cpu_row: a row of probabilities is written and read back to keep K of them.
// Bytes   x twice, the probabilities once written and once read.
// Limits  no options; a row a thread of memory.
// Proof   `onepass verify`; numbers: results/.

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/long_state.hpp"
#include "ops/select/args.hpp"
#include "ops/select/cpu/best.hpp"
#include "ops/select/cpu/variants.hpp"
#include "rows/cpu/run.hpp"

namespace onepass::ops::select {
namespace {

template <class T>
class Unfused {
 public:
  explicit Unfused(const RowArgs& args)
      : args_(args),
        select_(*args.select),
        p_(static_cast<std::size_t>(args.space.cols)),
        order_(static_cast<std::size_t>(args.space.cols)) {}

  void run(std::int64_t row) {
    const Operand& x = args_.logits.x;
    const void* data = row_data(args_.space, x, row);
    const auto z = [&](std::int64_t c) { return read<T>(data, x.dtype, c * x.col_stride); };
    softmax_of(z);
    std::iota(order_.begin(), order_.end(), std::int64_t{0});
    const auto last = order_.begin() + static_cast<std::ptrdiff_t>(select_.k);
    const bool broken = std::isnan(p_[0]) && has_nan(z);
    if (!broken) {
      with_type(x.dtype, [&]<class Stored>(Type<Stored>) {
        const auto* values = static_cast<const Stored*>(data);
        const auto at = [&](std::int64_t c) { return load_as<T>(values[c * x.col_stride]); };
        std::partial_sort(order_.begin(), last, order_.end(), [&](std::int64_t a, std::int64_t b) {
          return Candidate<T>{at(a), a} < Candidate<T>{at(b), b};
        });
      });
    }
    double sum = 0;
    for (auto it = order_.begin(); it != last; ++it) {
      sum += static_cast<double>(p_[static_cast<std::size_t>(*it)]);
    }
    if (!select_.sorted) std::sort(order_.begin(), last);
    for (std::int64_t i = 0; i < select_.k; ++i) {
      const std::int64_t c = order_[static_cast<std::size_t>(i)];
      write_at(args_.space, select_.indices, row, i, broken ? std::int64_t{-1} : c);
      const T p = p_[static_cast<std::size_t>(c)];
      const T value = select_.values == TopkValues::renormalized
                          ? (sum == 0 ? T(0) : p / static_cast<T>(sum))
                          : p;
      write_at(args_.space, args_.out, row, i, value);
    }
  }

 private:
  // Into p_, as the textbook has it: ops/softmax/cpu/serial.cpp.
  template <class Z>
  void softmax_of(Z z) {
    LongState whole;
    for (std::int64_t c = 0; c < args_.space.cols; ++c) whole = merge(whole, LongState(leaf(z(c))));
    const State<T> state = narrow<T>(whole);
    for (std::int64_t c = 0; c < args_.space.cols; ++c) {
      p_[static_cast<std::size_t>(c)] = weight(state, z(c));
    }
  }

  template <class Z>
  bool has_nan(Z z) const {
    for (std::int64_t c = 0; c < args_.space.cols; ++c) {
      if (std::isnan(z(c))) return true;
    }
    return false;
  }

  const RowArgs& args_;
  const Select& select_;
  std::vector<T> p_;
  std::vector<std::int64_t> order_;
};

template <class T>
void unfused_rows(const RowArgs& args, Team& team) {
  Unfused<T> unfused(args);
  for (std::int64_t r = team.take(1); r < args.space.rows; r = team.take(1)) unfused.run(r);
}

void unfused_worker(const RowArgs& args, const CpuLaunch&, Team& team, std::byte*) {
  compute_type(args.logits.x.dtype) == DType::f64 ? unfused_rows<double>(args, team)
                                                  : unfused_rows<float>(args, team);
}

}  // namespace

Status cpu_unfused(const RowArgs& args, const CpuLaunch& launch) {
  return run_workers(args, launch, unfused_worker);
}

}  // namespace onepass::ops::select
