// topk, sample: cpu_row, cpu_split.
//
// Idea    one read of the row makes its State and its candidates: an element that is not above the
//         threshold costs a compare. Where many are (an ascending row), the maxima of interleaved
//         groups first raise it. A sample is the winner of a race among the candidates that its
//         filters leave, or among all.
// Bytes   x once. A sample whose filters leave more than the candidates reads the row once more for
//         their race, and twice before that where top_p says who they are.
// Limits  none: every dtype, stride, mask, K and length.
// Proof   tests/ops/select/topk_test.cpp, tests/ops/select/sample_test.cpp.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/select/cpu/row.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "core/simd/inline-inl.hpp"
#include "merge/lane-inl.hpp"
#include "ops/select/args.hpp"
#include "ops/select/cpu/best.hpp"
#include "ops/select/cpu/filter.hpp"
#include "ops/select/cpu/nucleus-inl.hpp"
#include "ops/select/cpu/offer-inl.hpp"
#include "ops/select/cpu/pieces.hpp"
#include "ops/select/cpu/variants.hpp"
#include "ops/select/gumbel.hpp"
#include "rows/cpu/lse-inl.hpp"
#include "rows/cpu/run.hpp"
#include "rows/cpu/tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// One row of a topk or a sample.
template <class T>
class Selector {
 public:
  Selector(const RowArgs& args, int64_t row, Buffers<T>& buffers)
      : args_(args), select_(*args.select), row_(row), buffers_(buffers), z_(reader(args, row)) {
    k_ = select_.k;
    if (args.op == Op::sample) prepare_sample();
    if (args.target) {
      target_ = read_at<int64_t>(args.space, args.target, row);
      if (target_ >= z_.live().begin && target_ < z_.live().end) {
        target_z_ = z_.at(target_, buffers_);
      }
    }
  }

  Columns live() const { return z_.live(); }

  int64_t k() const { return k_; }

  // Not inlined: of two copies the compiler could contract one in another way, and a row's bits
  // would depend on how it is cut.
  HWY_NOINLINE void fold(Columns columns, Piece<T>& piece) {
    const hn::ScalableTag<T> d;
    if (k_ > 0) bound_by_sample(columns, piece.best);
    for (int64_t chunk = columns.begin; chunk < columns.end; chunk += kChunk) {
      State<T> state = identity<T>();
      for (int64_t c = chunk; c < std::min(chunk + kChunk, columns.end); c += kTile) {
        const auto n = static_cast<size_t>(std::min(kTile, columns.end - c));
        const T* z = TileOf(z_, c, n, buffers_);
        const T m = k_ > 0 ? OfferTile(z, n, c, k_, piece.best) : MaxOf(d, z, n);
        state = FoldBelow(d, z, n, state, m);
        if (races_) race<false>(z, n, c, piece.winner);
        if (select_.target_rank) piece.rank += before_target(z, n, c);
      }
      piece.states.push_back(state);
    }
  }

  // Of the whole row.
  HWY_NOINLINE void conclude(Piece<T>& row) {
    const LongState whole = row.state();
    const T lse = RowLse(z_, whole, buffers_);
    const State<T> state = narrow<T>(whole);
    args_.op == Op::sample ? conclude_sample(row, state, lse) : conclude_topk(row, state, lse);
  }

 private:
  // A long row's first elements tell what need not be offered: much less than what is above a
  // threshold that begins with the first tile.
  void bound_by_sample(Columns columns, Best<T>& best) {
    const int64_t sample = sample_of(columns.end - columns.begin, k_);
    const size_t groups = groups_of(static_cast<size_t>(sample), static_cast<size_t>(k_));
    if (groups == 0) return;
    GroupMaxima<T> maxima(groups);
    for (int64_t c = columns.begin; c < columns.begin + sample; c += kTile) {
      maxima.take(TileOf(z_, c, kTile, buffers_), kTile);
    }
    // As many are at least as large, so all from it on are to be offered.
    best.raise(std::nextafter(maxima.kth(static_cast<size_t>(k_)), minus_infinity<T>()));
  }

