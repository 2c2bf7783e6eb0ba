// Flash attention by the tensor cores of one warp at a time: the kernel of
// gpu_flash and gpu_decode.
#pragma once

#include "core/cuda/dependent.cuh"
#include "ops/attention/gpu/flash/load_tiles.cuh"
#include "ops/attention/gpu/flash/partial.cuh"
#include "ops/attention/gpu/flash/plan.hpp"
#include "ops/attention/gpu/flash/split_kv.hpp"
#include "ops/attention/gpu/packed.cuh"
#include "runtime/launch.cuh"

namespace onepass::ops::attention {

// A team: warps that share rows and keys. A block has one of several warps, or some of one warp
// each, all with the same rows and with keys of their own. Dim is what q and k have, Columns what a
// block sums of v: all, but where their sums would be too many for the registers.
template <int Dim, int Columns, int Warps, int RowTiles, int Keys = gpu_attention::kFlashKeys>
struct Shape {
  static constexpr int kDim = Dim;
  static constexpr int kColumns = Columns;
  static constexpr int kColumnParts = Dim / Columns;  // dims up to half have kernels of their own
  static constexpr int kThreads = Warps * 32;         // a team
  static constexpr bool kAlone = Warps == 1;
  static constexpr bool kTwice = Keys > gpu_attention::kFlashKeys;
  static constexpr bool kShares = !kAlone && !kTwice;  // keys, in a cluster
  static constexpr int kMostThreads = kAlone ? 32 * gpu_attention::kMostTeams : kThreads;
  static constexpr int kRowTiles = RowTiles;                // of 16 rows, a warp
  static constexpr bool kFull = Columns * RowTiles >= 256;  // of what registers can hold
  // Of q, steps of 16 columns that stay in registers: where a warp has one tile of rows, shared
  // memory is what it waits for, and no more of them fit.
  static constexpr int kHeld = !kAlone && Dim == 256 ? 6 : 0;
  static constexpr int kRows = Warps * RowTiles * 16;
  static constexpr int kKeys = Keys;
  static constexpr int kQueryBytes = kRows * mma::Swizzled<Dim>::kRowBytes;
  static constexpr int kKeyBytes = kKeys * mma::Swizzled<Dim>::kRowBytes;
  static constexpr int kValueBytes = kKeys * mma::Swizzled<Columns>::kRowBytes;
  static constexpr int kBytes = kQueryBytes + kKeyBytes + kValueBytes;  // a team
  using FoundThere = Found<kRows, Columns>;
  static_assert(!kAlone || sizeof(FoundThere) <= kBytes);
  // What is planned with:
  static_assert(kBytes == gpu_attention::flash_bytes({Dim, Columns}, kRows, Keys) &&
                sizeof(FoundThere) == gpu_attention::found_bytes({Dim, Columns}, kRows));
};

// What a key whose page is not there has for words: those who see it get NaN by its score. Its
// value is 0, so that no other thread does.
inline constexpr unsigned kNaNs = 0xFFFFFFFFU;

// Which rows a block has, and which part of their keys and columns.
struct Place {
  std::int64_t batch;
  int kv_head, first_row, column, part;
};

// What all of them are. They are counted with 31 bits (gpu_attention::refuse_size).
struct Grid {
  Divisor sharing;
  Divisor parts;
  Divisor tiles;  // of the rows of all sequences; where these have lengths of their own, at most
  Divisor of_sequence;  // where they have not
};

// Tiles of rows that a sequence has.
template <class Shape>
ONEPASS_HD inline int row_tiles(int sharing, std::int64_t queries) {
  return (static_cast<int>(queries) * sharing + Shape::kRows - 1) / Shape::kRows;
}

// Clusters count, from the slowest: kv heads, tiles of rows of all sequences (those with the most
// keys first), parts of the keys, and of the columns. Where sequences have lengths of their own
// there may be more of them than tiles.
template <class Shape>
__device__ inline bool place_of(const AttentionArgs& a, const Grid& grid, int index, Place& out) {
  out.column = index % Shape::kColumnParts * Shape::kColumns;
  index /= Shape::kColumnParts;
  out.part = index % grid.parts;
  index = index / grid.parts;
  out.kv_head = index / grid.tiles;
  index = index % grid.tiles;
  if (!a.q_offsets) {
    out.batch = index / grid.of_sequence;
    out.first_row = (grid.of_sequence - 1 - index % grid.of_sequence) * Shape::kRows;
    return true;
  }
  for (out.batch = 0; out.batch < a.batch; ++out.batch) {
    const int own = row_tiles<Shape>(grid.sharing, sequence_of(a, out.batch).queries);
    if (index < own) {
      out.first_row = (own - 1 - index) * Shape::kRows;
      return true;
    }
    index -= own;
  }
  return false;
}

template <class Stored, class Shape, bool Clusters>
__device__ inline void flash_block(const AttentionArgs& a, bool plain, const Partials& partials,
                                   const Grid& grid, bool aligned) {
  extern __shared__ __align__(128) std::byte memory[];
  await_previous();
  begin_next();  // the join, or whatever comes
  constexpr int kTiles = Shape::kRowTiles;
  constexpr int kSteps = Shape::kKeys / 16;
  const auto number = static_cast<int>(Clusters ? cluster::index() : blockIdx.x);
  Place place{};
  if (!place_of<Shape>(a, grid, number, place)) return;
  const PackedRows rows(a, grid.sharing, place.batch, place.kv_head);
  const auto index = static_cast<int>(threadIdx.x);
  const int thread = Shape::kAlone ? index % 32 : index;
  const int team = Shape::kAlone ? index / 32 : 0;
  const int teams = Shape::kAlone ? static_cast<int>(blockDim.x) / 32 : 1;
  // A team has one warp and a block many teams, or a block is a team, of a cluster perhaps.
  const int blocks = Clusters ? cluster::size() : 1;
  const int rank = Clusters ? cluster::rank() : 0;
  const int sharing = teams * blocks;
  const unsigned q = shared_address(memory) + static_cast<unsigned>(team * Shape::kBytes);
  const unsigned k = q + Shape::kQueryBytes;
  const unsigned v = k + Shape::kKeyBytes;
  const unsigned own_q =
      q + static_cast<unsigned>(thread / 32 * kTiles * 16 * mma::Swizzled<Shape::kDim>::kRowBytes);
  const int upper = place.first_row + thread / 32 * kTiles * 16 + thread % 32 / 4;
  const Tokens<Stored> k_tokens(rows, a.k, 0);
  const Tokens<Stored> v_tokens(rows, a.v, place.column);
  const auto ask_for_k = [&](int tile) {
    load_keys<Stored, Shape::kDim, Shape::kKeys, Shape::kThreads>(
        k, k_tokens, tile * Shape::kKeys, rows.sight.keys, a.dim, kNaNs, aligned);
  };
  const auto load_k = [&](int tile) {
    ask_for_k(tile);
    mma::commit();
  };
  const auto load_v = [&](int tile) {
    load_keys<Stored, Shape::kColumns, Shape::kKeys, Shape::kThreads>(
        v, v_tokens, tile * Shape::kKeys, rows.sight.keys, a.dim - place.column, 0, aligned);
    mma::commit();
  };

  const Online fresh((plain ? static_cast<float>(a.scale) : 1.F) * kLog2E);
  Online online[kTiles];
  float o[kTiles][Shape::kColumns / 2];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    online[t] = fresh;
#pragma unroll
    for (float& x : o[t]) x = 0;
  }

