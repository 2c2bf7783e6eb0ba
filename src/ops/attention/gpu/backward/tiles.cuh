// Tiles of the backward's tensor core kernels: which a block owns, and how they come to its shared
// memory.
#pragma once

#include "ops/attention/gpu/backward/rows.cuh"
#include "ops/attention/gpu/flash/load_tiles.cuh"

namespace onepass::ops::attention::backward {

// The kernels of f16 and of bf16 take what hides keys by their place; that of Either16 takes every
// option.
template <class Stored>
inline constexpr bool kGeneral = std::is_same_v<Stored, Either16>;

// What a general kernel knows of a row.
struct alignas(16) GeneralRow : BackwardRow {
  float slope;
  int own;  // the key that the query stands at
};

template <class Stored>
using Facts = std::conditional_t<kGeneral<Stored>, GeneralRow, BackwardRow>;
static_assert(sizeof(Facts<Either16>) == gpu_attention::backward_facts_bytes(true) &&
              sizeof(Facts<BF16>) == gpu_attention::backward_facts_bytes(false));

template <int Dim>
struct Shape {
  static constexpr int kDim = Dim;
  static constexpr int kTile = gpu_attention::kBackwardTile;  // rows or keys that a block owns
  static constexpr int kPassing = gpu_attention::backward_passing(Dim);
  static constexpr int kThreads = gpu_attention::kBackwardThreads;
  // What a block sums of dk and dv, and of dq.
  static constexpr int kColumns = std::min(Dim, gpu_attention::kBackwardColumns);
  static constexpr int kQueryColumns = std::min(Dim, gpu_attention::kBackwardQueryColumns);
  // What is read next comes while what is here is multiplied, if shared memory has room.
  static constexpr int kStages = gpu_attention::backward_stages(Dim);
  static constexpr int kRowBytes = mma::Swizzled<Dim>::kRowBytes;
  static constexpr int kTileBytes = kTile * kRowBytes;
  static constexpr int kPassingBytes = kPassing * kRowBytes;
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
template <class Stored, class Shape>
struct Memory {
  static constexpr int kFactsAt = 2 * Shape::kTileBytes + Shape::kStages * 2 * Shape::kPassingBytes;
  static_assert(kFactsAt + Shape::kStages * Shape::kPassing * sizeof(Facts<Stored>) ==
                gpu_attention::backward_shared_bytes(Shape::kDim, kGeneral<Stored>));

  std::byte* begin;

  __device__ unsigned owned() const { return shared_address(begin); }
  __device__ unsigned passing(int turn) const {
    return owned() + 2 * Shape::kTileBytes + Shape::kPassingBytes * (turn % Shape::kStages * 2);
  }
  __device__ Facts<Stored>* facts(int turn) const {
    return reinterpret_cast<Facts<Stored>*>(begin + kFactsAt) +
           turn % Shape::kStages * Shape::kPassing;
  }
};

// So many rows of q or of do, zeros past the last.
template <class Stored, class Shape, int Count>
__device__ inline void load_rows(unsigned tile, const PackedRows& rows, const Heads& operand,
                                 int first) {
  const auto* data = static_cast<const Stored*>(operand.data);
  const int dim = rows.a.dim;
  if (rows.sharing == 1) {
    const Stored* own = data + operand.offset(rows.b, rows.kv_head, rows.s.q_first);
    copy_piece<Stored, Shape::kDim, Count, Shape::kThreads>(
        tile, Tokens<Stored>(own, operand.token), first, rows.count(), dim);
    return;
  }
  CopyLanes<Shape::kDim, Shape::kThreads>::template each<Count>([&](int row, int chunk) {
    const unsigned to = mma::Swizzled<Shape::kDim>::at(tile, row, chunk);
    row += first;
    const bool there = row < rows.count() && 8 * chunk < dim;
    const std::int64_t at = there ? rows.row_offset(operand, row) + 8 * chunk : 0;
    mma::copy16(to, data + at, there);
  });
}

// A tile of q and one of do, side by side.
template <class Stored, class Shape, int Count>
__device__ inline void load_row_pair(unsigned tile, const PackedRows& rows, const Heads& d_o,
                                     int first) {
  load_rows<Stored, Shape, Count>(tile, rows, rows.a.q, first);
  load_rows<Stored, Shape, Count>(tile + Count * Shape::kRowBytes, rows, d_o, first);
}

// A tile of k and one of v, side by side.
template <class Stored, class Shape, int Count>
__device__ inline void load_key_pair(unsigned tile, const PackedRows& rows, int first) {
  for (const Heads* operand : {&rows.a.k, &rows.a.v}) {
    copy_piece<Stored, Shape::kDim, Count, Shape::kThreads>(tile, Tokens<Stored>(rows, *operand, 0),
                                                            first, rows.sight.keys, rows.a.dim);
    tile += Count * Shape::kRowBytes;
  }
}

// A row's lse in powers of two and its mean gradient, and for a general kernel what ALiBi asks for.
// A row past the last has no weight.
template <class Stored>
__device__ inline Facts<Stored> facts_of(const AttentionBackwardArgs& a, const PackedRows& rows,
                                         int row) {
  if (row >= rows.count()) return {-minus_infinity<float>(), 0};
  const int head = rows.head(row), query = rows.query(row);
  BackwardRow facts = backward_row(a, rows.b, head, rows.s.q_first + query);
  facts.lse *= kLog2E;
  if constexpr (kGeneral<Stored>) {
    const Heads& slopes = a.alibi;
    const float slope =
        slopes ? read_like<float>(slopes.data, slopes.dtype, slopes.offset(rows.b, head, 0)) : 0;
    return {facts, slope, rows.sight.own(query)};
  } else {
    return facts;
  }
}

}  // namespace onepass::ops::attention::backward
