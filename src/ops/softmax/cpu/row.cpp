// softmax/cpu_row, cpu_split: softmax, log_softmax and logsumexp over tiles that stay in L1.
//
// Idea    a tile folds to one State, tiles merge to the row's; softmax keeps exp(z − tile maximum),
//         or, of long rows, exp(z − a reference), in cache on the way, so that the finish is one
//         multiplication an element.
// Versus  cpu_serial: the same fold with a vector of lanes, a tile and a team in place of one
//         element at a time.
// Bytes   x once and y once while the weights of a row (softmax) or the row itself (the others)
//         stay in cache; a longer row is read a second time.
// Limits  none: every dtype, stride, mask and length.
// Proof   tests/ops, `onepass verify`; numbers: results/.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/softmax/cpu/row.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "core/simd/inline-inl.hpp"
#include "merge/lane-inl.hpp"
#include "ops/softmax/cpu/variants.hpp"
#include "rows/cpu/drive-inl.hpp"
#include "rows/cpu/lse-inl.hpp"
#include "rows/cpu/run.hpp"
#include "rows/cpu/tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// What the three ops share: logits in, a State, perhaps an lse out.
template <class Element>
struct StateBody {
  using T = Element;
  using Partial = LongState;

  struct Row {
    Row(const RowArgs& args, const CpuLaunch& launch, int64_t row)
        : z(args.space, args.logits, row),
          y(args.space, args.out, row, launch.streaming),
          index(row),
          paired(kPairs<T> && z.dense_bf16() && y.dense(DType::bf16)) {}
    Columns live() const { return z.live(); }

    // Calls body with a tile of logits, in pairs where its weights will be.
    template <class Body>
    ONEPASS_FORCED auto with_tile(int64_t c, size_t n, Buffers<T>& buffers, Body body) const {
      return z.with_tile(c, n, buffers, [this, body](auto* p) ONEPASS_INLINE {
        if constexpr (std::is_same_v<decltype(p), const BF16*>) {
          if (paired) return body(AnyOrder(p));
        }
        return body(p);
      });
    }

    LogitsReader<T> z;
    RowWriter<T> y;
    int64_t index;
    bool paired;  // bf16 to bf16: the kept weights are in pairs
  };

  const RowArgs& args;
  const CpuLaunch& launch;

  Partial fold(const Row& row, Columns columns, Keep<T>& keep) const {
    const hn::ScalableTag<T> d;
    Partial total;
    for_each_tile(columns, row.y.skew(), [&](int64_t c, size_t n, size_t tile) HWY_ATTR {
      if (keep.weights == nullptr) {
        total = row.z.with_tile(c, n, keep.buffers,
                                [=](auto* z) ONEPASS_INLINE { return FoldTile(d, z, n, total); });
        return;
      }
      T* const weights = keep.weights + kept_at(columns, row.y.skew(), c);
      total = row.with_tile(c, n, keep.buffers, [=, &row](auto* z) ONEPASS_INLINE {
        // Meanwhile the lines that it will be written to are fetched.
        return FoldTile(d, z, n, total, weights, [=, &row](size_t i, auto vectors) ONEPASS_INLINE {
          row.y.fetch(c + static_cast<int64_t>(i), vectors * hn::Lanes(d));
        });
      });
      keep.tile_max[tile] = static_cast<T>(total.m);
    });
    return total;
  }

  void conclude(const Row& row, const Partial& total, Keep<T>& keep) const {
    if (!args.lse) return;
    const T lse = RowLse(row.z, total, keep.buffers);
    write_at(args.space, args.lse, row.index, 0, lse);
  }
};

template <class Element>
struct SoftmaxBody : StateBody<Element> {
  using typename StateBody<Element>::T;
  using typename StateBody<Element>::Partial;
  using typename StateBody<Element>::Row;