  // A sample finds each row's temperature here, as it may be 0.
  static LogitsReader<T> reader(const RowArgs& args, int64_t row) {
    if (args.op != Op::sample) return {args.space, args.logits, row};
    const double t = args.select->temperature.of(args.space, row);
    if (t == 1 || t == 0) return {args.space, args.logits, row};
    Logits own = args.logits;
    own.temperature = t;
    return {args.space, own, row};
  }

  template <class Value>
  void put(const Operand& to, int64_t column, Value value) const {
    if (to) write_at(args_.space, to, row_, column, value);
  }

  // ---- topk ----

  // Tokens of a tile that come before the target. A token that is hidden comes after all that are
  // not, by index: those are counted at the end.
  int64_t before_target(const T* z, size_t n, int64_t c) const {
    const hn::ScalableTag<T> d;
    const auto value = hn::Set(d, target_z_);
    const auto earlier =
        static_cast<size_t>(std::clamp<int64_t>(target_ - c, 0, static_cast<int64_t>(n)));
    return CountIf(z, earlier, [value](auto v) ONEPASS_INLINE { return hn::Ge(v, value); }) +
           CountIf(z + earlier, n - earlier,
                   [value](auto v) ONEPASS_INLINE { return hn::Gt(v, value); });
  }

  void conclude_topk(Piece<T>& row, State<T> state, T lse) {
    if (args_.lse) put(args_.lse, 0, lse);
    const bool broken = std::isnan(lse);
    if (args_.target) {
      put(select_.target_logprob, 0, broken ? lse : log_probability(target_z_, state));
      int64_t rank = row.rank;
      // Hidden columns are −inf, too.
      if (target_z_ == minus_infinity<T>()) {
        rank += std::min(target_, live().begin) + std::max<int64_t>(0, target_ - live().end);
      }
      put(select_.target_rank, 0, broken ? int64_t{-1} : rank);
    }
    if (broken) {
      for (int64_t i = 0; i < k_; ++i) {
        put(args_.out, i, lse);
        put(select_.indices, i, int64_t{-1});
      }
      return;
    }
    std::vector<Candidate<T>> selected = row.best.sorted();
    fill_up(selected, k_);
    double sum = 0;  // of K weights, which may be many
    for (const Candidate<T>& c : selected) sum += static_cast<double>(weight(state, c.z));
    if (!select_.sorted) {
      std::sort(selected.begin(), selected.end(),
                [](const auto& a, const auto& b) { return a.index < b.index; });
    }
    for (int64_t i = 0; i < k_; ++i) {
      const Candidate<T>& c = selected[static_cast<size_t>(i)];
      put(select_.indices, i, c.index);
      put(args_.out, i, value_of(c.z, state, static_cast<T>(sum)));
    }
  }

  T value_of(T z, State<T> row, T sum) const {
    switch (select_.values) {
      case TopkValues::logit: return z;
      case TopkValues::log_probability: return log_probability(z, row);
      case TopkValues::renormalized: return sum == T(0) ? T(0) : weight(row, z) / sum;
      case TopkValues::probability: break;
    }
    return weight(row, z);
  }

  static T log_probability(T z, State<T> row) {
    if (row.d == T(0) || z == minus_infinity<T>())
      return row.d == row.d ? minus_infinity<T>() : row.d;
    return (z - row.m) - std::log(row.d);
  }

  // ---- sample ----

  void prepare_sample() {
    const RowSpace& space = args_.space;
    filters_ = {.top_k = std::min(select_.top_k.of(space, row_), space.cols),
                .top_p = select_.top_p.of(space, row_),
                .min_p = select_.min_p.of(space, row_)};
    seed_ = row_seed(select_.seed.of(space, row_), static_cast<bool>(select_.seed.rows), row_);
    offset_ = static_cast<uint64_t>(select_.offset.of(space, row_));
    greedy_ = select_.temperature.of(space, row_) == 0;
    races_ = !greedy_ && filters_.none();
    k_ = races_ ? 0 : candidates_of_sample(filters_.top_k, greedy_, space.cols);
  }

