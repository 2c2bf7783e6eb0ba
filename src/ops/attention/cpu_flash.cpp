// attention/cpu_flash: tiles of query rows against blocks of keys, scores never in memory.
//
// Idea    a tile's rows keep a State and a sum of values each; a block of keys is scored, folded into the states
//         and its values added, while all of it is in L1. Heads that share keys share a tile. Few rows with many
//         keys are cut: parts of the keys leave states and sums, which merge in the order of the parts.
// Versus  cpu_naive: a key that is loaded serves all rows of a tile, and sums stay in registers.
// Bytes   k and v once a tile, from L2 where a head's stay there; memory for a tile, whatever the lengths.
// Limits  none: every dtype, stride and option.
// Proof   tests/ops/attention_test.cpp, `onepass verify attention`; numbers: results/.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/cpu_flash.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <string>

#include "core/simd/inline.hpp"
#include "core/simd/memory-inl.hpp"
#include "ops/attention/flash.hpp"
#include "ops/attention/logit.hpp"
#include "ops/attention/panel-inl.hpp"
#include "ops/attention/products-inl.hpp"
#include "ops/attention/variants.hpp"
#include "runtime/workers.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {
namespace {

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

template <class Stored>
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

  // The rows of a tile against the keys of one part: `states` and `sums` are theirs then.
  void run(const RowTile& tile, Keys part, bool with_sinks) {
    begin(tile, part, with_sinks);
    Keys seen{part.end, part.begin};
    for (int64_t r = 0; r < tile.rows; ++r) {
      const Keys& mine = live_[r];
      if (mine.begin == mine.end) continue;
      seen = {std::min(seen.begin, mine.begin), std::max(seen.end, mine.end)};
    }
    // Blocks begin at multiples, whoever shares the tile: a row's bits do not depend on it.
    for (int64_t at = seen.begin / kFlashKeys * kFlashKeys; at < seen.end; at += kFlashKeys) {
      const int64_t first = std::max(at, seen.begin);
      load(tile, first, std::min(at + kFlashKeys, seen.end));
      fetch(tile, at + kFlashKeys, std::min(at + 2 * kFlashKeys, seen.end));
      for (size_t p = 0; p < static_cast<size_t>(tile.rows); p += kPanel()) fold(tile, p);
    }
  }

  const float* sums(int64_t row) const { return sums_ + static_cast<size_t>(row) * padded_; }
  State<float> state(int64_t row) const { return {m_[row], d_[row]}; }

 private:
  static size_t kPanel() { return kPanelVectors * hn::Lanes(d); }

  static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

