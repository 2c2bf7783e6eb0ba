// A worker of cpu_flash's backward: a tile of keys, and the tiles of rows that go by. Per-target.

#if defined(ONEPASS_OPS_ATTENTION_BACKWARD_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_OPS_ATTENTION_BACKWARD_INL
#undef ONEPASS_OPS_ATTENTION_BACKWARD_INL
#else
#define ONEPASS_OPS_ATTENTION_BACKWARD_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "core/simd/exp-inl.hpp"
#include "core/simd/inline-inl.hpp"
#include "core/simd/memory-inl.hpp"
#include "ops/attention/cpu/backward_query.hpp"
#include "ops/attention/cpu/backward_work.hpp"
#include "ops/attention/cpu/products-inl.hpp"
#include "ops/attention/cpu/row-inl.hpp"
#include "ops/attention/cpu/row_logits-inl.hpp"
#include "ops/attention/logit.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
class BackwardFlash {
  static constexpr hn::ScalableTag<T> d{};
  using V = hn::Vec<hn::ScalableTag<T>>;

 public:
  BackwardFlash(const AttentionBackwardArgs& args, const BackwardWork<T>& work, T* memory)
      : a_(args),
        work_(work),
        layout_(work.layout),
        dim_(static_cast<size_t>(args.dim)),
        dim_v_(static_cast<size_t>(args.dim_v)),
        padded_(RoundUp(dim_, hn::Lanes(d))),
        padded_v_(RoundUp(dim_v_, hn::Lanes(d))) {
    const auto take = [&memory](int64_t elements) {
      T* const mine = memory;
      memory += elements;
      return mine;
    };
    k_panels_ = take(layout_.key_panels());
    v_panels_ = take(layout_.value_panels());
    k_rows_ = take(layout_.key_rows());
    d_k_ = take(layout_.key_sums());
    d_v_ = take(layout_.value_sums());
    queries_ = take(layout_.queries());
    d_outputs_ = take(layout_.d_outputs());
    d_q_ = take(layout_.query_sums());
    weights_ = take(layout_.scores());
    steep_ = take(layout_.scores());
    d_scores_ = take(layout_.d_scores());
    k_ = std::make_unique<const T*[]>(static_cast<size_t>(layout_.tile_keys));
    std::fill_n(ones_, kFlashRows, T(1));
  }

  // lse, mean and whether all is finite, of a tile of rows. Rows that see no key are finished.
  void prepare(const KvHead& head, int64_t index) {
    const BackwardRows rows = work_.tiles.rows_at(head, index);
    load_rows(head, rows);
    bool finite = true;
    for_rows(head, rows, [&](int64_t r, int64_t, int64_t h, int64_t token) HWY_ATTR {
      const int64_t at = head.first_row + rows.first + r;
      const T* o =
          RowAs(d, a_.o, a_.o.offset(head.batch, h, token), dim_v_, dim_v_ == padded_v_, d_q_);
      work_.mean[at] = mean_of(head, r, h, token, o);
      work_.lse[at] = lse_of(head, h, token);
      finite = finite && AllFinite(d, q_[r], padded_) && AllFinite(d, d_o_[r], padded_v_);
    });
    work_.finite[rows.tile] = finite ? 1 : 0;
    if (rows.tiles.begin == rows.tiles.end) {
      std::fill_n(d_q_, static_cast<size_t>(rows.rows) * padded_, T(0));
      write_queries(head, rows, d_q_);
    }
  }

  // The gradients of a tile of keys, and what they add to the queries'.
  void run(const BackwardItem& item) {
    const KvHead& head = work_.tiles.heads()[static_cast<size_t>(item.head)];
    load_keys(head, item.tile * layout_.tile_keys);
    for (int64_t i = 0; i < BackwardTiles::row_tiles(head); ++i) {
      const BackwardRows rows = work_.tiles.rows_at(head, i);
      if (item.tile < rows.tiles.begin || item.tile >= rows.tiles.end) continue;
      load_rows(head, rows);
      load_options(head, rows);
      for (size_t block = 0; block < keys_; block += kFlashKeys) {
        add_block(rows, block, std::min<size_t>(kFlashKeys, keys_ - block));
      }
      add_to_queries(head, rows, item.tile);
    }
    write_keys(head);
  }

 private:
  static size_t panel_keys() { return kPanelVectors * hn::Lanes(d); }
  size_t apart() const { return static_cast<size_t>(layout_.score_stride()); }

