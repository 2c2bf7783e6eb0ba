// What the kernels of warps share: rows, tiles of keys in shared memory, scores to logits, and sums to their place.
//
// The rows of a kv head are its queries, each with all the heads that share it: one read of the keys serves them all.
#pragma once

#include <algorithm>
#include <bit>

#include "core/cuda/mma.cuh"
#include "core/cuda/number.cuh"
#include "core/divisor.hpp"
#include "ops/attention/args.hpp"
#include "ops/attention/gpu/online.cuh"
#include "ops/attention/gpu/plan.hpp"
#include "ops/attention/logit.hpp"
#include "ops/attention/sight.hpp"

namespace onepass::ops::attention {

// Heads of q that share one of k and v.
inline Divisor sharing_of(const AttentionArgs& a) {
  return Divisor(static_cast<int>(a.heads / a.kv_heads));
}

struct PackedRows {
  const AttentionArgs& a;
  Sequence s;
  attention_tiles::Sight sight;
  std::int64_t b;
  int kv_head;
  Divisor sharing;

  __device__ PackedRows(const AttentionArgs& args, const Divisor& heads, std::int64_t batch,
                        int head)
      : a(args),
        s(sequence_of(args, batch)),
        sight(sight_of(args, s)),
        b(batch),
        kv_head(head),
        sharing(heads) {}

  __device__ int count() const { return sight.queries * sharing; }
  __device__ int query(int row) const { return row / sharing; }
  __device__ int head(int row) const { return kv_head * sharing + row % sharing; }

  // Of a lane's two rows.
  __device__ Seen seen(int upper) const {
    const int q[2] = {query(upper), query(upper + 8)};
    return {{sight.begin(q[0]), sight.begin(q[1])}, {sight.end(q[0]), sight.end(q[1])}};
  }

  __device__ attention_tiles::KeyTiles key_tiles(int first_row, int rows, int keys) const {
    const int last = attention_tiles::between(0, first_row + rows, count()) - 1;
    const int first_query = query(first_row);
    return attention_tiles::key_tiles(sight, first_query, query(last) - first_query + 1, keys);
  }
};

// Whether z = s · scale and nothing else, so that the scale can wait for the exponential.
ONEPASS_HD inline bool only_scaled(const AttentionArgs& a) {
  return a.softcap == 0 && static_cast<float>(a.scale) > 0 && !a.alibi && !a.additive && !a.boolean;
}

// What most calls are, for which kernels are compiled without everything else: where there is little to compute, a call
// takes as long as its instructions take to come, and those that are jumped over come too.
inline bool is_usual(const AttentionArgs& a) {
  return only_scaled(a) && !a.sinks && !a.pages && !a.q_offsets && !a.kv_offsets && !a.lengths &&
         a.o.dtype == a.q.dtype && (!a.lse || a.lse.dtype == DType::f32);
}

// The same to a compiler, which then leaves out what cannot be.
template <class Stored>
__device__ inline AttentionArgs usual(AttentionArgs a) {
  a.softcap = 0;
  a.additive = a.boolean = a.alibi = a.sinks = {};
  a.q_offsets = a.kv_offsets = a.lengths = {};
  a.pages = {};
  a.o.dtype = std::is_same_v<Stored, BF16> ? DType::bf16 : DType::f16;
  a.lse.dtype = DType::f32;
  return a;
}

__device__ inline void store16(unsigned to, unsigned a, unsigned b, unsigned c, unsigned d) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

// The elements of 16 bytes, wherever they begin.
template <class Stored>
__device__ inline void fetch16(unsigned to, const Stored* from, bool there, bool aligned) {
  if (aligned) {
    mma::copy16(to, from, there);
    return;
  }
  unsigned words[4] = {0, 0, 0, 0};
  if (there) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = from[2 * i].bits | static_cast<unsigned>(from[2 * i + 1].bits) << 16;
    }
  }
  store16(to, words[0], words[1], words[2], words[3]);
}

// How so many threads side by side copy a tile of rows: some neighbours a row, 16 bytes each, the others further rows.
template <int Columns, int Threads>
struct CopyLanes {
  static constexpr int kChunks = Columns / 8;
  static constexpr int kLanes =
      std::min<int>(std::bit_ceil(static_cast<unsigned>(kChunks)), Threads);
  static constexpr int kRows = Threads / kLanes;  // at a time

  __device__ static int thread() {  // more than a warp are all of the block
    return static_cast<int>(Threads == 32 ? threadIdx.x % 32 : threadIdx.x);
  }
  __device__ static int first_row() { return thread() / kLanes; }

