// What the kernels of warps share: rows, scores to logits, and sums to their place.
//
// The rows of a kv head are its queries, each with all the heads that share it: one read of the
// keys serves them all.
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
  Sight sight;
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

  // Where a row lies in q, o or a mask, and a key, outside pages, in k or v.
  __device__ std::int64_t row_offset(const Heads& of, int row) const {
    return of.offset(b, head(row), s.q_first + query(row));
  }
  __device__ std::int64_t token_offset(const Heads& of, int key) const {
    return of.offset(b, kv_head, s.k_first + key);
  }

  // Of a lane's two rows.
  __device__ Seen seen(int upper) const {
    const int q[2] = {query(upper), query(upper + 8)};
    return {{sight.begin(q[0]), sight.begin(q[1])}, {sight.end(q[0]), sight.end(q[1])}};
  }

  __device__ KeyTiles key_tiles(int first_row, int rows, int keys) const {
    const int last = between(0, first_row + rows, count()) - 1;
    const int first_query = query(first_row);
    return attention::key_tiles(sight, first_query, query(last) - first_query + 1, keys);
  }
};

// Whether z = s · scale and nothing else, so that the scale can wait for the exponential.
ONEPASS_HD inline bool only_scaled(const AttentionArgs& a) {
  return a.softcap == 0 && static_cast<float>(a.scale) > 0 && !a.alibi && !a.additive && !a.boolean;
}

// What most calls are, for which kernels are compiled without everything else: where there is
// little to compute, a call takes as long as its instructions take to come, and those that are
// jumped over come too.
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
  a.q.dtype = a.o.dtype = std::is_same_v<Stored, BF16> ? DType::bf16 : DType::f16;
  a.lse.dtype = DType::f32;
  return a;
}

// Elements of 16 bits whose format only the call knows: what is not usual has one kernel for both.
struct Either16 {
  std::uint16_t bits;
};

// Calls body(Type<Stored>), of Either16 with the format that it is.
template <class Stored, class Body>
__device__ inline void as_stored(const AttentionArgs& a, Body body) {
  if constexpr (!std::is_same_v<Stored, Either16>) {
    body(Type<Stored>{});
  } else if (a.q.dtype == DType::bf16) {
    body(Type<BF16>{});
  } else {
    body(Type<F16>{});
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

// Scores to logits; `first` is the first one's key. Not inlined: a kernel has several rows, and
// every option once. Each option is asked for once, and then for all scores, so that the loads of a
// mask are on their way together.
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
  const std::int64_t at = rows.row_offset(a.o, row) + column;
  if (!aligned || a.o.dtype != a.q.dtype) {
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
  as_stored<Stored>(a, [&]<class As>(Type<As>) {
#pragma unroll
    for (int i = 0; i < Size / 4; ++i) {
      words[i] = narrow_pair<As>(o[4 * i + 2 * r] * by, o[4 * i + 2 * r + 1] * by);
    }
  });
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
  const std::int64_t at = rows.row_offset(lse, row);
  if (lse.dtype == DType::f32) {
    static_cast<float*>(lse.data)[at] = logsumexp(state);
  } else {
    write_one(lse.data, lse.dtype, at, logsumexp(state));
  }
}

}  // namespace onepass::ops::attention
