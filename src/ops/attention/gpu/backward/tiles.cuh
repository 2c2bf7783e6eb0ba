// Tiles of the backward's tensor core kernels: which a block owns, and how they come to its shared
// memory.
#pragma once

#include "ops/attention/gpu/backward/rows.cuh"
#include "ops/attention/gpu/flash/load_tiles.cuh"

namespace onepass::ops::attention::backward {

template <int Dim>
struct Shape {
  static constexpr int kDim = Dim;
  static constexpr int kTile =
      gpu_attention::kBackwardTile;  // rows or keys, of a block and passing
  static constexpr int kThreads = gpu_attention::kBackwardThreads;
  // Of dk and dv a block has so many columns: the registers hold no more.
  static constexpr int kColumns = std::min(Dim, gpu_attention::kBackwardColumns);
  static constexpr int kParts = Dim / kColumns;
  // What is read next comes while what is here is multiplied, if shared memory has room.
  static constexpr int kStages = gpu_attention::backward_stages(Dim);
  static constexpr int kRowBytes = mma::Swizzled<Dim>::kRowBytes;
  static constexpr int kTileBytes = kTile * kRowBytes;
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
  int kv_head, first, part;  // of its tile, the first row or key
};

// `count` gives the rows or keys of a sequence.
template <class Shape, class Count>
__device__ inline bool place_of(const AttentionArgs& a, const Tiles& tiles, Place& out,
                                Count count) {
  auto index = static_cast<int>(blockIdx.x);
  out.part = index % tiles.parts;
  index = index / tiles.parts;
  out.kv_head = index / tiles.tiles;
  index = index % tiles.tiles;
  if (!tiles.ragged) {
    out.batch = index / tiles.of_sequence;
    out.first = index % tiles.of_sequence * Shape::kTile;
    return true;
  }
  for (out.batch = 0; out.batch < a.batch; ++out.batch) {
    const int own = (count(sequence_of(a, out.batch)) + Shape::kTile - 1) / Shape::kTile;
    if (index < own) {
      out.first = index * Shape::kTile;
      return true;
    }
    index -= own;
  }
  return false;
}

// The shared memory of a block: a pair of tiles that it owns, then pairs that pass, of rows or of
// keys, then what is known of the rows.
template <class Shape>
struct Memory {
  std::byte* begin;

  __device__ unsigned owned() const { return shared_address(begin); }
  __device__ unsigned passing(int turn) const {
    return owned() + Shape::kTileBytes * (2 + turn % Shape::kStages * 2);
  }
  __device__ BackwardRow* facts(int turn) const {
    constexpr std::size_t kTiles = 2 + 2 * Shape::kStages;
    return reinterpret_cast<BackwardRow*>(begin + kTiles * Shape::kTileBytes) +
           turn % Shape::kStages * Shape::kTile;
  }
};

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
    const std::int64_t at = there ? rows.row_offset(operand, row) + 8 * chunk : 0;
    mma::copy16(to, data + at, there);
  });
}

// A tile of q and one of do, side by side.
template <class Stored, class Shape>
__device__ inline void load_row_pair(unsigned tile, const PackedRows& rows, const Heads& d_o,
                                     int first) {
  load_rows<Stored, Shape>(tile, rows, rows.a.q, first);
  load_rows<Stored, Shape>(tile + Shape::kTileBytes, rows, d_o, first);
}

// A tile of k and one of v, side by side.
template <class Stored, class Shape>
__device__ inline void load_key_pair(unsigned tile, const PackedRows& rows, int first) {
  for (const Heads* operand : {&rows.a.k, &rows.a.v}) {
    copy_piece<Stored, Shape::kDim, Shape::kTile, Shape::kThreads>(
        tile, Tokens<Stored>(rows, *operand, 0), first, rows.sight.keys, rows.a.dim);
    tile += Shape::kTileBytes;
  }
}

// A row's lse in powers of two and its mean gradient; a row past the last has no weight.
__device__ inline BackwardRow facts_of(const AttentionBackwardArgs& a, const PackedRows& rows,
                                       int row) {
  if (row >= rows.count()) return {-minus_infinity<float>(), 0};
  BackwardRow facts = backward_row(a, rows.b, rows.head(row), rows.s.q_first + rows.query(row));
  facts.lse *= kLog2E;
  return facts;
}

}  // namespace onepass::ops::attention::backward
