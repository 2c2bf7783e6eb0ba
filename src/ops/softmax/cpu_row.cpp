// softmax/cpu_row, cpu_split: softmax, log_softmax and logsumexp over tiles that stay in L1.
//
// Idea    a tile folds to one State, tiles merge to the row's; softmax keeps exp(z − tile maximum)
//         in cache on the way, so that the finish is one multiplication a element.
// Versus  cpu_serial: the same fold with a vector of lanes, a tile and a team in place of one
//         element at a time.
// Bytes   x once and y once while the weights of a row (softmax) or the row itself (the others)
//         stay in cache; a longer row is read a second time.
// Limits  none: every dtype, stride, mask and length.
// Proof   tests/ops, `onepass verify`; numbers: results/.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/softmax/cpu_row.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <cmath>
#include <optional>

#include "core/simd/inline.hpp"
#include "merge/lane-inl.hpp"
#include "ops/row/drive-inl.hpp"
#include "ops/row/lse-inl.hpp"
#include "ops/row/run.hpp"
#include "ops/row/tile-inl.hpp"
#include "ops/softmax/variants.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// What the three ops share: logits in, a State, perhaps an lse out.
template <class Element>
struct StateBody {
  using T = Element;
  using Partial = State<T>;

  struct Row {
    Row(const RowArgs& args, const Plan& plan, int64_t row)
        : z(args.space, args.logits, row),
          y(args.space, args.out, row, plan.streaming),
          index(row),
          paired(kPairs<T> && z.dense_bf16() && y.dense(DType::bf16)) {}
    Columns live() const { return z.live(); }

    // Calls body with a tile of logits, in pairs where its weights will be.
    template <class Body>
    HWY_INLINE auto with_tile(int64_t c, size_t n, Buffers<T>& buffers, Body body) const {
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
  const Plan& plan;

  Partial fold(const Row& row, Columns columns, Keep<T>& keep) const {
    const hn::ScalableTag<T> d;
    Partial total = identity<T>();
    for_each_tile(columns, row.y.skew(), [&](int64_t c, size_t n, size_t tile) HWY_ATTR {
      if (keep.weights == nullptr) {
        total = row.z.with_tile(c, n, keep.buffers,
                                [=](auto* z) ONEPASS_INLINE { return FoldTile(d, z, n, total); });
        return;
      }
      T* weights = keep.weights + kept_at(columns, row.y.skew(), c);
      total = fold_kept(row, c, n, total, weights, keep);
      keep.tile_max[tile] = total.m;
    });
    return total;
  }

  // A tile whose weights are kept; meanwhile the lines that it will be written to are fetched.
  Partial fold_kept(const Row& row, int64_t c, size_t n, Partial total, T* weights,
                    Keep<T>& keep) const {
    const hn::ScalableTag<T> d;
    return row.with_tile(c, n, keep.buffers, [=, &row](auto* z) ONEPASS_INLINE {
      return FoldTile(d, z, n, total, weights, [=, &row](size_t i, auto vectors) ONEPASS_INLINE {
        row.y.fetch(c + static_cast<int64_t>(i), vectors * hn::Lanes(d));
      });
    });
  }

  void conclude(const Row& row, Partial total, Keep<T>& keep) const {
    if (!args.lse) return;
    const T lse = RowLse(row.z, total, keep.buffers);
    write(row_data(args.space, args.lse, row.index), args.lse.dtype, 0, lse);
  }
};

template <class Element>
struct SoftmaxBody : StateBody<Element> {
  using typename StateBody<Element>::T;
  using typename StateBody<Element>::Partial;
  using typename StateBody<Element>::Row;

  void finish(const Row& row, Partial total, Columns columns, Keep<T>& keep) const {
    const hn::ScalableTag<T> d;
    const bool empty = total.d == T(0);
    const T shift = empty ? T(0) : total.m;
    const T inverse = empty ? T(0) : T(1) / total.d;
    for_each_tile(columns, row.y.skew(), [&](int64_t c, size_t n, size_t tile) HWY_ATTR {
      if (keep.weights != nullptr) {
        return finish_kept(row, total, c, n, keep.weights + kept_at(columns, row.y.skew(), c),
                           keep.tile_max[tile]);
      }
      T* out = keep.buffers.out;
      row.z.with_tile(c, n, keep.buffers,
                      [=](auto* z) ONEPASS_INLINE { ExpTile(d, z, n, hn::Set(d, shift), out); });
      row.y.store(c, n, out, inverse);
    });
  }