  // The race of a tile's tokens against the winner so far; with gaps where many do not run.
  template <bool Gaps>
  HWY_NOINLINE void race(const T* z, size_t n, int64_t first, Candidate<double>& winner) {
    const hn::ScalableTag<T> d;
    const T m = MaxOf(d, z, n);
    if (!(m > minus_infinity<T>())) return;
    ExpTile(d, z, n, hn::Set(d, m), buffers_.other);
    const double factor = std::exp(static_cast<double>(m) - winner.z);  // inf at first
    uint32_t word[kTile];
    for (size_t i = 0; i < n;) {
      const int64_t token = first + static_cast<int64_t>(i);
      const size_t end = std::min(n, i + static_cast<size_t>(4 - token % 4));
      if constexpr (Gaps) {
        if (std::all_of(z + i, z + end, [](T x) { return x == minus_infinity<T>(); })) {
          while (i < end) word[i++] = 0;
          continue;
        }
      }
      const Words4 words = words_of_tokens(seed_, offset_, token);
      for (auto k = static_cast<size_t>(token % 4); i < end; ++k) word[i++] = words[k];
    }
    const auto run = [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        if (!may_exceed(word[i], static_cast<double>(buffers_.other[i]) * factor)) continue;
        enter(z[i], first + static_cast<int64_t>(i), gumbel(word[i]), winner);
      }
    };
    size_t i = 0;
    if constexpr (sizeof(T) == 4) {  // most are ruled out a vector at a time
      const hn::RebindToSigned<decltype(d)> di;
      const hn::RebindToUnsigned<decltype(d)> du;
      const auto limit = hn::Set(d, static_cast<T>(std::min(1.01 * factor, 1e38) * 0x1p31));
      for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
        const auto half = hn::BitCast(di, hn::ShiftRight<1>(hn::LoadU(du, word + i)));
        const auto could = hn::Mul(hn::LoadU(d, buffers_.other + i), limit);
        if (!hn::AllFalse(d, hn::Le(hn::ConvertTo(d, half), could))) run(i, i + hn::Lanes(d));
      }
    }
    run(i, n);
  }

  static void enter(T z, int64_t token, double noise, Candidate<double>& winner) {
    if (z == minus_infinity<T>()) return;
    const Candidate<double> mine{static_cast<double>(z) + noise, token};
    if (mine < winner) winner = mine;
  }

  void conclude_sample(Piece<T>& row, State<T> state, T lse) {
    const bool valid = !std::isnan(lse) && state.d > T(0) && state.m < -minus_infinity<T>();
    put(select_.valid, 0, valid ? 1 : 0);
    if (!valid) {
      put(args_.out, 0, int64_t{-1});
      put(select_.logprob, 0, std::numeric_limits<T>::quiet_NaN());
      return;
    }
    const Candidate<double> winner = races_ ? row.winner : winner_of(state, row.best);
    put(args_.out, 0, winner.index);
    if (select_.logprob) {
      put(select_.logprob, 0, log_probability(z_.at(winner.index, buffers_), state));
    }
  }

  Candidate<double> winner_of(State<T> row, Best<T>& first) {
    std::vector<Candidate<T>> sorted = first.sorted();
    if (greedy_) return {0, sorted.front().index};
    // Every token above −inf is there once there are fewer than were asked for.
    const auto whole = [&] {
      return static_cast<int64_t>(sorted.size()) < k_ || k_ >= args_.space.cols;
    };
    const int64_t left = left_by(filters_, sorted, row, whole());
    if (left < 0) return winner_of_left(row);
    Candidate<double> winner = no_winner();
    for (int64_t i = 0; i < left; ++i) {
      const Candidate<T>& c = sorted[static_cast<size_t>(i)];
      enter(c.z, c.index, gumbel_of_token(seed_, offset_, c.index), winner);
    }
    return winner;
  }

  // Of so many that no list has them, without top_k: those that are not after the last one.
  Candidate<double> winner_of_left(State<T> row) {
    Candidate<T> last{minus_infinity<T>(), std::numeric_limits<int64_t>::max()};
    if (filters_.top_p < 1)
      last = LastWith(z_, buffers_, filters_.top_p * static_cast<double>(row.d), row.m);
    if (filters_.min_p > 0) {
      const auto least = static_cast<T>(static_cast<double>(row.m) + std::log(filters_.min_p));
      if (least > last.z) last = {least, std::numeric_limits<int64_t>::max()};
    }
    Candidate<double> winner = no_winner();
    EachTile(z_, buffers_, [&](const T* z, size_t n, int64_t c) {
      T left[kTile];
      for (size_t i = 0; i < n; ++i) {
        const bool ties = z[i] == last.z && c + static_cast<int64_t>(i) <= last.index;
        left[i] = z[i] > last.z || ties ? z[i] : minus_infinity<T>();
      }
      race<true>(left, n, c, winner);
    });
    return winner;
  }

  const RowArgs& args_;
  const Select& select_;
  int64_t row_;
  Buffers<T>& buffers_;
  LogitsReader<T> z_;
  int64_t k_ = 0;
  int64_t target_ = 0;
  T target_z_ = minus_infinity<T>();
  Filters filters_;
  uint64_t seed_ = 0, offset_ = 0;
  bool greedy_ = false;
  bool races_ = false;
};

