// A worker of cpu_flash: the rows of a tile, and the blocks of keys that go by. Per-target.

#if defined(ONEPASS_OPS_ATTENTION_FLASH_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_OPS_ATTENTION_FLASH_INL
#undef ONEPASS_OPS_ATTENTION_FLASH_INL
#else
#define ONEPASS_OPS_ATTENTION_FLASH_INL
#endif

#include <hwy/highway.h>

#include "core/simd/inline-inl.hpp"
#include "core/simd/memory-inl.hpp"
#include "merge/lane-inl.hpp"
#include "ops/attention/cpu/layout.hpp"
#include "ops/attention/cpu/panel-inl.hpp"
#include "ops/attention/cpu/products-inl.hpp"
#include "ops/attention/cpu/tiles.hpp"
#include "ops/attention/logit.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A block of keys and values as rows of floats: where they lie, or where they were converted to.
struct Block {
  int64_t first = 0;
  size_t keys = 0;
  const float* k[kFlashKeys + kMostKeyGroup];  // a last group is filled up with its last key
  const float* v[kFlashKeys];
  bool finite = true;  // no value is NaN or inf; looked at only where some key is hidden

  int64_t end() const { return first + static_cast<int64_t>(keys); }
};

class Flash {
  static constexpr hn::ScalableTag<float> d{};
  using V = hn::Vec<hn::ScalableTag<float>>;

 public:
  Flash(const AttentionArgs& args, const RowTiles& tiles, const FlashLayout& layout, float* memory)
      : a_(args),
        tiles_(tiles),
        dim_(static_cast<size_t>(args.dim)),
        padded_(round_up(dim_, hn::Lanes(d))),
        queries_(memory),
        sums_(queries_ + layout.queries()),
        k_(sums_ + layout.sums()),
        v_(k_ + layout.block()),
        scores_(v_ + layout.block()),
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

  const float* sums(int64_t row) const { return sums_ + static_cast<size_t>(row) * padded_; }
  State<float> state(int64_t row) const { return {m_[row], d_[row]}; }

 private:
  static size_t panel_rows() { return kPanelVectors * hn::Lanes(d); }

  static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

  // As many lanes as whole vectors have.
  static size_t lanes_of(size_t rows) { return round_up(rows, hn::Lanes(d)); }