  // Calls body(r, q, h, token) for each row of a tile: its query, head and token. Counted, as a
  // division per row costs as much as its weights.
  template <class Body>
  ONEPASS_FORCED void for_rows(const KvHead& head, const BackwardRows& rows, Body body) const {
    const int64_t group = work_.tiles.group();
    int64_t q = rows.first / group, member = rows.first % group;
    for (int64_t r = 0; r < rows.rows; ++r) {
      body(r, q, head.kv_head * group + member, head.sequence.q_first + q);
      if (++member == group) member = 0, ++q;
    }
  }

  T mean_of(const KvHead& head, int64_t r, int64_t h, int64_t token, const T* o) const {
    V sum = hn::Zero(d);
    for (size_t j = 0; j < padded_v_; j += hn::Lanes(d)) {
      sum = hn::MulAdd(hn::LoadU(d, o + j), hn::LoadU(d, d_o_[r] + j), sum);
    }
    const T mean = hn::GetLane(hn::SumOfLanes(d, sum));
    if (!a_.d_lse) return mean;
    const int64_t at = a_.d_lse.offset(head.batch, h, token);
    return mean - read_like<T>(a_.d_lse.data, a_.d_lse.dtype, at);
  }

  T lse_of(const KvHead& head, int64_t h, int64_t token) const {
    const int64_t at = a_.lse.offset(head.batch, h, token);
    return exponent_of(read_like<T>(a_.lse.data, a_.lse.dtype, at));
  }

  void load_rows(const KvHead& head, const BackwardRows& rows) {
    for_rows(head, rows, [&](int64_t r, int64_t, int64_t h, int64_t t) HWY_ATTR {
      const auto at = static_cast<size_t>(r);
      q_[r] = RowAs(d, a_.q, a_.q.offset(head.batch, h, t), dim_, dim_ == padded_,
                    queries_ + at * padded_);
      d_o_[r] = RowAs(d, a_.d_o, a_.d_o.offset(head.batch, h, t), dim_v_, dim_v_ == padded_v_,
                      d_outputs_ + at * padded_v_);
    });
    // Scores are made of a few rows at a time.
    std::fill_n(q_ + rows.rows, kMostKeyGroup, q_[rows.rows - 1]);
    std::fill_n(d_o_ + rows.rows, kMostKeyGroup, d_o_[rows.rows - 1]);
  }

  void load_options(const KvHead& head, const BackwardRows& rows) {
    const bool all = rows.by_all.begin <= first_ && first_ + count() <= rows.by_all.end;
    masks_.clear();
    for_rows(head, rows, [&](int64_t r, int64_t q, int64_t h, int64_t) HWY_ATTR {
      options_[r] = {.scale = static_cast<T>(a_.scale),
                     .cap = static_cast<T>(a_.softcap),
                     .slope = slope_of<T>(a_, head.batch, h),
                     .own = own_key(head.sequence, q),
                     .live = all ? rows.by_all : live_keys(a_, head.sequence, q)};
      if (a_.additive || a_.boolean) masks_.emplace_back(a_, head.sequence, head.batch, h, q);
    });
    for (size_t r = 0; r < masks_.size(); ++r) options_[r].masks = &masks_[r];
    lse_ = work_.lse + head.first_row + rows.first;
    mean_ = work_.mean + head.first_row + rows.first;
    finite_ = keys_finite_ && work_.finite[rows.tile] != 0;
  }

  int64_t count() const { return static_cast<int64_t>(keys_); }

  // Keys in rows, and keys and values in panels: as many as a few vectors have lanes, dim by dim.
  void load_keys(const KvHead& head, int64_t first) {
    first_ = first;
    keys_ = static_cast<size_t>(std::min<int64_t>(layout_.tile_keys, head.sequence.keys - first));
    const size_t all = RoundUp(keys_, panel_keys());
    keys_finite_ = true;
    for (size_t i = 0; i < all; ++i) {
      T* const k_lane = k_panels_ + i / panel_keys() * panel_keys() * dim_ + i % panel_keys();
      T* const v_lane = v_panels_ + i / panel_keys() * panel_keys() * dim_v_ + i % panel_keys();
      if (i >= keys_) {
        for (size_t j = 0; j < dim_; ++j) k_lane[j * panel_keys()] = 0;
        for (size_t j = 0; j < dim_v_; ++j) v_lane[j * panel_keys()] = 0;
        continue;
      }
      const int64_t t = first + static_cast<int64_t>(i);
      const auto offset = [&](const Heads& operand) {
        return key_offset(a_, head.sequence, operand, head.batch, head.kv_head, t);
      };
      k_[i] = RowAs(d, a_.k, offset(a_.k), dim_, dim_ == padded_, k_rows_ + i * padded_);
      const T* v = RowAs(d, a_.v, offset(a_.v), dim_v_, true, d_v_);
      for (size_t j = 0; j < dim_; ++j) k_lane[j * panel_keys()] = k_[i][j];
      for (size_t j = 0; j < dim_v_; ++j) v_lane[j * panel_keys()] = v[j];
      keys_finite_ = keys_finite_ && AllFinite(d, k_[i], padded_);
    }
    std::fill_n(d_k_, layout_.key_sums(), T(0));
    std::fill_n(d_v_, layout_.value_sums(), T(0));
  }