  // One tile from the weights that the fold kept of it.
  void finish_kept(const Row& row, Partial total, int64_t c, size_t n, const T* weights,
                   T tile_max) const {
    row.y.store(c, n, weights, kept_factor(total, tile_max), row.paired);
  }

  static T kept_factor(Partial total, T tile_max) {
    const bool empty = total.d == T(0);
    const T inverse = empty ? T(0) : T(1) / total.d;
    const T shift = empty ? T(0) : total.m;
    return tile_max == total.m ? inverse : std::exp(tile_max - shift) * inverse;
  }

  // A hidden column weighs nothing; in a row that is NaN it is NaN with the rest.
  void hide(const Row& row, Partial total, Columns columns) const {
    row.y.fill(columns, std::isnan(total.d) ? total.d : T(0));
  }
};

template <class Element>
struct LogSoftmaxBody : StateBody<Element> {
  using typename StateBody<Element>::T;
  using typename StateBody<Element>::Partial;
  using typename StateBody<Element>::Row;

  // (z − m) − log d: with m taken off first, a large offset common to the row costs no digits.
  void finish(const Row& row, Partial total, Columns columns, Keep<T>& keep) const {
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    const bool empty = total.d == T(0);
    const V m = hn::Set(d, empty ? T(0) : total.m);
    const V log_d = hn::Set(d, empty ? T(0) : std::log(total.d));
    for_each_tile(columns, row.y.skew(), [&](int64_t c, size_t n, size_t) HWY_ATTR {
      T* out = keep.buffers.out;
      row.z.with_tile(c, n, keep.buffers, [=](auto* z) ONEPASS_INLINE {
        Map(d, z, n, out, [m, log_d](V v) ONEPASS_INLINE { return hn::Sub(hn::Sub(v, m), log_d); });
      });
      row.y.store(c, n, out, T(1));
    });
  }

  void hide(const Row& row, Partial total, Columns columns) const {
    row.y.fill(columns, std::isnan(total.d) ? total.d : minus_infinity<T>());
  }
};

template <class Element>
struct LogSumExpBody : StateBody<Element> {
  using typename StateBody<Element>::T;
  using typename StateBody<Element>::Partial;
  using typename StateBody<Element>::Row;

  void finish(const Row&, Partial, Columns, Keep<T>&) const {}
  void hide(const Row&, Partial, Columns) const {}
  void conclude(const Row& row, Partial total, Keep<T>& keep) const {
    const T lse = RowLse(row.z, total, keep.buffers);
    row.y.store(0, 1, &lse, T(1));
  }
};

// Softmax of long rows: one row is written out while the next is read. Between the two lies one row
// of weights: a tile of the next row is folded into the place of a tile that is being written.
template <class T>
class RowOverlap {
  using Body = SoftmaxBody<T>;
  using Row = typename Body::Row;

 public:
  RowOverlap(const RowArgs& args, const Plan& plan, Keep<T>& keep)
      : body_{{args, plan}}, keep_(keep), cols_(args.space.cols) {}

  // Folds `next`, unless null, while the row before it, if any, is written.
  void pass(const Row* next) {
    State<T> total = identity<T>();
    for (int64_t tile = 0; tile < ceil_div(cols_ + kGrain - 1, kTile); ++tile) {
      if (next != nullptr && exchange(*next, tile, total)) continue;
      if (before_) write(tile);
      if (next != nullptr) fold(*next, tile, total);
    }
    before_.reset();
    if (next == nullptr) return;
    body_.conclude(*next, total, keep_);
    before_.emplace(*next);
    before_total_ = total;
  }

 private:
  Columns columns(const Row& row, int64_t tile) const {
    const int64_t skew = row.y.skew();
    return {tile_begin(cols_, skew, tile), tile_begin(cols_, skew, tile + 1)};
  }

  T* weights(const Row& row, int64_t c) const {
    return keep_.weights + kept_at({0, cols_}, row.y.skew(), c);
  }

  void write(int64_t tile) const {
    const Columns mine = columns(*before_, tile);
    if (mine.begin == mine.end) return;
    body_.finish_kept(*before_, before_total_, mine.begin,
                      static_cast<size_t>(mine.end - mine.begin), weights(*before_, mine.begin),
                      keep_.tile_max[tile]);
  }

  void fold(const Row& row, int64_t tile, State<T>& total) {
    const Columns mine = columns(row, tile);
    if (mine.begin == mine.end) return;
    total = body_.fold_kept(row, mine.begin, static_cast<size_t>(mine.end - mine.begin), total,
                            weights(row, mine.begin), keep_);
    keep_.tile_max[tile] = total.m;
  }