  void finish(const Row& row, const Partial& whole, Columns columns, Keep<T>& keep) const {
    const hn::ScalableTag<T> d;
    const State<T> total = narrow<T>(whole);
    const bool empty = total.d == T(0);
    const T shift = empty ? T(0) : total.m;
    const T inverse = empty ? T(0) : T(1) / total.d;
    for_each_tile(columns, row.y.skew(), [&](int64_t c, size_t n, size_t tile) HWY_ATTR {
      if (keep.weights != nullptr) {
        return row.y.store(c, n, keep.weights + kept_at(columns, row.y.skew(), c),
                           factor(total, keep.tile_max[tile]), row.paired);
      }
      T* out = keep.buffers.out;
      row.z.with_tile(c, n, keep.buffers,
                      [=](auto* z) ONEPASS_INLINE { ExpTile(d, z, n, hn::Set(d, shift), out); });
      row.y.store(c, n, out, inverse);
    });
  }

  // A hidden column weighs nothing; in a row that is NaN it is NaN with the rest.
  void hide(const Row& row, const Partial& total, Columns columns) const {
    row.y.fill(columns, std::isnan(total.d) ? std::numeric_limits<T>::quiet_NaN() : T(0));
  }
};

template <class Element>
struct LogSoftmaxBody : StateBody<Element> {
  using typename StateBody<Element>::T;
  using typename StateBody<Element>::Partial;
  using typename StateBody<Element>::Row;

  // (z − m) − log d: with m taken off first, a large offset common to the row costs no digits.
  void finish(const Row& row, const Partial& total, Columns columns, Keep<T>& keep) const {
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    const bool empty = total.d == 0;
    const V m = hn::Set(d, empty ? T(0) : static_cast<T>(total.m));
    const V log_d = hn::Set(d, empty ? T(0) : static_cast<T>(std::log(total.d + total.lost)));
    for_each_tile(columns, row.y.skew(), [&](int64_t c, size_t n, size_t) HWY_ATTR {
      T* out = keep.buffers.out;
      row.z.with_tile(c, n, keep.buffers, [=](auto* z) ONEPASS_INLINE {
        Map(d, z, n, out, [m, log_d](V v) ONEPASS_INLINE { return hn::Sub(hn::Sub(v, m), log_d); });
      });
      row.y.store(c, n, out, T(1));
    });
  }

  void hide(const Row& row, const Partial& total, Columns columns) const {
    row.y.fill(columns,
               std::isnan(total.d) ? std::numeric_limits<T>::quiet_NaN() : minus_infinity<T>());
  }
};

template <class Element>
struct LogSumExpBody : StateBody<Element> {
  using typename StateBody<Element>::T;
  using typename StateBody<Element>::Partial;
  using typename StateBody<Element>::Row;

  void finish(const Row&, const Partial&, Columns, Keep<T>&) const {}
  void hide(const Row&, const Partial&, Columns) const {}
  void conclude(const Row& row, const Partial& total, Keep<T>& keep) const {
    const T lse = RowLse(row.z, total, keep.buffers);
    row.y.store(0, 1, &lse, T(1));
  }
};

// Softmax of long rows: one row is written out while the next is read. Between the two lies one row
// of weights: those of the next row take the place of those that are being written.
//
// A row's weights are relative to one reference, the largest of a few of its elements, so that
// nothing waits for a maximum. Where that turns out to have been far from it, as the sum tells, the
// row is weighed again, from cache, against its maximum.
class RowOverlap {
  using T = float;
  using Body = SoftmaxBody<T>;
  using Row = Body::Row;
  using D = hn::ScalableTag<T>;

 public:
  RowOverlap(const RowArgs& args, const CpuLaunch& launch, Keep<T>& keep)
      : body_{{args, launch}}, keep_(keep), cols_(args.space.cols) {}

  // Folds `next`, unless null, while the row before it, if any, is written.
  void pass(const Row* next) {
    if (next == nullptr) {
      if (!before_) return;
      for (const Columns part : parts(*before_)) write(part);
      return before_.reset();
    }
    LongState total = weigh(*next, reference(*next));
    // The reference itself weighs 1, but where it was −inf, or so large that it was rounded away.
    const bool near = total.d >= 0.5 && total.d < std::exp(kMostAbove - 1.0);
    if (!near) total = weigh_again(*next);
    body_.conclude(*next, total, keep_);
    before_.emplace(*next);
    const State<T> narrowed = narrow<T>(total);
    factor_ = factor(narrowed, narrowed.m);
  }

