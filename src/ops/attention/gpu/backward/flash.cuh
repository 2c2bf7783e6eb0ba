// The kernels of flash.cu for tiles of one dim: dk and dv by tiles of keys, dq by tiles of rows.
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
#include "ops/attention/gpu/backward/rows.cuh"
#include "ops/attention/gpu/flash/load_tiles.cuh"
#include "runtime/launch.cuh"

namespace onepass::ops::attention::backward {

template <int Dim>
struct Shape {
  static constexpr int kDim = Dim;
  static constexpr int kTile = gpu_attention::kBackwardTile;  // rows or keys
  static constexpr int kThreads = gpu_attention::kBackwardThreads;
  // Of dk and dv a block has so many columns: the registers hold no more.
  static constexpr int kColumns = std::min(Dim, gpu_attention::kBackwardColumns);
  static constexpr int kParts = Dim / kColumns;
  // What is read next comes while what is here is multiplied, if shared memory has room.
  static constexpr int kStages = gpu_attention::backward_stages(Dim);
  static constexpr int kTileBytes = kTile * mma::Swizzled<Dim>::kRowBytes;
  static_assert(2 * (1 + kStages) * kTileBytes + kStages * kTile * sizeof(BackwardRow) ==
                gpu_attention::backward_shared_bytes(Dim));
  static_assert(kTile == kThreads / 32 * 16, "a warp has 16 of a tile");
};

// Which tile a block has. Where sequences have lengths of their own, there may be more blocks than
// tiles.
struct Tiles {
  Divisor parts, tiles, of_sequence;
  bool ragged = false;
};

struct Place {
  std::int64_t batch;
  int kv_head, tile, part;
};

// `count` gives the tiles of a sequence.
template <class Count>
__device__ inline bool place_of(const AttentionArgs& a, const Tiles& tiles, int index, Place& out,
                                Count count) {
  out.part = index % tiles.parts;
  index = index / tiles.parts;
  out.kv_head = index / tiles.tiles;
  index = index % tiles.tiles;
  if (!tiles.ragged) {
    out.batch = index / tiles.of_sequence;
    out.tile = index % tiles.of_sequence;
    return true;
  }
  for (out.batch = 0; out.batch < a.batch; ++out.batch) {
    const int own = count(sequence_of(a, out.batch));
    if (index < own) {
      out.tile = index;
      return true;
    }
    index -= own;
  }
  return false;
}

// Rows of q or of do, zeros past the last.
template <class Stored, class Shape>
__device__ inline void load_rows(unsigned tile, const PackedRows& rows, const Heads& operand,
                                 int first) {
  const auto* data = static_cast<const Stored*>(operand.data);
  const int dim = rows.a.dim;
  if (rows.sharing == 1) {
    const Stored* own = data + operand.offset(rows.b, rows.kv_head, rows.s.q_first);
    copy_piece<Stored, Shape::kDim, Shape::kTile, Shape::kThreads>(
        tile, Tokens<Stored>(own, operand.token), first, rows.count(), dim);
    return;
  }
  CopyLanes<Shape::kDim, Shape::kThreads>::template each<Shape::kTile>([&](int row, int chunk) {
    const unsigned to = mma::Swizzled<Shape::kDim>::at(tile, row, chunk);
    row += first;
    const bool there = row < rows.count() && 8 * chunk < dim;
    const std::int64_t token = rows.s.q_first + rows.query(row);
    const std::int64_t at = there ? operand.offset(rows.b, rows.head(row), token) + 8 * chunk : 0;
    mma::copy16(to, data + at, there);
  });
}

template <class Stored, class Shape>
__device__ inline void load_tokens(unsigned tile, const PackedRows& rows, const Heads& operand,
                                   int first) {
  copy_piece<Stored, Shape::kDim, Shape::kTile, Shape::kThreads>(
      tile, Tokens<Stored>(rows, operand, 0), first, rows.sight.keys, rows.a.dim);
}

// A row's lse in powers of two and its mean gradient; a row past the last has no weight.
__device__ inline BackwardRow facts_of(const AttentionBackwardArgs& a, const PackedRows& rows,
                                       int row) {
  if (row >= rows.count()) return {-minus_infinity<float>(), 0};
  BackwardRow facts = backward_row(a, rows.b, rows.head(row), rows.s.q_first + rows.query(row));
  facts.lse *= kLog2E;
  return facts;
}

// One score and what do · v comes to become the weight and the gradient of z. No weight is above 1,
// but z and lse are rounded.
__device__ inline void make_pair(float& score, float& d_weight, float unit,
                                 const BackwardRow& row) {
  float x;
  asm("min.NaN.f32 %0, %1, 0f00000000;" : "=f"(x) : "f"(fmaf(score, unit, -row.lse)));
  score = power_of_two(x);
  d_weight = score * (d_weight - row.mean);
}

template <int Size>
__device__ inline void clear(float (&sums)[Size]) {
#pragma unroll
  for (float& x : sums) x = 0;
}

// A block has a tile of keys, a warp 16 of them, and all rows of their head that see one go by.
// Scores are transposed: keys are the rows of the products.
template <class Stored, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 2)
    backward_keys(const __grid_constant__ AttentionBackwardArgs a, const Divisor sharing,
                  const Tiles tiles) {
  extern __shared__ __align__(128) std::byte memory[];
  constexpr int kTile = Shape::kTile;
  await_previous();
  begin_next();
  Place place{};
  if (!place_of(a, tiles, static_cast<int>(blockIdx.x), place,
                [](const Sequence& s) { return static_cast<int>((s.keys + kTile - 1) / kTile); })) {
    return;
  }
  const PackedRows rows(a, sharing, place.batch, place.kv_head);
  const int first_key = place.tile * kTile;
  if (rows.sight.queries == 0 || first_key >= rows.sight.keys) return;

  const unsigned k = shared_address(memory);
  const unsigned v = k + Shape::kTileBytes;
  const auto q_of = [&](int turn) {
    return v + Shape::kTileBytes * (1 + turn % Shape::kStages * 2);
  };
  auto* const all_facts = reinterpret_cast<BackwardRow*>(
      memory + static_cast<std::size_t>(2 + 2 * Shape::kStages) * Shape::kTileBytes);
  const auto thread = static_cast<int>(threadIdx.x);
  const auto load = [&](int tile, int turn) {
    load_rows<Stored, Shape>(q_of(turn), rows, a.q, tile * kTile);
    load_rows<Stored, Shape>(q_of(turn) + Shape::kTileBytes, rows, a.d_o, tile * kTile);
    if (thread < kTile) {
      all_facts[turn % Shape::kStages * kTile + thread] = facts_of(a, rows, tile * kTile + thread);
    }
    mma::commit();
  };

  const QueryRange seeing = queries_seeing(rows.sight, first_key, kTile);
  const int begin = seeing.begin * sharing / kTile;
  const int end = (seeing.end * sharing + kTile - 1) / kTile;
  load_tokens<Stored, Shape>(k, rows, a.k, first_key);
  load_tokens<Stored, Shape>(v, rows, a.v, first_key);
  if (begin < end) load(begin, 0);

  const int warp = thread / 32;
  const unsigned own = static_cast<unsigned>(warp * 16 * mma::Swizzled<Shape::kDim>::kRowBytes);
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
    const unsigned q = q_of(turn);
    const unsigned d_o = q + Shape::kTileBytes;
    constexpr unsigned kNone[1][4] = {};
    float s[1][kTile / 2], d_s[1][kTile / 2];
    clear(s[0]);
    clear(d_s[0]);
    mma::scores<Stored, Shape::kDim, 0>(s, kNone, k + own, q);
    mma::scores<Stored, Shape::kDim, 0>(d_s, kNone, v + own, d_o);

    const BackwardRow* facts = all_facts + turn % Shape::kStages * kTile + thread % 4 * 2;
#pragma unroll
    for (int i = 0; i < kTile / 8; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const BackwardRow row = facts[8 * i + e];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          make_pair(s[0][4 * i + 2 * r + e], d_s[0][4 * i + 2 * r + e], unit, row);
        }
      }
    }
    const int first_row = tile * kTile;
    const int first_query = rows.query(first_row);
    const bool whole =
        first_row + kTile <= rows.count() &&
        of_rows(rows.sight, first_query, rows.query(first_row + kTile - 1) - first_query + 1)
            .by_all(first_key, kTile);
    if (!whole) {
#pragma unroll
      for (int i = 0; i < kTile / 8; ++i) {
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
    unsigned left[1][kTile / 16][4];
    narrow_weights<Stored>(s[0], left[0]);
    mma::sums<Stored, Shape::kColumns, Shape::kDim>(d_v, left, d_o + columns);
    narrow_weights<Stored>(d_s[0], left[0]);
    mma::sums<Stored, Shape::kColumns, Shape::kDim>(d_k, left, q + columns);
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
      const std::int64_t at = gradient.offset(rows.b, rows.kv_head, rows.s.k_first + key) + first;
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
  constexpr int kTile = Shape::kTile;
  await_previous();
  begin_next();
  Place place{};
  if (!place_of(a, tiles, static_cast<int>(blockIdx.x), place, [&](const Sequence& s) {
        return (static_cast<int>(s.queries) * sharing + kTile - 1) / kTile;
      })) {
    return;
  }
  const PackedRows rows(a, sharing, place.batch, place.kv_head);
  const int first_row = place.tile * kTile;
  if (first_row >= rows.count()) return;

  const unsigned q = shared_address(memory);
  const unsigned d_o = q + Shape::kTileBytes;
  const auto k_of = [&](int turn) {
    return d_o + Shape::kTileBytes * (1 + turn % Shape::kStages * 2);
  };
  const auto load = [&](int tile, int turn) {
    load_tokens<Stored, Shape>(k_of(turn), rows, a.k, tile * kTile);
    load_tokens<Stored, Shape>(k_of(turn) + Shape::kTileBytes, rows, a.v, tile * kTile);
    mma::commit();
  };
  const KeyTiles keys = rows.key_tiles(first_row, kTile, kTile);
  load_rows<Stored, Shape>(q, rows, a.q, first_row);
  load_rows<Stored, Shape>(d_o, rows, a.d_o, first_row);
  if (keys.begin < keys.end) load(keys.begin, 0);

  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const unsigned own = static_cast<unsigned>(warp * 16 * mma::Swizzled<Shape::kDim>::kRowBytes);
  const int upper = first_row + warp * 16 + thread % 32 / 4;  // of the lane's two rows
  const BackwardRow facts[2] = {facts_of(a, rows, upper), facts_of(a, rows, upper + 8)};
  const Seen seen = rows.seen(upper);
  const float unit = static_cast<float>(a.scale) * kLog2E;
  float d_q[1][Shape::kDim / 2];
  clear(d_q[0]);
#pragma unroll 1
  for (int tile = keys.begin; tile < keys.end; ++tile) {
    const int turn = tile - keys.begin;
    mma::wait<0>();
    __syncthreads();
    if (Shape::kStages > 1 && tile + 1 < keys.end) load(tile + 1, turn + 1);
    const unsigned k = k_of(turn);
    constexpr unsigned kNone[1][4] = {};
    float s[1][kTile / 2], d_s[1][kTile / 2];
    clear(s[0]);
    clear(d_s[0]);
    mma::scores<Stored, Shape::kDim, 0>(s, kNone, q + own, k);
    mma::scores<Stored, Shape::kDim, 0>(d_s, kNone, d_o + own, k + Shape::kTileBytes);
    const bool whole = keys.whole(tile);
    const int first = tile * kTile + thread % 4 * 2;
#pragma unroll
    for (int i = 0; i < kTile / 2; ++i) {
      const int r = i / 2 % 2;
      make_pair(s[0][i], d_s[0][i], unit, facts[r]);
      const int key = first + i / 4 * 8 + i % 2;
      if (!whole && (key < seen.begin[r] || key >= seen.end[r])) d_s[0][i] = 0;
    }
    unsigned left[1][kTile / 16][4];
    narrow_weights<Stored>(d_s[0], left[0]);
    mma::sums<Stored, Shape::kDim, Shape::kDim>(d_q, left, k);
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
    const std::int64_t at = a.d_q.offset(rows.b, rows.head(row), rows.s.q_first + rows.query(row));
    store_gradient(a.d_q, at, d_q[0], r, static_cast<float>(a.scale), a.dim, a.accumulate);
  }
}

template <class Stored, int Dim>
Status launch_tiles(const AttentionBackwardArgs& a,
                    const gpu_attention::BackwardFlashLaunch& planned) {
  using Shape = backward::Shape<Dim>;
  const Divisor sharing = sharing_of(a);
  const auto run = [&](auto* kernel, int own, std::int64_t blocks, bool ragged, int parts) {
    if (blocks == 0) return Status{};
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
                  static_cast<bool>(a.kv_offsets), Shape::kParts));
  return run(backward_rows<Stored, Shape>, tiles_of(a.queries * static_cast<int>(sharing)),
             planned.query_blocks, static_cast<bool>(a.q_offsets), 1);
}

}  // namespace onepass::ops::attention::backward

namespace onepass::ops::attention {

template <int Dim>
Status gpu_backward_flash_of(const AttentionBackwardArgs& a,
                             const gpu_attention::BackwardFlashLaunch& planned) {
  return a.q.dtype == DType::bf16 ? backward::launch_tiles<BF16, Dim>(a, planned)
                                  : backward::launch_tiles<F16, Dim>(a, planned);
}

}  // namespace onepass::ops::attention
