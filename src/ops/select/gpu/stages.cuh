// A part of a row in shared memory, a stage at a time: the copy engine brings the next one while
// the block looks at this one. Rows that take more than a copy, and GPUs without the engine, have
// each thread bring its own packs.
#pragma once

#include "core/cuda/mbarrier.cuh"
#include "ops/select/gpu/plan.hpp"
#include "rows/gpu/drive.cuh"

namespace onepass::ops::select {

template <class Row>
class Stages {
 public:
  static constexpr int P = Row::kPacks;  // of a thread and stage
  static constexpr int kSlots = gpu_select::kMostStages;
  using Held = typename Row::Held;
  using Tile = Held[P];
  static_assert(P * sizeof(Held) <= gpu_select::tile_bytes(P));

  // By a whole block, for packs [begin, end) of a row, with memory for two stages, or one if that
  // is all or if threads bring them. A barrier must come before the first is taken.
  __device__ Stages(Mbarrier (&full)[kSlots], std::byte* memory, const Row& row, int begin, int end)
      : full_(full), memory_(reinterpret_cast<Held*>(memory)), row_(row), begin_(begin), end_(end) {
    if constexpr (kCopies) {
      if (thread() == 0) this->open();
    }
  }

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int step() { return static_cast<int>(blockDim.x); }
  __device__ static int size() { return P * step(); }
  __device__ int first(int c) const { return begin_ + c * size(); }
  __device__ int packs(int c) const { return min(size(), end_ - first(c)); }  // perhaps none
  __device__ bool is_last(int c) const { return first(c + 1) >= end_; }
  __device__ const Held& pack(int c, int i) const { return slot(c)[i]; }

  // A thread's packs of stage c, once they are there.
  __device__ void take(int c, Tile& tile) const {
    Held* at = slot(c) + thread();
    if constexpr (kCopies) {
      const int n = packs(c);
      if (n > 0) this->wait(c);
      if (n == size()) {
#pragma unroll
        for (int p = 0; p < P; ++p) tile[p] = at[p * step()];
      } else {
#pragma unroll
        for (int p = 0; p < P; ++p) {
          tile[p] = p * step() + thread() < n ? at[p * step()] : Row::nothing();
        }
      }
    } else {
      hold_packs(row_, first(c) + thread(), step(), end_, tile);
#pragma unroll
      for (int p = 0; p < P; ++p) at[p * step()] = tile[p];
    }
  }

  // By all, after a barrier: no thread needs stage c any more.
  __device__ void leave(int c) const {
    if constexpr (kCopies) {
      if (thread() == 0) this->ask(c + kSlots);
    }
  }

 private:
  __device__ Held* slot(int c) const { return memory_ + (kCopies ? c % kSlots : 0) * size(); }

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

  static constexpr bool kCopies = !Row::kAny;

  __device__ void open() const {
#pragma unroll
    for (int c = 0; c < kSlots; ++c) expect_senders(full_[c], 1);
#pragma unroll
    for (int c = 0; c < kSlots; ++c) ask(c);
  }

  __device__ void ask(int c) const {
    const int n = packs(c);
    if (n <= 0) return;
    Mbarrier& full = full_[c % kSlots];
    const int bytes = n * static_cast<int>(sizeof(Held));
    announce_bytes(full, bytes);
    copy_bulk(row_.address(first(c)), slot(c), bytes, full);
  }

  __device__ void wait(int c) const { wait_for_phase(full_[c % kSlots], c / kSlots % 2); }

#else

  static constexpr bool kCopies = false;

#endif

  Mbarrier (&full_)[kSlots];
  Held* memory_;
  Row row_;
  int begin_, end_;
};

}  // namespace onepass::ops::select