  // The weights and score gradients of the rows at a block of keys, and what they add to the keys'.
  void add_block(const BackwardRows& rows, size_t block, size_t keys) {
    T* const d_scores = d_scores_ + block;
    const int64_t first = first_ + static_cast<int64_t>(block);
    if (rows.seen.begin >= first + static_cast<int64_t>(keys) || rows.seen.end <= first) {
      for (int64_t r = 0; r < rows.rows; ++r) {
        std::fill_n(d_scores + static_cast<size_t>(r) * apart(), kFlashKeys, T(0));
      }
      return;
    }
    const auto count = static_cast<size_t>(rows.rows);
    score(k_panels_ + block * dim_, keys, q_, count, dim_, weights_, kFlashKeys);
    score(v_panels_ + block * dim_v_, keys, d_o_, count, dim_v_, d_scores, apart());
    for (size_t r = 0; r < count; ++r) {
      weigh(options_[r], first, keys, lse_[r], mean_[r], weights_ + r * kFlashKeys,
            d_scores + r * apart());
    }
    T* const d_k = d_k_ + block * padded_;
    T* const d_v = d_v_ + block * padded_v_;
    if (!finite_) return add_seen(d_scores, keys, count, d_k, d_v);
    add_rows(weights_, kFlashKeys, keys, d_o_, count, d_v, padded_v_);
    add_rows(d_scores, apart(), keys, q_, count, d_k, padded_);
  }

  // sums[t] += Σ_r weights[r][t] · rows[r].
  HWY_NOINLINE void add_rows(const T* weights, size_t weights_apart, size_t keys,
                             const T* const* rows, size_t count, T* sums, size_t padded) const {
    AddAllValues(d, weights, weights_apart, keys, rows, count, ones_, sums, padded);
  }

  // out[r][t] = Σ_j rows[r][j] · panels[j][t], of the keys of a block.
  HWY_NOINLINE void score(const T* panels, size_t keys, const T* const* rows, size_t count,
                          size_t dim, T* out, size_t out_apart) const {
    for (size_t at = 0; at < keys; at += panel_keys()) {
      const size_t here = RoundUp(std::min(panel_keys(), keys - at), hn::Lanes(d));
      WithCount<kPanelVectors>(here / hn::Lanes(d), [=](auto vectors) HWY_ATTR {
        for (size_t r = 0; r < count; r += kKeyGroup<vectors()>) {
          ScoreKeys<vectors()>(d, panels + at * dim, panel_keys(), rows + r, dim,
                               out + r * out_apart + at, out_apart);
        }
      });
    }
  }

  // Of one row: scores become weights, and do · v the gradients of the scores.
  HWY_NOINLINE void weigh(const RowOptions<T>& options, int64_t first, size_t keys, T lse, T mean,
                          T* HWY_RESTRICT weights, T* HWY_RESTRICT d_scores) const {
    constexpr size_t kVectors = 4;
    const size_t lanes = hn::Lanes(d);
    const size_t padded = RoundUp(keys, std::min<size_t>(kVectors * lanes, kFlashKeys));
    MakeRowLogits(d, options, first, keys, padded, weights, steep_);
    const V by = hn::Set(d, options.scale);
    for (size_t t = 0; t < padded; t += kVectors * lanes) {
      V z[kVectors], p[kVectors];
      for (size_t i = 0; i < kVectors; ++i) {
        z[i] = hn::LoadU(d, weights + t + i * lanes);
        // No weight is above 1, but z and lse are rounded.
        p[i] = NoMore(d, hn::Sub(z[i], hn::Set(d, lse)), T(0));
      }
      ExpOfNonPositive(d, p);
      for (size_t i = 0; i < kVectors; ++i) {
        const size_t at = t + i * lanes;
        const auto hidden = hn::Eq(z[i], hn::Set(d, minus_infinity<T>()));
        const V weight = hn::IfThenZeroElse(hidden, p[i]);
        V slope = hn::Mul(p[i], hn::Sub(hn::LoadU(d, d_scores + at), hn::Set(d, mean)));
        if (options.cap > 0) slope = hn::Mul(slope, hn::LoadU(d, steep_ + at));
        hn::StoreU(weight, d, weights + at);
        hn::StoreU(hn::IfThenZeroElse(hidden, hn::Mul(slope, by)), d, d_scores + at);
      }
    }
  }

