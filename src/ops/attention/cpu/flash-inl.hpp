// A worker of cpu_flash: the rows of a tile, and the blocks of keys that go by. Per-target.

#if defined(ONEPASS_OPS_ATTENTION_FLASH_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_OPS_ATTENTION_FLASH_INL
#undef ONEPASS_OPS_ATTENTION_FLASH_INL
#else
#define ONEPASS_OPS_ATTENTION_FLASH_INL
#endif

#include <hwy/highway.h>

#include <utility>

#include "core/simd/inline-inl.hpp"
#include "core/simd/memory-inl.hpp"
#include "merge/lane-inl.hpp"
#include "ops/attention/cpu/layout.hpp"
#include "ops/attention/cpu/panel-inl.hpp"
#include "ops/attention/cpu/products-inl.hpp"
#include "ops/attention/cpu/row-inl.hpp"
#include "ops/attention/cpu/row_logits-inl.hpp"
#include "ops/attention/cpu/tiles.hpp"
#include "ops/attention/logit.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A block of keys and values as rows of T: where they lie, or where they were converted to.
template <class T>
struct Block {
  int64_t first = 0;
  size_t keys = 0;
  const T* k[kFlashKeys + kMostKeyGroup];  // a last group is filled up with its last key
  const T* v[kFlashKeys];
  bool finite = true;  // no value is NaN or inf; looked at only where some key is hidden

  int64_t end() const { return first + static_cast<int64_t>(keys); }
};

template <class T>
class Flash {
  static constexpr hn::ScalableTag<T> d{};
  using V = hn::Vec<hn::ScalableTag<T>>;

 public:
  Flash(const AttentionArgs& args, const RowTiles& tiles, const FlashLayout& layout, T* memory)
      : a_(args),
        tiles_(tiles),
        dim_(static_cast<size_t>(args.dim)),
        dim_v_(static_cast<size_t>(args.dim_v)),
        padded_(RoundUp(dim_, hn::Lanes(d))),
        padded_v_(RoundUp(dim_v_, hn::Lanes(d))),
        queries_(memory),
        sums_(queries_ + layout.queries()),
        k_(sums_ + layout.sums()),
        v_(k_ + layout.keys()),
        scores_(v_ + layout.values()),
        additive_(scores_ + FlashLayout::kScores),
        keep_(additive_ + FlashLayout::kScores),
        z_(keep_ + FlashLayout::kScores) {}

  // The rows of a tile against the keys of one part: state() and sums() are theirs then.
  void run(const RowTile& tile, Keys part, bool with_sinks) {
    one_ = tile.sequence.queries * tiles_.group() == 1;
    begin(tile, part, with_sinks);
    Keys seen{part.end, part.begin};
    for (int64_t r = 0; r < tile.rows; ++r) {
      const Keys& mine = live_[r];
      if (mine.begin == mine.end) continue;
      seen = {std::min(seen.begin, mine.begin), std::max(seen.end, mine.end)};
    }
    if (seen.begin >= seen.end) return;  // no row sees a key of this part
    // Blocks begin at multiples, whatever shares the tile: a row's bits do not depend on it.
    for (int64_t at = seen.begin / kFlashKeys * kFlashKeys; at < seen.end; at += kFlashKeys) {
      const int64_t first = std::max(at, seen.begin);
      load(tile, first, std::min(at + kFlashKeys, seen.end));
      fetch(tile, at + kFlashKeys, std::min(at + 2 * kFlashKeys, seen.end));
      if (one_) {
        fold_one(tile);
        continue;
      }
      for (size_t p = 0; p < static_cast<size_t>(tile.rows); p += panel_rows()) fold(tile, p);
    }
  }

  const T* sums(int64_t row) const { return sums_ + static_cast<size_t>(row) * padded_v_; }
  State<T> state(int64_t row) const { return {m_[row], d_[row]}; }

 private:
  static size_t panel_rows() { return kPanelVectors * hn::Lanes(d); }