template <class T>
void SelectRows(const RowArgs& args, Team& team) {
  const int64_t rows = args.end_row - args.first_row;
  // Small enough to level the load, large enough that short rows are not one by one.
  const int64_t block = std::clamp<int64_t>(rows / (8 * team.size()), 1, 16);
  Buffers<T> buffers;
  Piece<T> whole(0);
  for (int64_t first = team.take(block); first < rows; first = team.take(block)) {
    for (int64_t r = first; r < std::min(first + block, rows); ++r) {
      Selector<T> row(args, args.first_row + r, buffers);
      whole.restart(row.k());
      row.fold(row.live(), whole);
      row.conclude(whole);
    }
  }
}

template <class T>
void SelectSplit(const RowArgs& args, const CpuLaunch& launch, Team& team, std::byte* memory) {
  PieceTable<T> table(memory, launch.split, launch.scratch_bytes);
  Buffers<T> buffers;
  Piece<T> piece(0);
  for (int64_t r = args.first_row; r < args.end_row; ++r) {
    Selector<T> row(args, r, buffers);
    for (int i = team.rank(); i < launch.split; i += team.size()) {
      piece.restart(row.k());
      row.fold(chunk_piece(row.live(), launch.split, i), piece);
      table.put(i, piece);
    }
    team.barrier();
    if (team.rank() == 0) {
      piece.restart(row.k());
      table.gather(piece);
      row.conclude(piece);
    }
    team.barrier();  // the table is free again
  }
}

template <class T>
void WorkAs(const RowArgs& args, const CpuLaunch& launch, Team& team, std::byte* memory) {
  launch.split == 1 ? SelectRows<T>(args, team) : SelectSplit<T>(args, launch, team, memory);
}

void SelectWorker(const RowArgs& args, const CpuLaunch& launch, Team& team, std::byte* memory) {
  compute_type(args.logits.x.dtype) == DType::f64 ? WorkAs<double>(args, launch, team, memory)
                                                  : WorkAs<float>(args, launch, team, memory);
}

}  // namespace
}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onepass::ops::select {

HWY_EXPORT(SelectWorker);

Status cpu_row(const RowArgs& args, const CpuLaunch& launch) {
  return run_workers(args, launch, HWY_DYNAMIC_DISPATCH(SelectWorker));
}

}  // namespace onepass::ops::select
#endif