  static void add_times(T factor, const T* row, size_t dim, T* sums) {
    if (factor == 0) return;
    for (size_t j = 0; j < dim; ++j) sums[j] += factor * row[j];
  }

  // What is NaN or inf must not reach what does not see it, and 0 times it would be NaN.
  HWY_NOINLINE void add_seen(const T* d_scores, size_t keys, size_t rows, T* d_k, T* d_v) const {
    for (size_t r = 0; r < rows; ++r) {
      for (size_t t = 0; t < keys; ++t) {
        add_times(weights_[r * kFlashKeys + t], d_o_[r], dim_v_, d_v + t * padded_v_);
        add_times(d_scores[r * apart() + t], q_[r], dim_, d_k + t * padded_);
      }
    }
  }

  // Tiles of keys add in their order, whatever threads have them.
  void add_to_queries(const KvHead& head, const BackwardRows& rows, int64_t tile) {
    const auto turn = static_cast<std::int32_t>(tile - rows.tiles.begin);
    const bool last = tile + 1 == rows.tiles.end;
    const size_t count = static_cast<size_t>(rows.rows), size = count * padded_;
    T* const kept = work_.sums + (head.first_row + rows.first) * work_.workspace.row_elements;
    // Sums are made of whole fours of rows. Others would reach into the next tile's.
    const bool in_place = count % 4 == 0 && !(turn == 0 && last);
    T* const sums = in_place ? kept : d_q_;
    std::atomic<std::int32_t>& added = work_.added[rows.tile];
    if (turn == 0) {
      std::fill_n(sums, size, T(0));
    } else {
      for (int spins = 0; added.load(std::memory_order_acquire) != turn; ++spins) {
        if (spins > 2000) std::this_thread::yield();
      }
      if (!in_place) std::copy_n(kept, size, sums);
    }
    add_keys(count, sums);
    if (last) {
      write_queries(head, rows, sums);
    } else {
      if (!in_place) std::copy_n(sums, size, kept);
      added.store(turn + 1, std::memory_order_release);
    }
  }

  HWY_NOINLINE void add_keys(size_t rows, T* sums) const {
    if (finite_) {
      AddAllValues<true>(d, d_scores_, apart(), rows, k_.get(), keys_, ones_, sums, padded_);
      return;
    }
    for (size_t r = 0; r < rows; ++r) {
      for (size_t t = 0; t < keys_; ++t) {
        add_times(d_scores_[r * apart() + t], k_[t], dim_, sums + r * padded_);
      }
    }
  }

  void write_queries(const KvHead& head, const BackwardRows& rows, const T* sums) const {
    for_rows(head, rows, [&](int64_t r, int64_t, int64_t h, int64_t token) HWY_ATTR {
      WriteRow(d, sums + static_cast<size_t>(r) * padded_, dim_, a_.accumulate, a_.d_q,
               a_.d_q.offset(head.batch, h, token));
    });
  }

  void write_keys(const KvHead& head) const {
    for (size_t i = 0; i < keys_; ++i) {
      const int64_t token = head.sequence.k_first + first_ + static_cast<int64_t>(i);
      WriteRow(d, d_k_ + i * padded_, dim_, a_.accumulate, a_.d_k,
               a_.d_k.offset(head.batch, head.kv_head, token));
      WriteRow(d, d_v_ + i * padded_v_, dim_v_, a_.accumulate, a_.d_v,
               a_.d_v.offset(head.batch, head.kv_head, token));
    }
  }

  const AttentionBackwardArgs& a_;
  const BackwardWork<T>& work_;
  const BackwardLayout& layout_;
  const size_t dim_, dim_v_;
  const size_t padded_, padded_v_;  // to whole vectors
  T *k_panels_, *v_panels_;         // dim by dim
  T *k_rows_, *d_k_, *d_v_;
  T *queries_, *d_outputs_, *d_q_;
  T* weights_;   // scores first; rows of a block
  T* steep_;     // softcap's derivative, of one row
  T* d_scores_;  // rows of the whole tile
  std::unique_ptr<const T*[]> k_;
  std::vector<QueryMasks> masks_;
  int64_t first_ = 0;  // of the keys
  size_t keys_ = 0;
  bool keys_finite_ = true, finite_ = true;
  const T* q_[kFlashRows + kMostKeyGroup];
  const T* d_o_[kFlashRows + kMostKeyGroup];
  const T* lse_ = nullptr;
  const T* mean_ = nullptr;
  RowOptions<T> options_[kFlashRows];
  T ones_[kFlashRows];
};

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