  // As many lanes as whole vectors have.
  static size_t lanes_of(size_t rows) { return RoundUp(rows, hn::Lanes(d)); }

  void begin(const RowTile& tile, Keys part, bool with_sinks) {
    const auto rows = static_cast<size_t>(tile.rows);
    for (size_t r = 0; r < rows; ++r) {
      const int64_t q = tiles_.query(tile, static_cast<int64_t>(r));
      const int64_t head = tiles_.head(tile, static_cast<int64_t>(r));
      const Keys keys = live_keys(a_, tile.sequence, q);
      live_[r] = {std::max(keys.begin, part.begin), std::min(keys.end, part.end)};
      if (live_[r].begin >= live_[r].end) live_[r] = {part.begin, part.begin};
      own_[r] = own_key(tile.sequence, q);
      slopes_[r] = slope_of<T>(a_, tile.batch, head);
      const State<T> state = with_sinks ? first_state<T>(a_, head) : identity<T>();
      m_[r] = state.m;
      d_[r] = state.d;
      const int64_t at = a_.q.offset(tile.batch, head, tile.sequence.q_first + q);
      const T* from = RowAs(d, a_.q, at, dim_, true, k_);
      T* to = lane(r);
      const size_t apart = one_ ? 1 : panel_rows();
      for (size_t j = 0; j < dim_; ++j) to[j * apart] = from[j];
    }
    std::fill_n(sums_, std::min<size_t>(RoundUp(rows, kSumRows), kFlashRows) * padded_v_, T(0));
    if (one_) {
      std::fill(queries_ + dim_, queries_ + padded_, T(0));
    } else {
      repeat_last(rows);
    }
  }

  // Lanes past the last row repeat it, so that they never stand in the way of a shortcut.
  void repeat_last(size_t rows) {
    for (size_t r = rows; r < lanes_of(rows); ++r) {
      live_[r] = live_[rows - 1];
      own_[r] = own_[rows - 1];
      slopes_[r] = slopes_[rows - 1];
      m_[r] = m_[rows - 1];
      d_[r] = d_[rows - 1];
      for (size_t j = 0; j < dim_ * panel_rows(); j += panel_rows()) lane(r)[j] = lane(rows - 1)[j];
    }
  }

  // Where the elements of a row's query are, one a panel apart; a single row's are neighbours.
  T* lane(size_t row) const {
    return queries_ + row / panel_rows() * panel_rows() * dim_ + row % panel_rows();
  }

  void load(const RowTile& tile, int64_t first, int64_t end) {
    block_.first = first;
    block_.keys = static_cast<size_t>(end - first);
    for (size_t i = 0; i < block_.keys; ++i) {
      const int64_t t = first + static_cast<int64_t>(i);
      const int64_t k = key_offset(a_, tile.sequence, a_.k, tile.batch, tile.kv_head, t);
      const int64_t v = key_offset(a_, tile.sequence, a_.v, tile.batch, tile.kv_head, t);
      block_.k[i] = RowAs(d, a_.k, k, dim_, !one_ || dim_ == padded_, k_ + i * padded_);
      block_.v[i] = RowAs(d, a_.v, v, dim_v_, dim_v_ == padded_v_, v_ + i * padded_v_);
    }
    for (size_t i = block_.keys; i < block_.keys + kMostKeyGroup; ++i) {
      block_.k[i] = block_.k[block_.keys - 1];
    }
    const bool all_seen =
        !a_.additive && !a_.boolean && in_range(0, static_cast<size_t>(tile.rows));
    block_.finite = all_seen || all_finite();
  }