  KeyTiles keys = rows.key_tiles(place.first_row, Shape::kRows, Shape::kKeys);
  if (partials.count > 1) keys = keys.of_part(place.part, partials.keys / Shape::kKeys);
  const int last = keys.end - 1 - (rank * teams + team);  // this team's
  if (last >= keys.begin) {
    ask_for_k(last);
    load_queries<Stored, Shape::kDim, Shape::kRows, Shape::kThreads>(q, rows, place.first_row,
                                                                     aligned);
    mma::commit();
    load_v(last);
  }
  unsigned held[std::max(Shape::kHeld, 1)][4] = {};
  // Keys and values have one place each. A warp alone fills it again as soon as it can; warps that
  // wait for each other anyway bring the values of a tile when its keys are here.
  const auto sync = [] { Shape::kAlone ? __syncwarp() : __syncthreads(); };
#pragma unroll 1
  for (int tile = last; tile >= keys.begin; tile -= sharing) {
    const bool begins = tile == last;
    const int next = tile - sharing;
    Shape::kAlone || begins ? mma::wait<1>() : mma::wait<0>();
    sync();  // keys are here, and no warp needs the values before
    if (!Shape::kAlone && !begins) load_v(tile);
    float s[kTiles][Shape::kKeys / 2];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (float& x : s[t]) x = 0;
    }
    if (Shape::kHeld > 0 && begins) mma::hold<Shape::kDim>(held, own_q);
    as_stored<Stored>(a, [&]<class As>(Type<As>) {
      mma::scores<As, Shape::kDim, Shape::kHeld>(s, held, own_q, k);
    });
    if (!Shape::kAlone) mma::wait<0>();
    sync();  // no warp needs the keys; where there are more warps, values are here
    next >= keys.begin ? load_k(next) : mma::commit();

