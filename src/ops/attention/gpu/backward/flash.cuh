// The kernels of flash.cu for tiles of one dim: dk and dv by tiles of keys, dq by tiles of rows. Of
// wide ones a block sums some columns alone.
//
// Both make the weights again, p = exp(z − lse), and dz = p · (do · v − D). The accumulators of a
// warp's products are the left operands of its next ones, so that neither scores nor their
// gradients touch memory. Seven products in place of five, but every gradient has one owner, which
// sums in a fixed order.
#pragma once

#include "core/cuda/dependent.cuh"
#include "core/try.hpp"
#include "ops/attention/gpu/backward/flash_of.hpp"
#include "ops/attention/gpu/backward/gradient.cuh"
#include "ops/attention/gpu/backward/options.cuh"
#include "runtime/launch.cuh"

namespace onepass::ops::attention::backward {

// One score and what do · v comes to become the weight and the gradient of z.
__device__ inline void make_pair(float& score, float& d_weight, float unit,
                                 const BackwardRow& row) {
  score = power_of_score(score, unit, row);
  d_weight = score * (d_weight - row.mean);
}

template <int Size>
__device__ inline void clear(float (&sums)[Size]) {
#pragma unroll
  for (float& x : sums) x = 0;
}

// The products of a warp's 16 owned rows or keys with those that pass: scores, and do · v.
template <class Stored, class Shape, int Size>
__device__ inline void multiply(const AttentionArgs& a, unsigned own, unsigned passing,
                                float (&s)[1][Size], float (&d_s)[1][Size]) {
  constexpr unsigned kNone[1][4] = {};
  clear(s[0]);
  clear(d_s[0]);
  as_stored<Stored>(a, [&]<class As>(Type<As>) {
    mma::scores<As, Shape::kDim, 0>(s, kNone, own, passing);
    mma::scores<As, Shape::kDim, 0>(d_s, kNone, own + Shape::kTileBytes,
                                    passing + Shape::kPassingBytes);
  });
}

// sums += s · the rows or keys that pass, from their column at `passing` on.
template <class Stored, class Shape, int Size, int Columns>
__device__ inline void add_to(float (&sums)[1][Columns], const AttentionArgs& a,
                              const float (&s)[1][Size], unsigned passing) {
  as_stored<Stored>(a, [&]<class As>(Type<As>) {
    unsigned left[1][Size / 8][4];
    narrow_weights<As>(s[0], left[0]);
    mma::sums<As, 2 * Columns, Shape::kDim>(sums, left, passing);
  });
}

// A block has a tile of keys, a warp 16 of them, and all rows of their head that see one go by.
// Scores are transposed: keys are the rows of the products.
template <class Stored, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 2)
    backward_keys(const __grid_constant__ AttentionBackwardArgs a, const Divisor sharing,
                  const Tiles tiles) {
  extern __shared__ __align__(128) std::byte memory[];
  constexpr int kTile = Shape::kTile, kPassing = Shape::kPassing;
  await_previous();
  begin_next();
  Place place{};
  if (!place_of<Shape>(a, tiles, place,
                       [](const Sequence& s) { return static_cast<int>(s.keys); })) {
    return;
  }
  const PackedRows rows(a, sharing, place.batch, place.kv_head);
  const int first_key = place.first;
  if (rows.sight.queries == 0 || first_key >= rows.sight.keys) return;

  const Memory<Stored, Shape> shared{memory};
  const auto thread = static_cast<int>(threadIdx.x);
  const auto load = [&](int tile, int turn) {
    load_row_pair<Stored, Shape, kPassing>(shared.passing(turn), rows, a.d_o, tile * kPassing);
    if (thread < kPassing) {
      shared.facts(turn)[thread] = facts_of<Stored>(a, rows, tile * kPassing + thread);
    }
    mma::commit();
  };

  const QueryRange seeing = queries_seeing(rows.sight, first_key, kTile);
  const int begin = seeing.begin * sharing / kPassing;
  const int end = (seeing.end * sharing + kPassing - 1) / kPassing;
  load_key_pair<Stored, Shape, kTile>(shared.owned(), rows, first_key);
  if (begin < end) load(begin, 0);

  const int warp = thread / 32;
  const unsigned own = shared.owned() + static_cast<unsigned>(warp * 16 * Shape::kRowBytes);
  const unsigned columns = static_cast<unsigned>(place.part * Shape::kColumns * 2);
  const int upper = first_key + warp * 16 + thread % 32 / 4;  // of the lane's two keys
  const float unit = static_cast<float>(a.scale) * kLog2E;
  float d_k[1][Shape::kColumns / 2], d_v[1][Shape::kColumns / 2];
  clear(d_k[0]);
  clear(d_v[0]);
#pragma unroll 1
  for (int tile = begin; tile < end; ++tile) {
    const int turn = tile - begin;
    mma::wait<0>();
    __syncthreads();  // the tile is here, and no warp needs the one before
    if (Shape::kStages > 1 && tile + 1 < end) load(tile + 1, turn + 1);
    const unsigned q = shared.passing(turn);
    const unsigned d_o = q + Shape::kPassingBytes;
    float s[1][kPassing / 2], d_s[1][kPassing / 2];
    multiply<Stored, Shape>(a, own, q, s, d_s);

    const int first_row = tile * kPassing;
    const LanePlaces<true> places{first_row + thread % 4 * 2, upper};
    const Facts<Stored>* facts = shared.facts(turn) + thread % 4 * 2;
    const auto facts_at = [&](int i) { return facts[places.across(i)]; };
    if constexpr (kGeneral<Stored>) {
      make_pairs(s[0], d_s[0], rows, places, facts_at);
    } else {
#pragma unroll
      for (int i = 0; i < kPassing / 2; ++i) make_pair(s[0][i], d_s[0][i], unit, facts_at(i));
    }
    const int first_query = rows.query(first_row);
    const bool whole =
        first_row + kPassing <= rows.count() &&
        of_rows(rows.sight, first_query, rows.query(first_row + kPassing - 1) - first_query + 1)
            .by_all(first_key, kTile);
    if (!whole) {
#pragma unroll
      for (int i = 0; i < kPassing / 8; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int row = first_row + 8 * i + thread % 4 * 2 + e;
          const int query = rows.query(row);
          const int from = rows.sight.begin(query);
          const int to = row < rows.count() ? rows.sight.end(query) : 0;
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            if (upper + 8 * r >= from && upper + 8 * r < to) continue;
            s[0][4 * i + 2 * r + e] = d_s[0][4 * i + 2 * r + e] = 0;
          }
        }
      }
    }
    add_to<Stored, Shape>(d_v, a, s, d_o + columns);
    add_to<Stored, Shape>(d_k, a, d_s, q + columns);
    if (Shape::kStages == 1 && tile + 1 < end) {
      __syncthreads();
      load(tile + 1, turn + 1);
    }
  }
  mma::wait<0>();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int key = upper + 8 * r;
    if (key >= rows.sight.keys) continue;
    const int first = place.part * Shape::kColumns;
    const auto store = [&](const Heads& gradient, const auto& sums, float by) {
      const std::int64_t at = rows.token_offset(gradient, key) + first;
      store_gradient(gradient, at, sums, r, by, a.dim - first, a.accumulate);
    };
    store(a.d_k, d_k[0], static_cast<float>(a.scale));
    store(a.d_v, d_v[0], 1);
  }
}