 private:
  static constexpr int64_t kStreams = 6;
  // Of fewer columns they would be over before the hardware follows them. One stream goes on
  // in the next row.
  static constexpr int64_t kStreamsFrom = 8 * kTile;
  static_assert(kGrain % (kPack * hn::MaxLanes(D())) == 0, "a grain is a number of packs");

  // A row's beginning up to where its output is aligned, what streams divide of it from there on,
  // and the rest. The weights of the second have the same place in every row.
  std::array<Columns, 3> parts(const Row& row) const {
    constexpr int64_t whole = kStreams * kGrain;
    const int64_t begin = kGrain - row.y.skew();
    const int64_t end = begin + (cols_ - kGrain) / whole * whole;
    return {{{0, begin}, {begin, end}, {end, cols_}}};
  }

  T* weights(const Row& row, int64_t c) const {
    return keep_.weights + kept_at({0, cols_}, row.y.skew(), c);
  }

  // Calls each(c, n) with pieces of a part: all of it, unless its logits have to be staged or tiles
  // are asked for.
  template <class Each>
  static ONEPASS_FORCED void in_pieces(const Row& row, Columns part, bool tiles, Each each) {
    const int64_t most = row.z.unstaged() && !tiles ? part.end - part.begin : kTile;
    for (int64_t c = part.begin; c < part.end; c += most) {
      each(c, static_cast<size_t>(std::min(most, part.end - c)));
    }
  }

  T maximum(const Row& row, Columns part) const {
    T m = minus_infinity<T>();
    in_pieces(row, part, false, [&](int64_t c, size_t n) HWY_ATTR {
      row.z.with_tile(c, n, keep_.buffers,
                      [&m, n](auto* z) ONEPASS_INLINE { m = std::max(m, MaxOf(D(), z, n)); });
    });
    return m;
  }

  T reference(const Row& row) const {
    const int64_t begin = parts(row)[1].begin;
    return shift(maximum(row, {begin, begin + kStreams * kGrain}));
  }

  // The sum of what sum(z, n, kept) gives for pieces of a part.
  template <class Sum>
  ONEPASS_FORCED double sum_of(const Row& row, Columns part, bool tiles, Sum sum) const {
    double total = 0;
    in_pieces(row, part, tiles, [&](int64_t c, size_t n) HWY_ATTR {
      T* const kept = weights(row, c);
      total += static_cast<double>(row.with_tile(
          c, n, keep_.buffers, [=](auto* z) ONEPASS_INLINE { return sum(z, n, kept); }));
    });
    return total;
  }

  template <class Stored>
  static ONEPASS_FORCED auto exp_around(const Stored*, T reference) {
    return ExpAround<D, Stored>(D(), reference);
  }

  struct Nothing {
    template <class Vectors>
    ONEPASS_FORCED void operator()(size_t, Vectors) const {}
  };

  // With the row before in turns where they are not aligned, at once between.
  LongState weigh(const Row& row, T reference) const {
    const auto [front, middle, back] = parts(row);
    const auto end_of = [&](Columns end, size_t part) HWY_ATTR {
      if (before_) write(parts(*before_)[part]);
      return sum_of(row, end, false, [=](auto* z, size_t n, T* kept) ONEPASS_INLINE {
        return WeighTile(D(), z, n, exp_around(z, reference), kept, Nothing());
      });
    };
    double sum = end_of(front, 0);
    sum += weigh_middle(row, middle, reference);
    sum += end_of(back, 2);
    return {reference, sum};
  }

  // Vector by vector where the types allow it: memory is then read and written as evenly as a copy
  // does it.
  double weigh_middle(const Row& row, Columns middle, T reference) const {
    const size_t streams = row.z.unstaged() && cols_ >= kStreamsFrom ? kStreams : 1;
    double sum = 0;
    const auto exchange = [&](auto* y) HWY_ATTR {
      using Out = std::remove_pointer_t<decltype(y)>;
      auto* const to = y + parts(*before_)[1].begin;
      const auto by = hn::Set(D(), factor_);
      const T* const first = weights(row, middle.begin);
      sum = sum_of(row, middle, false, [=](auto* z, size_t n, T* kept) ONEPASS_INLINE {
        using In = std::remove_cv_t<std::remove_pointer_t<decltype(z)>>;
        const auto write_before = [=](size_t i, auto vectors) ONEPASS_INLINE {
          if constexpr (kMeet<In, Out>) {
            StoreScaled<true, vectors()>(D(), kept + i, by, to + (kept - first) + i);
          }
        };
        return WeighStreams(D(), z, n, streams, exp_around(z, reference), kept, write_before);
      });
    };
    if (before_ && before_->paired == row.paired && before_->y.with_stream(row.paired, exchange)) {
      return sum;
    }
    if (before_) write(parts(*before_)[1]);
    return sum_of(row, middle, false, [=](auto* z, size_t n, T* kept) ONEPASS_INLINE {
      return WeighStreams(D(), z, n, streams, exp_around(z, reference), kept, Nothing());
    });
  }