  // body(row, chunk) for each 16 bytes of so many rows that this thread copies.
  template <int Rows, class Body>
  __device__ static void each(Body&& body) {
#pragma unroll
    for (int i = 0; i < kChunks; i += kLanes) {
      const int chunk = i + static_cast<int>(threadIdx.x) % kLanes;
      if (chunk >= kChunks) continue;
#pragma unroll 1
      for (int row = first_row(); row < Rows; row += kRows) body(row, chunk);
    }
  }
};

// The tokens of k or v that a kv head has, in one piece or in pages; or of q, in one piece.
template <class Stored>
class Tokens {
 public:
  __device__ Tokens(const Stored* first, std::int64_t token) : first_(first), token_(token) {}

  __device__ Tokens(const PackedRows& rows, const Heads& operand, int column)
      : token_(operand.token) {
    const Pages& pages = rows.a.pages;
    const auto* data = static_cast<const Stored*>(operand.data);
    if (pages) {
      table_ = pages.table + rows.b * pages.stride;
      page_ = operand.batch;
      size_ = static_cast<unsigned>(pages.size);
      most_ = pages.count;
      checked_ = pages.checked;
      first_ = data + rows.kv_head * operand.head + column;
    } else {
      first_ = data + operand.offset(rows.b, rows.kv_head, rows.s.k_first) + column;
    }
  }

  __device__ bool in_pages() const { return table_ != nullptr; }
  __device__ bool checked() const { return checked_; }

  // Elements from one token to the next, of a piece.
  __device__ std::int64_t stride() const { return token_; }
  __device__ const Stored* base() const { return first_; }

  // Where a token lies, in elements from the base.
  __device__ std::int64_t of_piece(int key) const { return key * token_; }
  __device__ std::int64_t of_page(int key) const {
    const auto place = static_cast<unsigned>(key);
    return table_[place / size_] * page_ + place % size_ * token_;
  }

  // Null: its page is not there.
  __device__ const Stored* look(int key) const {
    if (!in_pages()) return first_ + of_piece(key);
    const std::int32_t page = table_[static_cast<unsigned>(key) / size_];
    return checked_ && (page < 0 || page >= most_) ? nullptr : first_ + of_page(key);
  }

 private:
  const Stored* first_;
  std::int64_t token_;
  const std::int32_t* table_ = nullptr;
  std::int64_t page_ = 0;
  unsigned size_ = 1;
  std::int64_t most_ = 0;
  bool checked_ = false;
};

// As load_keys, of tokens in one piece: an address is the last one's and a step. Without a loop where many threads share
// the copies and run them often; a warp alone runs them once or twice, and waits for each instruction to come.
template <class Stored, int Columns, int Keys, int Threads>
__device__ inline void copy_piece(unsigned tile, const Tokens<Stored>& tokens, int first, int end,
                                  int columns) {
  using Lanes = CopyLanes<Columns, Threads>;
  const std::int64_t step = Lanes::kRows * tokens.stride();
  const int own = Lanes::first_row();
#pragma unroll
  for (int i = 0; i < Lanes::kChunks; i += Lanes::kLanes) {
    const int chunk = i + static_cast<int>(threadIdx.x) % Lanes::kLanes;
    if (chunk >= Lanes::kChunks) continue;
    const Stored* from = tokens.base() + tokens.of_piece(first + own) + 8 * chunk;
    const int left = (8 * chunk < columns ? end - first : 0) - own;  // rows
#pragma unroll(Threads == 32 ? 4 : 16)
    for (int row = 0; row < Keys; row += Lanes::kRows, from += step) {
      mma::copy16(mma::Swizzled<Columns>::at(tile, own + row, chunk), from, row < left);
    }
  }
}

// Rows of q, zeros past the last. Where a kv head has one head of q they are tokens one after the other.
template <class Stored, int Columns, int Rows, int Threads>
__device__ inline void load_queries(unsigned tile, const PackedRows& rows, int first,
                                    bool aligned) {
  const Heads& operand = rows.a.q;
  const auto* q = static_cast<const Stored*>(operand.data);
  if (Rows > attention_launch::kFewRows && aligned && rows.sharing == 1) {
    const Stored* own = q + operand.offset(rows.b, rows.kv_head, rows.s.q_first);
    copy_piece<Stored, Columns, Rows, Threads>(tile, Tokens<Stored>(own, operand.token), first,
                                               rows.count(), rows.a.dim);
    return;
  }
  CopyLanes<Columns, Threads>::template each<Rows>([&](int row, int chunk) {
    row += first;
    const bool there = row < rows.count() && 8 * chunk < rows.a.dim;
    const std::int64_t query = rows.s.q_first + rows.query(row);
    const std::int64_t at = there ? operand.offset(rows.b, rows.head(row), query) + 8 * chunk : 0;
    fetch16(mma::Swizzled<Columns>::at(tile, row - first, chunk), q + at, there, aligned);
  });
}

