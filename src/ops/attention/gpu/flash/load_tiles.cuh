// Tiles of queries, keys and values on their way to shared memory: 16 bytes at a time, wherever
// they begin, in one piece or in pages.
#pragma once

#include <algorithm>
#include <bit>

#include "core/cuda/mma.cuh"
#include "ops/attention/gpu/packed.cuh"
#include "ops/attention/gpu/plan.hpp"

namespace onepass::ops::attention {

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

// How so many threads side by side copy a tile of rows: some neighbours a row, 16 bytes each, the
// others further rows.
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

// As load_keys, of tokens in one piece: an address is the last one's and a step. Without a loop
// where many threads share the copies and run them often; a warp alone runs them once or twice, and
// waits for each instruction to come.
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

// Rows of q, zeros past the last. Where a kv head has one head of q they are tokens one
// after the other.
template <class Stored, int Columns, int Rows, int Threads>
__device__ inline void load_queries(unsigned tile, const PackedRows& rows, int first,
                                    bool aligned) {
  const Heads& operand = rows.a.q;
  const auto* q = static_cast<const Stored*>(operand.data);
  if (Rows > gpu_attention::kFewRows && aligned && rows.sharing == 1) {
    const Stored* own = q + operand.offset(rows.b, rows.kv_head, rows.s.q_first);
    copy_piece<Stored, Columns, Rows, Threads>(tile, Tokens<Stored>(own, operand.token), first,
                                               rows.count(), rows.a.dim);
    return;
  }
  CopyLanes<Columns, Threads>::template each<Rows>([&](int row, int chunk) {
    row += first;
    const bool there = row < rows.count() && 8 * chunk < rows.a.dim;
    const std::int64_t at = there ? rows.row_offset(operand, row) + 8 * chunk : 0;
    fetch16(mma::Swizzled<Columns>::at(tile, row - first, chunk), q + at, there, aligned);
  });
}

// As load_keys, of pages that are all there: each lane of a warp looks one of its next rows up, and
// all lanes ask it.
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

// Tokens from key `first` on, zeros from `end` on; of their columns there are so many. Where there
// is no page the words are `lost`. How tokens lie is asked once, not for each 16 bytes: what is
// copied most has no branch.
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

}  // namespace onepass::ops::attention