  // Asks for the next block while this one is worked on: groups of keys are read side by side,
  // which no CPU takes for a stream.
  void fetch(const RowTile& tile, int64_t first, int64_t end) const {
    for (int64_t t = first; t < end; ++t) {
      for (const auto& [operand, dim] : {std::pair(&a_.k, dim_), std::pair(&a_.v, dim_v_)}) {
        const size_t size = size_of(operand->dtype);
        const int64_t at = key_offset(a_, tile.sequence, *operand, tile.batch, tile.kv_head, t);
        Fetch(operand->data, static_cast<size_t>(at) * size, dim * size);
      }
    }
  }

  // Whether the block lies within the keys that all of some rows see.
  bool in_range(size_t row, size_t rows) const {
    return std::all_of(live_ + row, live_ + row + rows, [this](const Keys& keys) {
      return keys.begin <= block_.first && block_.end() <= keys.end;
    });
  }

  bool all_finite() const {
    return std::all_of(block_.v, block_.v + block_.keys,
                       [this](const T* v) { return AllFinite(d, v, padded_v_); });
  }

  // The block into the rows of the panel that begins at one.
  void fold(const RowTile& tile, size_t row) {
    const size_t rows = std::min(panel_rows(), static_cast<size_t>(tile.rows) - row);
    const bool any = std::any_of(live_ + row, live_ + row + rows, [this](const Keys& keys) {
      return keys.begin < block_.end() && block_.first < keys.end;
    });
    if (!any) return;
    const PanelOptions<T> options = options_of(tile, row, rows);
    WithCount<kPanelVectors>(lanes_of(rows) / hn::Lanes(d),
                             [&](auto vectors) HWY_ATTR { weigh<vectors()>(options, row); });
    if (!block_.finite) return add_seen_values(row, rows, z_, scores_, panel_rows());
    AddAllValues(d, scores_, panel_rows(), rows, block_.v, block_.keys, by_,
                 sums_ + row * padded_v_, padded_v_);
  }

  template <size_t Vectors>
  void weigh(const PanelOptions<T>& options, size_t row) {
    const T* queries = queries_ + row * dim_;
    for (size_t t = 0; t < block_.keys; t += kKeyGroup<Vectors>) {
      ScoreKeys<Vectors>(d, queries, panel_rows(), block_.k + t, dim_, scores_ + t * panel_rows(),
                         panel_rows());
    }
    V m[Vectors];
    if (options.plain()) {
      MakeLogits<true>(d, options, panel_rows(), block_.keys, scores_, m);
    } else {
      MakeLogits<false>(d, options, panel_rows(), block_.keys, scores_, m);
    }
    if (!block_.finite) std::copy_n(scores_, block_.keys * panel_rows(), z_);
    FoldPanel(d, panel_rows(), block_.keys, static_cast<size_t>(block_.first % kRunKeys), m,
              scores_, m_ + row, d_ + row, by_);
  }

  // A value that is NaN or inf must not reach a row that does not see it, and 0 times
  // it would be NaN.
  void add_seen_values(size_t row, size_t rows, const T* z, const T* weights, size_t panel) {
    for (size_t r = 0; r < rows; ++r) {
      T* sums = sums_ + (row + r) * padded_v_;
      for (size_t j = 0; j < dim_v_; ++j) sums[j] *= by_[r];
      for (size_t t = 0; t < block_.keys; ++t) {
        if (z[t * panel + r] == minus_infinity<T>()) continue;
        for (size_t j = 0; j < dim_v_; ++j) sums[j] += weights[t * panel + r] * block_.v[t][j];
      }
    }
  }

  // A single row has no panel to share: its scores are a row's logits, and fold as softmax folds
  // them. z stays in scores_, the weights go where a panel keeps its z.
  void fold_one(const RowTile& tile) {
    ScoreRow(d, queries_, block_.k, block_.keys, padded_, scores_);
    make_row_logits(tile);
    const State<T> before{m_[0], d_[0]};
    State<T> now = FoldTile(d, static_cast<const T*>(scores_), lanes_of(block_.keys), before, z_,
                            [](size_t, auto) ONEPASS_INLINE {});
    if (now.d != now.d) {  // a NaN is the largest, before any +inf
      for (size_t t = 0; t < block_.keys; ++t)
        now.m = scores_[t] != scores_[t] ? scores_[t] : now.m;
    }
    by_[0] = now.m == before.m ? T(1) : rescale(now.m, before.m);
    m_[0] = now.m;
    d_[0] = now.d;
    if (!block_.finite) return add_seen_values(0, 1, scores_, z_, 1);
    AddToRows<1>(d, z_, 1, block_.v, block_.keys, by_, sums_, padded_v_);
  }