  // Of the types that can be, those that do: pairs come with pairs.
  template <class In, class Out>
  static constexpr bool kMeet = std::is_same_v<In, PairedBF16> == std::is_same_v<Out, PairedBF16>;

  LongState weigh_again(const Row& row) const {
    const T m = maximum(row, {0, cols_});
    const auto by = hn::Set(D(), shift(m));
    double sum = 0;
    for (const Columns part : parts(row)) {
      sum += sum_of(row, part, true, [=](auto* z, size_t n, T* kept) ONEPASS_INLINE {
        const auto exp = [=](auto& v, size_t i) ONEPASS_INLINE { ExpPack(D(), z + i, by, v); };
        return WeighTile(D(), z, n, exp, kept, Nothing());
      });
    }
    return {m, sum};
  }

  // A part of the row before.
  void write(Columns part) const {
    before_->y.store(part.begin, static_cast<size_t>(part.end - part.begin),
                     weights(*before_, part.begin), factor_, before_->paired);
  }

  const Body body_;
  Keep<T>& keep_;
  const int64_t cols_;
  std::optional<Row> before_;  // weighed, its weights kept, to be written
  T factor_ = T(0);            // by which its weights are multiplied
};

void OverlapRows(const RowArgs& args, const CpuLaunch& launch, Team& team, std::byte* memory) {
  Buffers<float> buffers;
  Keep<float> keep{.buffers = buffers};
  keep.weights =
      reinterpret_cast<float*>(memory + static_cast<size_t>(team.rank()) * launch.scratch_bytes);
  RowOverlap overlap(args, launch, keep);
  const int64_t rows = args.end_row - args.first_row;
  const int64_t block = std::clamp<int64_t>(rows / (8 * team.size()), 1, 256);
  for (int64_t first = team.take(block); first < rows; first = team.take(block)) {
    for (int64_t r = first; r < std::min(first + block, rows); ++r) {
      const SoftmaxBody<float>::Row row(args, launch, args.first_row + r);
      overlap.pass(&row);
    }
    overlap.pass(nullptr);
  }
  if (launch.streaming) hwy::FlushStream();
}

template <class T>
void WorkAs(const RowArgs& args, const CpuLaunch& launch, Team& team, std::byte* memory) {
  switch (args.op) {
    case Op::softmax:
      // (HWY_SCALAR has no vectors to stream, and rows of float64 are too rare for
      // code of their own.)
      if constexpr (HWY_TARGET != HWY_SCALAR && std::is_same_v<T, float>) {
        if (launch.resident && launch.streaming && launch.split == 1 && args.logits.whole_rows() &&
            args.space.cols >= 2 * kTile) {
          return OverlapRows(args, launch, team, memory);
        }
      }
      return Drive<SoftmaxBody<T>>(args, launch, team, memory);
    case Op::log_softmax: return Drive<LogSoftmaxBody<T>>(args, launch, team, memory);
    default: return Drive<LogSumExpBody<T>>(args, launch, team, memory);
  }
}

void StateWorker(const RowArgs& args, const CpuLaunch& launch, Team& team, std::byte* memory) {
  compute_type(args.logits.x.dtype) == DType::f64 ? WorkAs<double>(args, launch, team, memory)
                                                  : WorkAs<float>(args, launch, team, memory);
}

}  // namespace
}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onepass::ops::softmax {

HWY_EXPORT(StateWorker);

Status cpu_row(const RowArgs& args, const CpuLaunch& launch) {
  return run_workers(args, launch, HWY_DYNAMIC_DISPATCH(StateWorker));
}

}  // namespace onepass::ops::softmax
#endif
