#include "rows/cpu/plan.hpp"

#include <algorithm>

#include "rows/cpu/layout.hpp"

namespace onepass {
namespace {

// Keeps the weights of a piece in cache if there is room. `longest` avoids overflow: no row of that
// length is kept.
void keep_weights(const Problem& p, const Machine& m, CpuLaunch& launch, Reasons* reasons) {
  constexpr std::int64_t longest = std::int64_t{1} << 48;
  const auto kept =
      static_cast<std::size_t>(kept_elements(std::min(p.cols, longest), launch.split)) *
      size_of(compute_type(p.in));
  const int sharing = p.batch_invariant ? m.threads : launch.threads;
  const double room = std::max(m.tuning.resident_share * static_cast<double>(m.l2),
                               m.tuning.resident_l3_share * static_cast<double>(m.l3) / sharing);
  launch.resident = static_cast<double>(kept) <= room;
  launch.scratch_bytes = launch.resident ? kept : 0;
  say(reasons, launch.resident ? "weights stay in cache: " : "x is read twice: the weights take ",
      kept, " bytes per thread, and there is room for ", static_cast<std::int64_t>(room));
}

void stream_stores(const Problem& p, const Machine& m, CpuLaunch& launch, Reasons* reasons) {
  if (p.batch_invariant) {  // where streaming stores begin depends on the output's address
    say(reasons, "stores through the caches: a row's bits shall not depend on where it lies");
    return;
  }
  const double written = static_cast<double>(p.rows) * static_cast<double>(p.cols) *
                         static_cast<double>(size_of(p.out)) * traffic(p.op).writes;
  if (m.tuning.streaming_bytes == 0 || written == 0 || p.in_place || !p.unit_stride) return;
  launch.streaming = written >= static_cast<double>(m.tuning.streaming_bytes);
  say(reasons, launch.streaming ? "streaming stores: " : "stores through the caches: ", written,
      " bytes are written, the limit is ", m.tuning.streaming_bytes);
}

CpuLaunch tiled(CpuLaunch launch, const Problem& p, const Machine& m, Reasons* reasons) {
  if (p.op == Op::softmax) keep_weights(p, m, launch, reasons);
  stream_stores(p, m, launch, reasons);
  return launch;
}

}  // namespace

Plan CpuLaunch::plan() const {
  return {.threads = threads,
          .split = split,
          .scratch_bytes = scratch_bytes,
          .details = text_of(resident ? "resident" : "reread", word(" streaming", streaming))};
}

int worthwhile_threads(const Problem& p, const Machine& m, Reasons* reasons) {
  const std::int64_t elements = p.rows * p.cols;
  const std::int64_t useful = std::max<std::int64_t>(1, elements / m.tuning.grain);
  const int threads = static_cast<int>(std::min<std::int64_t>(m.threads, useful));
  say(reasons, "threads = ", threads, ": ", elements, " elements keep ", useful, " busy at ",
      m.tuning.grain, " each, the machine has ", m.threads);
  return threads;
}

Cut best_cut(const Problem& p, const Machine& m, Reasons* why) {
  const int threads = worthwhile_threads(p, m, nullptr);
  if (threads == 1) {
    say(why, "rows whole: one thread has them all");
    return Cut::rows;
  }
  if (p.batch_invariant) {
    say(why, "rows whole: a row's bits shall not depend on the other rows");
    return Cut::rows;
  }
  if (p.cols < m.tuning.split_cols) {
    say(why, "rows whole: ", p.cols, " columns are fewer than the ", m.tuning.split_cols,
        " from which a meeting of threads pays");
    return Cut::rows;
  }
  const std::int64_t rounds = ceil_div(p.rows, threads);
  const double busy = static_cast<double>(p.rows) / static_cast<double>(rounds * threads);
  const bool idle = busy < 0.8;
  say(why, idle ? "rows cut: " : "rows whole: ", p.rows, " whole rows keep ", threads, " threads ",
      static_cast<int>(busy * 100), " % busy");
  return idle ? Cut::pieces : Cut::rows;
}

CpuLaunch alone(const Problem&, const Machine&, Reasons*) { return {}; }

CpuLaunch rows_over_threads(const Problem& p, const Machine& m, Reasons* reasons) {
  return {.threads = worthwhile_threads(p, m, reasons)};
}

CpuLaunch tiled_rows(const Problem& p, const Machine& m, Reasons* reasons) {
  return tiled(rows_over_threads(p, m, reasons), p, m, reasons);
}

CpuLaunch tiled_pieces(const Problem& p, const Machine& m, Reasons* reasons) {
  CpuLaunch launch = rows_over_threads(p, m, reasons);
  launch.split = launch.threads;
  return tiled(launch, p, m, reasons);
}

}  // namespace onepass