  void make_row_logits(const RowTile& tile) {
    const QueryMasks masks(a_, tile.sequence, tile.batch, tiles_.head(tile, 0), 0);
    const RowOptions<T> options{.scale = static_cast<T>(a_.scale),
                                .cap = static_cast<T>(a_.softcap),
                                .slope = slopes_[0],
                                .own = own_[0],
                                .live = live_[0],
                                .masks = a_.additive || a_.boolean ? &masks : nullptr};
    // Up to whole vectors, so that the fold has no rest.
    MakeRowLogits(d, options, block_.first, block_.keys, lanes_of(block_.keys), scores_,
                  static_cast<T*>(nullptr));
  }

  // What options there are for a panel and the block, laid out as its scores are.
  PanelOptions<T> options_of(const RowTile& tile, size_t row, size_t rows) {
    PanelOptions<T> options{.scale = static_cast<T>(a_.scale), .cap = static_cast<T>(a_.softcap)};
    const size_t lanes = lanes_of(rows);
    if (a_.alibi) {
      for (size_t r = 0; r < lanes; ++r) {
        own_here_[r] = static_cast<T>(own_[row + r] - block_.first);
      }
      options.slopes = slopes_ + row;
      options.own = own_here_;
    }
    if (!in_range(row, rows)) {
      const auto keys = static_cast<int64_t>(block_.keys);
      for (size_t r = 0; r < lanes; ++r) {
        const Keys& each = live_[row + r];
        begins_[r] = static_cast<T>(std::clamp<int64_t>(each.begin - block_.first, 0, keys));
        ends_[r] = static_cast<T>(std::clamp<int64_t>(each.end - block_.first, 0, keys));
      }
      options.begins = begins_;
      options.ends = ends_;
    }
    if (!a_.additive && !a_.boolean) return options;
    for (size_t r = 0; r < rows; ++r) mask_row(tile, row + r, r);
    if (a_.additive) options.additive = additive_;
    if (a_.boolean) options.keep = keep_;
    return options;
  }

  void mask_row(const RowTile& tile, size_t row, size_t lane) {
    const auto at = static_cast<int64_t>(row);
    const QueryMasks masks(a_, tile.sequence, tile.batch, tiles_.head(tile, at),
                           tiles_.query(tile, at));
    for (size_t t = 0; t < block_.keys; ++t) {
      const int64_t key = block_.first + static_cast<int64_t>(t);
      if (a_.additive) additive_[t * panel_rows() + lane] = masks.template added<T>(key);
      if (a_.boolean) keep_[t * panel_rows() + lane] = masks.hides(key) ? T(0) : T(1);
    }
  }

  const AttentionArgs& a_;
  const RowTiles& tiles_;
  const size_t dim_, dim_v_;
  const size_t padded_, padded_v_;  // to whole vectors
  T* const queries_;                // panels, dim by dim
  T* const sums_;                   // rows
  T* const k_;
  T* const v_;
  T* const scores_;  // of a panel; then weights
  T* const additive_;
  T* const keep_;
  T* const z_;
  bool one_ = false;  // the tile's row is all that its kv head has
  Block<T> block_;
  Keys live_[kFlashRows];
  int64_t own_[kFlashRows];
  T m_[kFlashRows], d_[kFlashRows], slopes_[kFlashRows];
  T by_[kFlashRows], own_here_[kFlashRows], begins_[kFlashRows], ends_[kFlashRows];
};

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
