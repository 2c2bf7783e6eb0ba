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
          index(row) {}
    Columns live() const { return z.live(); }

    LogitsReader<T> z;
    RowWriter<T> y;
    int64_t index;
  };

  const RowArgs& args;
  const Plan& plan;

  Partial fold(const Row& row, Columns columns, Keep<T>& keep) const {
    return fold(row, columns, keep, [](size_t) {});
  }

  // before(tile) is called before a tile's weights are written.
  template <class Before>
  Partial fold(const Row& row, Columns columns, Keep<T>& keep, Before before) const {
    const hn::ScalableTag<T> d;
    Partial total = identity<T>();
    for_each_tile(columns, row.y.skew(), [&](int64_t c, size_t n, size_t tile) HWY_ATTR {
      before(tile);
      T* weights = keep.weights == nullptr ? nullptr : keep.weights + (c - columns.begin);
      const Destination to = row.y.destination(c);
      const Partial mine = row.z.with_tile(c, n, keep.buffers, [=](auto* z) ONEPASS_INLINE {
        return FoldTile(d, z, n, weights, to);
      });
      if (weights != nullptr) keep.tile_max[tile] = mine.m;
      total = tile == 0 ? mine : merge(total, mine);
    });
    return total;
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
        return finish_kept(row, total, c, n, keep.weights + (c - columns.begin),
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
    const bool empty = total.d == T(0);
    const T inverse = empty ? T(0) : T(1) / total.d;
    const T shift = empty ? T(0) : total.m;
    row.y.store(c, n, weights,
                tile_max == total.m ? inverse : std::exp(tile_max - shift) * inverse);
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
// of weights: a tile of the next row is folded into the place of a tile that has been written.
template <class T>
void OverlapRows(const RowArgs& args, const Plan& plan, Team& team, std::byte* memory) {
  using Body = SoftmaxBody<T>;
  using Row = typename Body::Row;
  Buffers<T> buffers;
  Keep<T> keep{.buffers = buffers};
  keep.weights =
      reinterpret_cast<T*>(memory + static_cast<size_t>(team.rank()) * plan.scratch_bytes);
  keep.tile_max = keep.weights + kept_weights(args.space.cols, 1);
  const Body body{{args, plan}};
  const int64_t cols = args.space.cols;
  const int64_t rows = args.end_row - args.first_row;
  const int64_t block = std::clamp<int64_t>(rows / (8 * team.size()), 1, 256);
  for (int64_t first = team.take(block); first < rows; first = team.take(block)) {
    std::optional<Row> folded;  // whose weights are kept, and wait to be written
    State<T> total = identity<T>();
    int64_t tile = 0;
    const auto write_tiles = [&](int64_t end) HWY_ATTR {
      for (; folded && tile < end; ++tile) {
        const int64_t c = tile_begin(cols, folded->y.skew(), tile);
        const int64_t next = tile_begin(cols, folded->y.skew(), tile + 1);
        if (c == cols) return;
        body.finish_kept(*folded, total, c, static_cast<size_t>(next - c), keep.weights + c,
                         keep.tile_max[tile]);
      }
    };
    for (int64_t r = first; r < std::min(first + block, rows); ++r) {
      const Row row(args, plan, args.first_row + r);
      // Two rows' tiles may begin up to a grain apart, so one tile more has left before one enters.
      const State<T> mine = body.fold(row, {0, cols}, keep, [&](size_t entering) HWY_ATTR {
        write_tiles(static_cast<int64_t>(entering) + 2);
      });
      write_tiles(most_tiles(cols));
      body.conclude(row, mine, keep);
      folded.emplace(row);
      total = mine;
      tile = 0;
    }
    write_tiles(most_tiles(cols));
  }
  if (plan.streaming) hwy::FlushStream();
}

template <class T>
void WorkAs(const RowArgs& args, const Plan& plan, Team& team, std::byte* memory) {
  switch (args.op) {
    case Op::softmax:
      if (plan.resident && plan.split == 1 && args.logits.whole_rows() &&
          args.space.cols > 2 * kTile) {
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