  // Lanes of a panel that its rows need: whole vectors.
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
      const Stored* from = static_cast<const Stored*>(a_.q.data) +
                           a_.q.offset(tile.batch, head, tile.sequence.q_first + q);
      float* to = lane(r);
      for (size_t j = 0; j < dim_; ++j) to[j * kPanel()] = load_as<float>(from[j]);
    }
    // Lanes past the last row repeat it, so that they never stand in the way of a shortcut.
    for (size_t r = rows; r < lanes_of(rows); ++r) {
      live_[r] = live_[rows - 1];
      own_[r] = own_[rows - 1];
      slopes_[r] = slopes_[rows - 1];
      m_[r] = m_[rows - 1];
      d_[r] = d_[rows - 1];
      for (size_t j = 0; j < dim_ * kPanel(); j += kPanel()) lane(r)[j] = lane(rows - 1)[j];
    }
    std::fill_n(sums_, std::min<size_t>(round_up(rows, kSumRows), kFlashRows) * padded_, 0.0F);
  }

  // Where the elements of a row's query are, one a panel apart.
  float* lane(size_t row) const {
    return queries_ + row / kPanel() * kPanel() * dim_ + row % kPanel();
  }

  void load(const RowTile& tile, int64_t first, int64_t end) {
    block_.first = first;
    block_.keys = static_cast<size_t>(end - first);
    for (size_t i = 0; i < block_.keys; ++i) {
      const int64_t t = first + static_cast<int64_t>(i);
      block_.k[i] = row_of(a_.k, tile, t, true, k_ + i * padded_);
      block_.v[i] = row_of(a_.v, tile, t, dim_ == padded_, v_ + i * padded_);
    }
    for (size_t i = block_.keys; i < block_.keys + kMostKeyGroup; ++i) {
      block_.k[i] = block_.k[block_.keys - 1];
    }
    const bool all_seen =
        !a_.additive && !a_.boolean && in_range(0, static_cast<size_t>(tile.rows));
    block_.finite = all_seen || all_finite();
  }

  // Asks for the next block while this one is worked on: groups of keys are read side by side, which no CPU takes
  // for a stream.
  void fetch(const RowTile& tile, int64_t first, int64_t end) const {
    for (int64_t t = first; t < end; ++t) {
      for (const Heads* operand : {&a_.k, &a_.v}) {
        const auto* row = static_cast<const Stored*>(operand->data) +
                          key_offset(a_, tile.sequence, *operand, tile.batch, tile.kv_head, t);
        Fetch(row, 0, dim_ * sizeof(Stored));
      }
    }
  }

  // A key or value as floats: in place where it is them already, and needs no padding.
  const float* row_of(const Heads& operand, const RowTile& tile, int64_t t, bool may_stay,
                      float* buffer) const {
    const Stored* from = static_cast<const Stored*>(operand.data) +
                         key_offset(a_, tile.sequence, operand, tile.batch, tile.kv_head, t);
    if constexpr (std::is_same_v<Stored, float>) {
      if (may_stay) return from;
    }
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
    const size_t rows = std::min(kPanel(), static_cast<size_t>(tile.rows) - row);
    const bool any = std::any_of(live_ + row, live_ + row + rows, [this](const Keys& keys) {
      return keys.begin < block_.end() && block_.first < keys.end;
    });
    if (!any) return;
    const PanelOptions options = options_of(tile, row, rows);
    WithCount<kPanelVectors>(lanes_of(rows) / hn::Lanes(d),
                             [&](auto vectors) HWY_ATTR { weigh<vectors()>(options, row); });
    if (!block_.finite) return add_seen_values(row, rows);
    AddAllValues(d, scores_, kPanel(), rows, block_.v, block_.keys, by_, sums_ + row * padded_,
                 padded_);
  }

  template <size_t Vectors>
  void weigh(const PanelOptions& options, size_t row) {
    const float* queries = queries_ + row * dim_;
    for (size_t t = 0; t < block_.keys; t += kKeyGroup<Vectors>) {
      ScoreKeys<Vectors>(d, queries, kPanel(), block_.k + t, dim_, scores_ + t * kPanel());
    }
    V m[Vectors];
    if (options.plain()) {
      MakeLogits<true>(d, options, kPanel(), block_.keys, scores_, m);
    } else {
      MakeLogits<false>(d, options, kPanel(), block_.keys, scores_, m);
    }
    if (!block_.finite) std::copy_n(scores_, block_.keys * kPanel(), z_);
    FoldPanel(d, kPanel(), block_.keys, m, scores_, m_ + row, d_ + row, by_);
  }

  // A value that is NaN or inf must not reach a row that does not see it, and 0 times it would be NaN.
  void add_seen_values(size_t row, size_t rows) {
    for (size_t r = 0; r < rows; ++r) {
      float* sums = sums_ + (row + r) * padded_;
      for (size_t j = 0; j < dim_; ++j) sums[j] *= by_[r];
      for (size_t t = 0; t < block_.keys; ++t) {
        if (z_[t * kPanel() + r] == minus_infinity<float>()) continue;
        for (size_t j = 0; j < dim_; ++j) {
          sums[j] += scores_[t * kPanel() + r] * block_.v[t][j];
        }
      }
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
      if (a_.additive) additive_[t * kPanel() + lane] = masks.added(key);
      if (a_.boolean) keep_[t * kPanel() + lane] = masks.hides(key) ? 0.0F : 1.0F;
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
  Block block_;
  Keys live_[kFlashRows];
  int64_t own_[kFlashRows];
  float m_[kFlashRows], d_[kFlashRows], slopes_[kFlashRows];
  float by_[kFlashRows], own_here_[kFlashRows], begins_[kFlashRows], ends_[kFlashRows];
};

// Writes o and lse of a row from what its parts left: states, and sums a stride apart.
template <class Out>
void Finish(const AttentionArgs& a, const FlashWork& work, const RowTile& tile, int64_t row,
            const State<float>* states, const float* sums, int64_t parts, size_t apart) {
  const hn::ScalableTag<float> d;
  using Vector = hn::Vec<decltype(d)>;
  const int64_t head = work.tiles.head(tile, row);
  const int64_t token = tile.sequence.q_first + work.tiles.query(tile, row);
  State<float> total = states[0];
  for (int64_t i = 1; i < parts; ++i) total = merge(total, states[i]);
  Out* o = static_cast<Out*>(a.o.data) + a.o.offset(tile.batch, head, token);
  const auto dim = static_cast<size_t>(a.dim);
  const size_t lanes = hn::Lanes(d);
  for (size_t j = 0; j < dim; j += lanes) {
    Vector mean = hn::Zero(d);
    for (int64_t i = 0; i < parts; ++i) {
      const Vector share = hn::Set(d, factor(total, states[i].m));
      mean = hn::MulAdd(hn::LoadU(d, sums + static_cast<size_t>(i) * apart + j), share, mean);
    }
    j + lanes <= dim ? StoreLanes(d, mean, o + j) : StoreTail(d, mean, o + j, dim - j);
  }
  if (!a.lse) return;
  write(a.lse.data, a.lse.dtype, a.lse.offset(tile.batch, head, token), logsumexp(total));
}

template <class Stored>
void WorkAs(const AttentionArgs& a, const FlashWork& work, Team& team, float* memory) {
  Flash<Stored> flash(a, work.tiles, work.layout,
                      memory + static_cast<size_t>(team.rank()) * work.layout.floats());
  const auto padded = static_cast<size_t>(work.layout.padded);
  const int64_t items = work.tiles.count() * work.parts;
  for (int64_t i = team.take(1); i < items; i = team.take(1)) {
    const RowTile tile = work.tiles.at(i / work.parts);
    const int64_t part = i % work.parts;
    flash.run(tile, work.keys_of(tile, part), part == 0);
    for (int64_t r = 0; r < tile.rows; ++r) {
      const float* sums = flash.sums(r);
      const State<float> state = flash.state(r);
      if (work.parts == 1) {
        with_type(a.o.dtype, [&]<class Out>(Type<Out>)
                                 HWY_ATTR { Finish<Out>(a, work, tile, r, &state, sums, 1, 0); });
        continue;
      }
      *work.state(i / work.parts, r, part) = state;
      std::copy_n(sums, static_cast<size_t>(a.dim), work.sums(i / work.parts, r, part));
    }
  }
  if (work.parts == 1) return;
  team.barrier();
  for (int64_t i = team.rank(); i < work.tiles.count(); i += team.size()) {
    const RowTile tile = work.tiles.at(i);
    for (int64_t r = 0; r < tile.rows; ++r) {
      with_type(a.o.dtype, [&]<class Out>(Type<Out>) HWY_ATTR {
        Finish<Out>(a, work, tile, r, work.state(i, r, 0), work.sums(i, r, 0), work.parts, padded);
      });
    }
  }
}

void FlashWorker(const AttentionArgs& a, const FlashWork& work, Team& team, float* memory) {
  switch (a.q.dtype) {
    case DType::f16: return WorkAs<F16>(a, work, team, memory);
    case DType::bf16: return WorkAs<BF16>(a, work, team, memory);
    default: return WorkAs<float>(a, work, team, memory);
  }
}

}  // namespace
}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onepass::ops::attention {

HWY_EXPORT(FlashWorker);

Status cpu_flash(const AttentionArgs& args, const Plan& plan) {
  FlashWork work(args, plan);
  const std::size_t own = static_cast<std::size_t>(plan.threads) * work.layout.floats();
  const double bytes = static_cast<double>(own) * sizeof(float) + work.shared_bytes();
  std::byte* memory = bytes < 0x1p60 ? scratch(static_cast<std::size_t>(bytes)) : nullptr;
  if (memory == nullptr) {
    return {Code::out_of_memory, "no memory for " + std::to_string(work.parts) +
                                     " parts of keys: " + std::to_string(bytes) + " bytes"};
  }
  work.place(memory + own * sizeof(float));
  run_team(plan.threads, [&](Team& team) {
    HWY_DYNAMIC_DISPATCH(FlashWorker)(args, work, team, reinterpret_cast<float*>(memory));
  });
  return {};
}

}  // namespace onepass::ops::attention
#endif