// As load_keys, of pages that are all there: each lane of a warp looks one of its next rows up, and all lanes ask it.
template <class Stored, int Columns, int Keys, int Threads>
__device__ inline void copy_pages(unsigned tile, const Tokens<Stored>& tokens, int first, int end,
                                  int columns) {
  using Lanes = CopyLanes<Columns, Threads>;
  constexpr int kLanes = std::min(Lanes::kLanes, 32);  // of a warp, a row
  constexpr int kAtATime = 32 / kLanes;
  constexpr int kTimes = Keys / Lanes::kRows;
  constexpr int kSpan = std::min(kTimes, kLanes);  // times that one look serves
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const int of_warp = (Lanes::thread() - lane) / Lanes::kLanes;
#pragma unroll 1
  for (int begin = 0; begin < kTimes; begin += kSpan) {
    const int key = first + (begin + lane / kAtATime) * Lanes::kRows + of_warp + lane % kAtATime;
    const bool mine = lane < kSpan * kAtATime && key < end;
    const std::int64_t own = mine ? tokens.of_page(key) : 0;
#pragma unroll 2
    for (int time = 0; time < kSpan; ++time) {
      const std::int64_t place = __shfl_sync(0xFFFFFFFFU, own, time * kAtATime + lane / kLanes);
      const int row = Lanes::first_row() + (begin + time) * Lanes::kRows;
#pragma unroll
      for (int i = 0; i < Lanes::kChunks; i += Lanes::kLanes) {
        const int chunk = i + static_cast<int>(threadIdx.x) % Lanes::kLanes;
        if (chunk >= Lanes::kChunks) continue;
        mma::copy16(mma::Swizzled<Columns>::at(tile, row, chunk), tokens.base() + place + 8 * chunk,
                    first + row < end && 8 * chunk < columns);
      }
    }
  }
}

// Tokens from key `first` on, zeros from `end` on; of their columns there are so many. Where there is no page the words
// are `lost`. How tokens lie is asked once, not for each 16 bytes: what is copied most has no branch.
template <class Stored, int Columns, int Keys, int Threads>
__device__ inline void load_keys(unsigned tile, const Tokens<Stored>& tokens, int first, int end,
                                 int columns, unsigned lost, bool aligned) {
  using Lanes = CopyLanes<Columns, Threads>;
  if (aligned && !tokens.in_pages()) {
    copy_piece<Stored, Columns, Keys, Threads>(tile, tokens, first, end, columns);
  } else if (aligned && !tokens.checked()) {
    copy_pages<Stored, Columns, Keys, Threads>(tile, tokens, first, end, columns);
  } else {
    Lanes::template each<Keys>([&](int row, int chunk) {
      const unsigned to = mma::Swizzled<Columns>::at(tile, row, chunk);
      const bool there = first + row < end && 8 * chunk < columns;
      const Stored* from = there ? tokens.look(first + row) : nullptr;
      if (from != nullptr) {
        fetch16(to, from + 8 * chunk, true, aligned);
      } else {
        const unsigned word = there ? lost : 0;
        store16(to, word, word, word, word);
      }
    });
  }
}

// What turns a row's scores into logits, where they are not only scaled.
struct RowLogits {
  Cap cap;
  float slope;
  int own;  // the key that the query stands at
  QueryMasks masks;
};

// What a lane has of a row's scores or sums: two neighbours of every eight.
template <int N>
struct LanePairs {
  float x[N];

  __device__ static constexpr int index(int i) { return i / 2 * 8 + i % 2; }
  __device__ static constexpr int to_next(int i) { return index(i + 1) - index(i); }
};

// Scores to logits; `first` is the first one's key. Not inlined: a kernel has several rows, and every option once. Each option
// is asked for once, and then for all scores, so that the loads of a mask are on their way together.
template <int N>
__device__ __noinline__ LanePairs<N> logits_of(LanePairs<N> of, RowLogits row, int first,
                                               int keys) {
  const int left = keys - first;
#pragma unroll
  for (float& s : of.x) s = row.cap.any() ? row.cap.capped(s) : row.cap.scaled(s);
  if (row.slope != 0) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int distance = abs(first + of.index(i) - row.own);
      of.x[i] -= row.slope * static_cast<float>(distance);
    }
  }
  if (const Heads& mask = row.masks.additive) {
    with_type_for<float>(mask.dtype, [&]<class Stored>(Type<Stored>) {
      const auto* added = static_cast<const Stored*>(mask.data) + first * mask.key;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (of.index(i) < left) of.x[i] += static_cast<float>(widen(*added));
        added += of.to_next(i) * mask.key;
      }
    });
  }
  if (const Heads& mask = row.masks.boolean) {
    const auto* shown = static_cast<const std::uint8_t*>(mask.data) + first * mask.key;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (of.index(i) < left && *shown == 0) of.x[i] = minus_infinity<float>();
      shown += of.to_next(i) * mask.key;
    }
  }
  return of;
}

