// What the kernels of warps share: rows, tiles of keys in shared memory, scores to logits, and sums to their place.
//
// The rows of a kv head are its queries, each with all the heads that share it: one read of the keys serves them all.
#pragma once

#include "core/mma.cuh"
#include "dispatch/gpu_attention.hpp"
#include "ops/attention/args.hpp"
#include "ops/attention/logit.hpp"
#include "ops/attention/online.cuh"
#include "ops/attention/parts.hpp"

namespace onepass::ops::attention {

struct PackedRows {
  const AttentionArgs& a;
  Sequence s;
  gpu_attention::Sight sight;
  std::int64_t b;
  int kv_head, sharing;

  __device__ PackedRows(const AttentionArgs& args, std::int64_t batch, int head)
      : a(args),
        s(sequence_of(args, batch)),
        sight(sight_of(args, s)),
        b(batch),
        kv_head(head),
        sharing(static_cast<int>(args.heads / args.kv_heads)) {}

  __device__ int count() const { return sight.queries * sharing; }
  __device__ int query(int row) const { return row / sharing; }
  __device__ int head(int row) const { return kv_head * sharing + row % sharing; }

  // Of a lane's two rows.
  __device__ Seen seen(int upper) const {
    const int q[2] = {query(upper), query(upper + 8)};
    return {{sight.begin(q[0]), sight.begin(q[1])}, {sight.end(q[0]), sight.end(q[1])}};
  }

  __device__ gpu_attention::KeyTiles key_tiles(int first_row, int rows, int keys) const {
    const int last = gpu_attention::between(0, first_row + rows, count()) - 1;
    const int first_query = query(first_row);
    return gpu_attention::key_tiles(sight, first_query, query(last) - first_query + 1, keys);
  }
};

// Whether z = s · scale and nothing else, so that the scale can wait for the exponential.
__device__ inline bool only_scaled(const AttentionArgs& a) {
  return a.softcap == 0 && a.scale > 0 && !a.alibi && !a.additive && !a.boolean;
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
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]),
               "r"(words[2]), "r"(words[3])
               : "memory");
}

// Rows of q, zeros past the last.
template <class Stored, int Columns>
__device__ inline void load_queries(unsigned tile, const PackedRows& rows, int first, int count,
                                    int thread, int threads, bool aligned) {
  const auto* q = static_cast<const Stored*>(rows.a.q.data);
  for (int i = thread; i < count * (Columns / 8); i += threads) {
    const int row = i / (Columns / 8);
    const int chunk = i % (Columns / 8);
    const bool there = first + row < rows.count() && 8 * chunk < rows.a.dim;
    const std::int64_t at = there ? rows.a.q.offset(rows.b, rows.head(first + row),
                                                    rows.s.q_first + rows.query(first + row)) +
                                        8 * chunk
                                  : 0;
    fetch16(mma::Swizzled<Columns>::at(tile, row, chunk), q + at, there, aligned);
  }
}

// Tokens of k or v from key `first` on, zeros past the last, and of their columns those from `column` on. A page that
// is not there is NaN, where somebody asked to look.
template <class Stored, int Columns>
__device__ inline void load_keys(unsigned tile, const PackedRows& rows, const Heads& operand,
                                 int first, int count, int column, int thread, int threads,
                                 bool aligned) {
  const auto* data = static_cast<const Stored*>(operand.data);
  const Pages& pages = rows.a.pages;
#pragma unroll 4
  for (int i = thread; i < count * (Columns / 8); i += threads) {
    const int row = i / (Columns / 8);
    const int chunk = i % (Columns / 8);
    const int key = first + row;
    const unsigned to = mma::Swizzled<Columns>::at(tile, row, chunk);
    bool there = key < rows.sight.keys && column + 8 * chunk < rows.a.dim;
    if (there && pages.checked) {
      const std::int32_t page = pages.table[rows.b * pages.stride + key / pages.size];
      if (page < 0 || page >= pages.count) {
        there = false;
        asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0xFFFFFFFFU)
                     : "memory");
        continue;
      }
    }
    const std::int64_t at =
        there ? key_offset(rows.a, rows.s, operand, rows.b, rows.kv_head, key) + column + 8 * chunk
              : 0;
    fetch16(to, data + at, there, aligned);
  }
}