  // Both at once, vector by vector, where the tile is a whole one of both rows: memory is then read
  // and written as evenly as a copy does it. False if the two have to take turns.
  bool exchange(const Row& row, int64_t tile, State<T>& total) {
    if (!before_ || before_->paired != row.paired) return false;
    const Columns out = columns(*before_, tile);
    const Columns in = columns(row, tile);
    if (out.end - out.begin != kTile || in.end - in.begin != kTile) return false;
    const hn::ScalableTag<T> d;
    const T factor = Body::kept_factor(before_total_, keep_.tile_max[tile]);
    T* const kept = weights(row, in.begin);
    const bool done = before_->y.with_stream(out.begin, row.paired, [&](auto* y) HWY_ATTR {
      using Out = std::remove_pointer_t<decltype(y)>;
      const Factor<hn::ScalableTag<T>, Out> scaled(d, factor);
      total = row.with_tile(in.begin, kTile, keep_.buffers, [=](auto* z) ONEPASS_INLINE {
        using In = std::remove_cv_t<std::remove_pointer_t<decltype(z)>>;
        return FoldTile(d, z, kTile, total, kept, [=](size_t i, auto vectors) ONEPASS_INLINE {
          if constexpr (CanExchange<In, Out, vectors()>()) {
            StoreScaled<true, vectors()>(d, kept + i, scaled, y + i);
          }
        });
      });
      return true;
    });
    if (done) keep_.tile_max[tile] = total.m;
    return done;
  }

  // What the types allow that can meet here: pairs with pairs, and no part of a group (kTile is a
  // multiple of every pack, so none is left over).
  template <class In, class Out, size_t Vectors>
  static constexpr bool CanExchange() {
    return std::is_same_v<In, PairedBF16> == std::is_same_v<Out, PairedBF16> &&
           Vectors % kGroup<T, Out> == 0;
  }

  const Body body_;
  Keep<T>& keep_;
  const int64_t cols_;
  std::optional<Row> before_;  // folded, its weights kept, to be written
  State<T> before_total_ = identity<T>();
};

template <class T>
void OverlapRows(const RowArgs& args, const Plan& plan, Team& team, std::byte* memory) {
  Buffers<T> buffers;
  Keep<T> keep{.buffers = buffers};
  keep.weights =
      reinterpret_cast<T*>(memory + static_cast<size_t>(team.rank()) * plan.scratch_bytes);
  keep.tile_max = keep.weights + kept_weights(args.space.cols, 1);
  RowOverlap<T> overlap(args, plan, keep);
  const int64_t rows = args.end_row - args.first_row;
  const int64_t block = std::clamp<int64_t>(rows / (8 * team.size()), 1, 256);
  for (int64_t first = team.take(block); first < rows; first = team.take(block)) {
    for (int64_t r = first; r < std::min(first + block, rows); ++r) {
      const typename SoftmaxBody<T>::Row row(args, plan, args.first_row + r);
      overlap.pass(&row);
    }
    overlap.pass(nullptr);
  }
  if (plan.streaming) hwy::FlushStream();
}

template <class T>
void WorkAs(const RowArgs& args, const Plan& plan, Team& team, std::byte* memory) {
  switch (args.op) {
    case Op::softmax:
      // (HWY_SCALAR: no vectors to stream.)
      if (HWY_TARGET != HWY_SCALAR && plan.resident && plan.streaming && plan.split == 1 &&
          args.logits.whole_rows() && args.space.cols > 4 * kTile) {
        return OverlapRows<T>(args, plan, team, memory);
      }
      return Drive<SoftmaxBody<T>>(args, plan, team, memory);
    case Op::log_softmax: return Drive<LogSoftmaxBody<T>>(args, plan, team, memory);
    default: return Drive<LogSumExpBody<T>>(args, plan, team, memory);
  }
}

void StateWorker(const RowArgs& args, const Plan& plan, Team& team, std::byte* memory) {
  compute_type(args.logits.x.dtype) == DType::f64 ? WorkAs<double>(args, plan, team, memory)
                                                  : WorkAs<float>(args, plan, team, memory);
}

}  // namespace
}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onepass::ops::softmax {

HWY_EXPORT(StateWorker);

Status cpu_row(const RowArgs& args, const Plan& plan) {
  return run_workers(args, plan, HWY_DYNAMIC_DISPATCH(StateWorker));
}

}  // namespace onepass::ops::softmax
#endif