// A block has a tile of rows, a warp 16 of them, and all keys that one of them sees go by.
template <class Stored, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kDim > 128 ? 1 : 2)
    backward_rows(const __grid_constant__ AttentionBackwardArgs a, const Divisor sharing,
                  const Tiles tiles) {
  extern __shared__ __align__(128) std::byte memory[];
  constexpr int kTile = Shape::kTile, kPassing = Shape::kPassing;
  await_previous();
  begin_next();
  Place place{};
  if (!place_of<Shape>(a, tiles, place,
                       [&](const Sequence& s) { return static_cast<int>(s.queries) * sharing; })) {
    return;
  }
  const PackedRows rows(a, sharing, place.batch, place.kv_head);
  const int first_row = place.first;
  if (first_row >= rows.count()) return;

  const Memory<Stored, Shape> shared{memory};
  const auto load = [&](int tile, int turn) {
    load_key_pair<Stored, Shape, kPassing>(shared.passing(turn), rows, tile * kPassing);
    mma::commit();
  };
  const KeyTiles keys = rows.key_tiles(first_row, kTile, kPassing);
  load_row_pair<Stored, Shape, kTile>(shared.owned(), rows, a.d_o, first_row);
  if (keys.begin < keys.end) load(keys.begin, 0);

  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const unsigned own = shared.owned() + static_cast<unsigned>(warp * 16 * Shape::kRowBytes);
  const int upper = first_row + warp * 16 + thread % 32 / 4;  // of the lane's two rows
  const Facts<Stored> facts[2] = {facts_of<Stored>(a, rows, upper),
                                  facts_of<Stored>(a, rows, upper + 8)};
  const Seen seen = rows.seen(upper);
  const float unit = static_cast<float>(a.scale) * kLog2E;
  const int column = Shape::kQueryColumns < Shape::kDim ? place.part * Shape::kQueryColumns : 0;
  float d_q[1][Shape::kQueryColumns / 2];
  clear(d_q[0]);
#pragma unroll 1
  for (int tile = keys.begin; tile < keys.end; ++tile) {
    const int turn = tile - keys.begin;
    mma::wait<0>();
    __syncthreads();
    if (Shape::kStages > 1 && tile + 1 < keys.end) load(tile + 1, turn + 1);
    const unsigned k = shared.passing(turn);
    float s[1][kPassing / 2], d_s[1][kPassing / 2];
    multiply<Stored, Shape>(a, own, k, s, d_s);
    const bool whole = keys.whole(tile);
    const LanePlaces<false> places{upper, tile * kPassing + thread % 4 * 2};
    if constexpr (kGeneral<Stored>) {
      make_pairs(s[0], d_s[0], rows, places, [&](int i) { return facts[i / 2 % 2]; });
    }
#pragma unroll
    for (int i = 0; i < kPassing / 2; ++i) {
      const int r = i / 2 % 2;
      if constexpr (!kGeneral<Stored>) make_pair(s[0][i], d_s[0][i], unit, facts[r]);
      const int key = places.key_of(i);
      if (!whole && (key < seen.begin[r] || key >= seen.end[r])) d_s[0][i] = 0;
    }
    add_to<Stored, Shape>(d_q, a, d_s, k + static_cast<unsigned>(2 * column));
    if (Shape::kStages == 1 && tile + 1 < keys.end) {
      __syncthreads();
      load(tile + 1, turn + 1);
    }
  }
  mma::wait<0>();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = upper + 8 * r;
    if (row >= rows.count()) continue;
    store_gradient(a.d_q, rows.row_offset(a.d_q, row) + column, d_q[0], r,
                   static_cast<float>(a.scale), a.dim - column, a.accumulate);
  }
}