    unsigned weights[kTiles][kSteps][4];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const int first = tile * Shape::kKeys + thread % 4 * 2;
      if (!plain) make_logits(s[t], rows, upper + 16 * t, first);
      if (!keys.whole(tile)) hide(s[t], rows.seen(upper + 16 * t), first);
      float by[2];
      online[t].absorb(s[t], by);
      if (Shape::kFull && online[t].never()) __trap();  // nothing from below comes before it
      shrink<true>(o[t], by);
      as_stored<Stored>(a, [&]<class As>(Type<As>) { narrow_weights<As>(s[t], weights[t]); });
    }
    if (Shape::kAlone) {
      mma::wait<1>();
      __syncwarp();
    }
    as_stored<Stored>(a,
                      [&]<class As>(Type<As>) { mma::sums<As, Shape::kColumns>(o, weights, v); });
    if (Shape::kAlone) {
      __syncwarp();
      next >= keys.begin ? load_v(next) : mma::commit();
    }
  }

  // Each row of the team's, of the four lanes that have it.
  const auto each_row = [&](auto&& body) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int r = 0; r < 2; ++r) body(upper + 16 * t + 8 * r, online[t].row(r), o[t], r);
    }
  };
  if (Shape::kAlone ? partials.each > 1 : sharing == 1) {
    if (Shape::kAlone || partials.count > 1) {
      each_row([&](int row, const State<float>& seen, const auto& sums, int r) {
        const int which = place.part * partials.each + team;
        store_part(partials, which, rows, row, sums, r, seen, place.column);
      });
      return;
    }
    each_row([&](int row, const State<float>& seen, const auto& sums, int r) {
      const State<float> all = with_sink(a, seen, row < rows.count() ? rows.head(row) : 0);
      store_row<Stored>(rows, row, sums, r, factor(all, seen.m), place.column, aligned);
      if (place.column == 0 && thread % 4 == 0) write_lse(rows, row, all);
    });
    return;
  }
  if constexpr (!Shape::kAlone && !Clusters) return;
  const auto of_team = [&](int i) -> typename Shape::FoundThere& {
    return *reinterpret_cast<typename Shape::FoundThere*>(memory + i * Shape::kBytes);
  };
  const auto of_block = [&](int i) -> const typename Shape::FoundThere& {
    return *cluster::of_block(&of_team(0), i);
  };
  sync();  // no warp needs keys or values
  each_row([&](int row, const State<float>& seen, const auto& sums, int r) {
    of_team(team).leave(row - place.first_row, seen, sums, r);
  });
  Clusters ? cluster::meet() : __syncthreads();
  constexpr int kFours = Shape::kColumns / 4;
  const int count = between(0, rows.count() - place.first_row, Shape::kRows);
  const auto threads = static_cast<int>(blockDim.x);
  for (int i = rank * threads + index; i < count * kFours; i += blocks * threads) {
    const int row = i / kFours;
    const int column = i % kFours * 4;
    if (place.column + column >= a.dim) continue;
    const FoundFour found = merge_found<8>(sharing, [&](int from) {
      return (Clusters ? of_block(from) : of_team(from)).four(row, column);
    });
    put(rows, partials, place.part, place.first_row + row, place.column + column, found);
  }
  if (Clusters) cluster::meet();  // no block leaves while another reads
}

template <class Stored, class Shape, bool Usual, bool Clusters>
__global__ void __launch_bounds__(Shape::kMostThreads)
    flash_kernel(const __grid_constant__ AttentionArgs a, const Partials partials, const Grid grid,
                 bool aligned) {
  if constexpr (!Usual) {
    flash_block<Stored, Shape, Clusters && kHasClusters>(a, only_scaled(a), partials, grid,
                                                         aligned);
  } else if constexpr (!Clusters || kHasClusters) {
    flash_block<Stored, Shape, Clusters>(usual<Stored>(a), true, partials, grid, true);
  }
}

inline bool takes_usual(const AttentionArgs& a, const gpu_attention::FlashLaunch& planned) {
  return planned.aligned && is_usual(a);
}

// What is not usual goes through one kernel, of either dtype, with clusters or without.
template <class Stored, class Shape>
auto kernel_for(bool usual, bool clusters) {
  if constexpr (!Shape::kTwice) {
    if (!usual) return flash_kernel<Either16, Shape, false, Shape::kShares>;
  }
  return clusters ? flash_kernel<Stored, Shape, true, Shape::kShares>
                  : flash_kernel<Stored, Shape, true, false>;
}

template <class Stored, class Shape>
Status launch_flash(const AttentionArgs& a, const gpu_attention::FlashLaunch& planned) {
  const Partials partials = partials_of(a, planned);
  const auto batch = static_cast<int>(a.batch);
  const Divisor sharing = sharing_of(a);
  const int own = row_tiles<Shape>(sharing, a.queries);
  const int tiles = a.q_offsets ? own + batch : own * batch;
  const Grid grid{sharing, Divisor(partials.count), Divisor(tiles), Divisor(own)};
  const auto kernel = kernel_for<Stored, Shape>(takes_usual(a, planned), planned.cluster > 1);
  const LaunchConfig how{
      .queue = a.queue,
      .blocks = tiles * a.kv_heads * partials.count * Shape::kColumnParts * planned.cluster,
      .threads = planned.threads,
      .shared_bytes = planned.shared_bytes,
      .cluster = planned.cluster};
  const Status status = launch(how, "gpu_flash", kernel, a, partials, grid, planned.aligned);
  return status.ok() && partials.count > 1 ? combine(a, partials) : status;
}

}  // namespace onepass::ops::attention