// Scores to logits, where they are not only scaled: one element at a time. `first` is the key of the first score.
template <int Size>
__device__ inline void make_logits(float (&s)[Size], const PackedRows& rows, int upper, int first) {
  const AttentionArgs& a = rows.a;
  const Cap cap(static_cast<float>(a.scale), static_cast<float>(a.softcap));
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = upper + 8 * r;
    if (row >= rows.count()) continue;
    const int query = rows.query(row);
    const int head = rows.head(row);
    const QueryMasks masks(a, rows.s, rows.b, head, query);
    const float slope = slope_of(a, rows.b, head);
    const auto own = static_cast<float>(rows.sight.own(query));
#pragma unroll
    for (int i = 0; i < Size / 4; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int key = first + 8 * i + e;
        float& score = s[4 * i + 2 * r + e];
        if (key >= rows.sight.keys) continue;
        const float z =
            cap(score) - slope * fabsf(static_cast<float>(key) - own) + masks.added(key);
        score = masks.hides(key) ? minus_infinity<float>() : z;
      }
    }
  }
}

// A row's sums as means to their place: lane l of four has columns 8l to 8l + 7 of every 32 in a word for two.
template <class Stored, int Size>
__device__ inline void store_row(const PackedRows& rows, int row, const float (&o)[Size], int r,
                                 float by, int column, bool aligned) {
  const AttentionArgs& a = rows.a;
  const auto lane = static_cast<int>(threadIdx.x % 4);
  const bool there = row < rows.count();
  const std::int64_t at =
      there ? a.o.offset(rows.b, rows.head(row), rows.s.q_first + rows.query(row)) + column : 0;
  const bool narrow = a.o.dtype == (std::is_same_v<Stored, BF16> ? DType::bf16 : DType::f16);
  if (!aligned || !narrow) {
#pragma unroll
    for (int i = 0; i < Size / 4; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int c = 8 * i + 2 * lane + e;
        if (there && column + c < a.dim) {
          write(a.o.data, a.o.dtype, at + c, o[4 * i + 2 * r + e] * by);
        }
      }
    }
    return;
  }
  unsigned words[Size / 4];
#pragma unroll
  for (int i = 0; i < Size / 4; ++i) {
    words[i] = narrow_pair<Stored>(o[4 * i + 2 * r] * by, o[4 * i + 2 * r + 1] * by);
  }
  gather_sixteens(words);
  auto* to = static_cast<Stored*>(a.o.data) + at + 8 * lane;
#pragma unroll
  for (int i = 0; i < Size / 16; ++i) {
    if (there && column + 32 * i + 8 * lane < a.dim) {
      *reinterpret_cast<uint4*>(to + 32 * i) =
          make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
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
  write(lse.data, lse.dtype, lse.offset(rows.b, rows.head(row), rows.s.q_first + rows.query(row)),
        logsumexp(state));
}

// What a part found of a row.
template <int Size>
__device__ inline void store_part(const Parts& parts, int part, const PackedRows& rows, int row,
                                  const float (&o)[Size], int r, const State<float>& seen,
                                  int column) {
  if (row >= rows.count()) return;
  const auto lane = static_cast<int>(threadIdx.x % 4);
  const bool offsets = static_cast<bool>(rows.a.q_offsets);
  const std::int64_t place = parts.place(
      part,
      row_number(rows.a, offsets ? 0 : rows.b, rows.head(row), rows.s.q_first + rows.query(row)));
  const float by = factor(seen, seen.m);
  float* to = parts.means + place * parts.dim + column + 2 * lane;
#pragma unroll
  for (int i = 0; i < Size / 4; ++i) {
    if (column + 8 * i < parts.dim) {
      *reinterpret_cast<float2*>(to + 8 * i) =
          make_float2(o[4 * i + 2 * r] * by, o[4 * i + 2 * r + 1] * by);
    }
  }
  if (column == 0 && lane == 0) parts.lse[place] = logsumexp(seen);
}

}  // namespace onepass::ops::attention