template <class Stored, int Dim>
Status launch_tiles(const AttentionBackwardArgs& a,
                    const gpu_attention::BackwardFlashLaunch& planned) {
  using Shape = backward::Shape<Dim>;
  const Divisor sharing = sharing_of(a);
  const auto run = [&](auto* kernel, int own, std::int64_t blocks, bool ragged, int columns) {
    if (blocks == 0) return Status{};
    const auto parts = static_cast<int>(ceil_div(a.dim, columns));
    const auto batch = static_cast<int>(a.batch);
    const int tiles = ragged ? own + batch : own * batch;
    return launch({.queue = a.queue,
                   .blocks = blocks,
                   .threads = planned.threads,
                   .shared_bytes = planned.shared_bytes},
                  "gpu_flash", kernel, a, sharing,
                  Tiles{Divisor(parts), Divisor(tiles), Divisor(own), ragged});
  };
  const auto tiles_of = [](std::int64_t count) {
    return static_cast<int>((count + Shape::kTile - 1) / Shape::kTile);
  };
  ONEPASS_TRY(run(backward_keys<Stored, Shape>, tiles_of(a.keys), planned.key_blocks,
                  static_cast<bool>(a.kv_offsets), Shape::kColumns));
  return run(backward_rows<Stored, Shape>, tiles_of(a.queries * static_cast<int>(sharing)),
             planned.query_blocks, static_cast<bool>(a.q_offsets), Shape::kQueryColumns);
}

}  // namespace onepass::ops::attention::backward

namespace onepass::ops::attention {

template <int Dim>
Status gpu_backward_flash_any_of(const AttentionBackwardArgs& a,
                                 const gpu_attention::BackwardFlashLaunch& planned) {
  return backward::launch_tiles<Either16, Dim>(a, planned);
}

template <int Dim>
Status gpu_backward_flash_of(const AttentionBackwardArgs& a,
                             const gpu_attention::BackwardFlashLaunch& planned) {
  return a.q.dtype == DType::bf16 ? backward::launch_tiles<BF16, Dim>(a, planned)
                                  : backward::launch_tiles<F16, Dim>(a, planned);
}

}  // namespace onepass::ops::attention