  void begin(const RowTile& tile, Keys part, bool with_sinks) {
    const auto rows = static_cast<size_t>(tile.rows);
    for (size_t r = 0; r < rows; ++r) {
      const int64_t q = tiles_.query(tile, static_cast<int64_t>(r));
      const int64_t head = tiles_.head(tile, static_cast<int64_t>(r));
      const Keys keys = live_keys(a_, tile.sequence, q);
      live_[r] = {std::max(keys.begin, part.begin), std::min(keys.end, part.end)};
      if (live_[r].begin >= live_[r].end) live_[r] = {part.begin, part.begin};
      own_[r] = own_key(tile.sequence, q);
      slopes_[r] = slope_of(a_, tile.batch, head);
      const State<float> state = with_sinks ? first_state(a_, head) : identity<float>();
      m_[r] = state.m;
      d_[r] = state.d;
      const int64_t at = a_.q.offset(tile.batch, head, tile.sequence.q_first + q);
      const float* from = floats(a_.q, at, true, k_);
      float* to = lane(r);
      const size_t apart = one_ ? 1 : panel_rows();
      for (size_t j = 0; j < dim_; ++j) to[j * apart] = from[j];
    }
    std::fill_n(sums_, std::min<size_t>(round_up(rows, kSumRows), kFlashRows) * padded_, 0.0F);
    if (one_) {
      std::fill(queries_ + dim_, queries_ + padded_, 0.0F);
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
  float* lane(size_t row) const {
    return queries_ + row / panel_rows() * panel_rows() * dim_ + row % panel_rows();
  }

  void load(const RowTile& tile, int64_t first, int64_t end) {
    block_.first = first;
    block_.keys = static_cast<size_t>(end - first);
    for (size_t i = 0; i < block_.keys; ++i) {
      const int64_t t = first + static_cast<int64_t>(i);
      block_.k[i] = row_of(a_.k, tile, t, !one_ || dim_ == padded_, k_ + i * padded_);
      block_.v[i] = row_of(a_.v, tile, t, dim_ == padded_, v_ + i * padded_);
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
      for (const Heads* operand : {&a_.k, &a_.v}) {
        const size_t size = size_of(operand->dtype);
        const int64_t at = key_offset(a_, tile.sequence, *operand, tile.batch, tile.kv_head, t);
        Fetch(operand->data, static_cast<size_t>(at) * size, dim_ * size);
      }
    }
  }

  // A key or value as floats.
  const float* row_of(const Heads& operand, const RowTile& tile, int64_t t, bool may_stay,
                      float* buffer) const {
    const int64_t at = key_offset(a_, tile.sequence, operand, tile.batch, tile.kv_head, t);
    return floats(operand, at, may_stay, buffer);
  }

  // The row at an element's offset as floats: in place where it is them already, and
  // needs no padding.
  const float* floats(const Heads& operand, int64_t at, bool may_stay, float* buffer) const {
    switch (operand.dtype) {
      case DType::f16: return convert(static_cast<const F16*>(operand.data) + at, buffer);
      case DType::bf16: return convert(static_cast<const BF16*>(operand.data) + at, buffer);
      default: break;
    }
    const float* from = static_cast<const float*>(operand.data) + at;
    return may_stay ? from : convert(from, buffer);
  }

  template <class Stored>
  const float* convert(const Stored* from, float* buffer) const {
    const size_t lanes = hn::Lanes(d);
    for (size_t j = 0; j < padded_; j += lanes) {
      const V x = j + lanes <= dim_ ? LoadLanes(d, from + j)
                                    : LoadTail(d, from + j, dim_ - std::min(j, dim_), 0.0F);
      hn::StoreU(x, d, buffer + j);
    }
    return buffer;
  }

  // Whether the block lies within the keys that all of some rows see.
  bool in_range(size_t row, size_t rows) const {
    return std::all_of(live_ + row, live_ + row + rows, [this](const Keys& keys) {
      return keys.begin <= block_.first && block_.end() <= keys.end;
    });
  }

  // 0 · x is 0 for what is finite, and NaN for what is not.
  bool all_finite() const {
    V sum = hn::Zero(d);
    for (size_t i = 0; i < block_.keys; ++i) {
      for (size_t j = 0; j < padded_; j += hn::Lanes(d)) {
        sum = hn::MulAdd(hn::LoadU(d, block_.v[i] + j), hn::Zero(d), sum);
      }
    }
    return hn::AllTrue(d, hn::Eq(sum, sum));
  }

  // The block into the rows of the panel that begins at one.
  void fold(const RowTile& tile, size_t row) {
    const size_t rows = std::min(panel_rows(), static_cast<size_t>(tile.rows) - row);
    const bool any = std::any_of(live_ + row, live_ + row + rows, [this](const Keys& keys) {
      return keys.begin < block_.end() && block_.first < keys.end;
    });
    if (!any) return;
    const PanelOptions options = options_of(tile, row, rows);
    WithCount<kPanelVectors>(lanes_of(rows) / hn::Lanes(d),
                             [&](auto vectors) HWY_ATTR { weigh<vectors()>(options, row); });
    if (!block_.finite) return add_seen_values(row, rows, z_, scores_, panel_rows());
    AddAllValues(d, scores_, panel_rows(), rows, block_.v, block_.keys, by_, sums_ + row * padded_,
                 padded_);
  }

  template <size_t Vectors>
  void weigh(const PanelOptions& options, size_t row) {
    const float* queries = queries_ + row * dim_;
    for (size_t t = 0; t < block_.keys; t += kKeyGroup<Vectors>) {
      ScoreKeys<Vectors>(d, queries, panel_rows(), block_.k + t, dim_, scores_ + t * panel_rows());
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
  void add_seen_values(size_t row, size_t rows, const float* z, const float* weights,
                       size_t panel) {
    for (size_t r = 0; r < rows; ++r) {
      float* sums = sums_ + (row + r) * padded_;
      for (size_t j = 0; j < dim_; ++j) sums[j] *= by_[r];
      for (size_t t = 0; t < block_.keys; ++t) {
        if (z[t * panel + r] == minus_infinity<float>()) continue;
        for (size_t j = 0; j < dim_; ++j) sums[j] += weights[t * panel + r] * block_.v[t][j];
      }
    }
  }

  // A single row has no panel to share: its scores are a row's logits, and fold as softmax folds
  // them. z stays in scores_, the weights go where a panel keeps its z.
  void fold_one(const RowTile& tile) {
    ScoreRow(d, queries_, block_.k, block_.keys, padded_, scores_);
    make_row_logits(tile);
    const State<float> before{m_[0], d_[0]};
    State<float> now = FoldTile(d, static_cast<const float*>(scores_), lanes_of(block_.keys),
                                before, z_, [](size_t, auto) ONEPASS_INLINE {});
    if (now.d != now.d) {  // a NaN is the largest, before any +inf
      for (size_t t = 0; t < block_.keys; ++t)
        now.m = scores_[t] != scores_[t] ? scores_[t] : now.m;
    }
    by_[0] = now.m == before.m ? 1.0F : rescale(now.m, before.m);
    m_[0] = now.m;
    d_[0] = now.d;
    if (!block_.finite) return add_seen_values(0, 1, scores_, z_, 1);
    AddToRows<1>(d, z_, 1, block_.v, block_.keys, by_, sums_, padded_);
  }

  // All keys of a block are among those that the row sees: blocks are cut to them.
  void make_row_logits(const RowTile& tile) {
    const V scale = hn::Set(d, static_cast<float>(a_.scale));
    const auto cap = static_cast<float>(a_.softcap);
    for (size_t t = 0; t < block_.keys; t += hn::Lanes(d)) {
      V z = hn::Mul(hn::LoadU(d, scores_ + t), scale);
      if (cap > 0) {
        z = hn::Mul(hn::Set(d, cap), hn::Tanh(d, hn::Div(z, hn::Set(d, cap))));
      }
      hn::StoreU(z, d, scores_ + t);
    }
    // Up to whole vectors, so that the fold has no rest.
    std::fill(scores_ + block_.keys, scores_ + lanes_of(block_.keys), minus_infinity<float>());
    if (!a_.alibi && !a_.additive && !a_.boolean) return;
    const QueryMasks masks(a_, tile.sequence, tile.batch, tiles_.head(tile, 0), 0);
    for (size_t t = 0; t < block_.keys; ++t) {
      const int64_t key = block_.first + static_cast<int64_t>(t);
      const auto distance = static_cast<float>(std::abs(key - own_[0]));
      scores_[t] += masks.added(key) - slopes_[0] * distance;
      if (masks.hides(key)) scores_[t] = minus_infinity<float>();
    }
  }

  // What options there are for a panel and the block, laid out as its scores are.
  PanelOptions options_of(const RowTile& tile, size_t row, size_t rows) {
    PanelOptions options{.scale = static_cast<float>(a_.scale),
                         .cap = static_cast<float>(a_.softcap)};
    const size_t lanes = lanes_of(rows);
    if (a_.alibi) {
      for (size_t r = 0; r < lanes; ++r) {
        own_here_[r] = static_cast<float>(own_[row + r] - block_.first);
      }
      options.slopes = slopes_ + row;
      options.own = own_here_;
    }
    if (!in_range(row, rows)) {
      const auto keys = static_cast<int64_t>(block_.keys);
      for (size_t r = 0; r < lanes; ++r) {
        const Keys& each = live_[row + r];
        begins_[r] = static_cast<float>(std::clamp<int64_t>(each.begin - block_.first, 0, keys));
        ends_[r] = static_cast<float>(std::clamp<int64_t>(each.end - block_.first, 0, keys));
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
      if (a_.additive) additive_[t * panel_rows() + lane] = masks.added(key);
      if (a_.boolean) keep_[t * panel_rows() + lane] = masks.hides(key) ? 0.0F : 1.0F;
    }
  }

  const AttentionArgs& a_;
  const RowTiles& tiles_;
  const size_t dim_, padded_;  // padded: to whole vectors
  float* const queries_;       // panels, dim by dim
  float* const sums_;          // rows
  float* const k_;
  float* const v_;
  float* const scores_;  // of a panel; then weights
  float* const additive_;
  float* const keep_;
  float* const z_;
  bool one_ = false;  // the tile's row is all that its kv head has
  Block block_;
  Keys live_[kFlashRows];
  int64_t own_[kFlashRows];
  float m_[kFlashRows], d_[kFlashRows], slopes_[kFlashRows];
  float by_[kFlashRows], own_here_[kFlashRows], begins_[kFlashRows], ends_[kFlashRows];
};

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