// Scores to logits, where they are not only scaled. `first` is the key of the first score.
template <int Size>
__device__ inline void make_logits(float (&s)[Size], const PackedRows& rows, int upper, int first) {
  constexpr int kCount = 16;
  static_assert(Size % (2 * kCount) == 0);
  const AttentionArgs& a = rows.a;
  const Cap cap(static_cast<float>(a.scale), static_cast<float>(a.softcap));
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = upper + 8 * r;
    if (row >= rows.count()) continue;
    const int query = rows.query(row);
    const int head = rows.head(row);
    const RowLogits options{cap, slope_of(a, rows.b, head), rows.sight.own(query),
                            QueryMasks(a, rows.s, rows.b, head, query)};
#pragma unroll
    for (int begin = 0; begin < Size / 2; begin += kCount) {
      const auto score = [&](int i) -> float& {
        return s[4 * ((begin + i) / 2) + 2 * r + (begin + i) % 2];
      };
      LanePairs<kCount> of;
#pragma unroll
      for (int i = 0; i < kCount; ++i) of.x[i] = score(i);
      of = logits_of(of, options, first + of.index(begin), rows.sight.keys);
#pragma unroll
      for (int i = 0; i < kCount; ++i) score(i) = of.x[i];
    }
  }
}

// Sums of any type to any place; of their columns there are so many. Not inlined, as above.
template <int N>
__device__ __noinline__ void write_pairs(void* to, DType dtype, std::int64_t at, LanePairs<N> of,
                                         int columns) {
  with_type_for<float>(dtype, [&]<class Out>(Type<Out>) {
    auto* out = static_cast<Out*>(to) + at;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int c = of.index(i);
      if (c < columns) out[c] = narrow<Out>(of.x[i]);
    }
  });
}

// A row's sums as means to their place: of every eight columns lane l of four has 2l and 2l + 1.
template <class Stored, int Size>
__device__ inline void store_row(const PackedRows& rows, int row, const float (&o)[Size], int r,
                                 float by, int column, bool aligned) {
  const AttentionArgs& a = rows.a;
  const auto lane = static_cast<int>(threadIdx.x % 4);
  const bool there = row < rows.count();
  const std::int64_t at =
      a.o.offset(rows.b, rows.head(row), rows.s.q_first + rows.query(row)) + column;
  const bool narrow = a.o.dtype == (std::is_same_v<Stored, BF16> ? DType::bf16 : DType::f16);
  if (!aligned || !narrow) {
    constexpr int kCount = 8;
    static_assert(Size % (2 * kCount) == 0);
#pragma unroll
    for (int begin = 0; begin < Size / 2; begin += kCount) {
      LanePairs<kCount> of;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        of.x[i] = o[4 * ((begin + i) / 2) + 2 * r + (begin + i) % 2] * by;
      }
      const int c = of.index(begin) + 2 * lane;
      if (there) write_pairs(a.o.data, a.o.dtype, at + c, of, a.dim - column - c);
    }
    return;
  }
  unsigned words[Size / 4];
#pragma unroll
  for (int i = 0; i < Size / 4; ++i) {
    words[i] = narrow_pair<Stored>(o[4 * i + 2 * r] * by, o[4 * i + 2 * r + 1] * by);
  }
  gather_eights(words);
  const int own = lane % 2 * 8 + lane / 2 * 4;
  auto* to = static_cast<Stored*>(a.o.data) + at + own;
#pragma unroll
  for (int i = 0; i < Size / 4; i += 2) {
    if (there && column + 8 * i + own < a.dim) {
      *reinterpret_cast<uint2*>(to + 8 * i) = make_uint2(words[i], words[i + 1]);
    }
  }
}

__device__ inline State<float> with_sink(const AttentionArgs& a, const State<float>& row,
                                         int head) {
  return a.sinks ? merge(row, first_state(a, head)) : row;
}

__device__ inline void write_lse(const PackedRows& rows, int row, const State<float>& state) {
  const Heads& lse = rows.a.lse;
  if (!lse || row >= rows.count()) return;
  const std::int64_t at = lse.offset(rows.b, rows.head(row), rows.s.q_first + rows.query(row));
  if (lse.dtype == DType::f32) {
    static_cast<float*>(lse.data)[at] = logsumexp(state);
  } else {
    write_one(lse.data, lse.dtype, at, logsumexp(state));
  }
}

}  // namespace onepass::ops::attention
