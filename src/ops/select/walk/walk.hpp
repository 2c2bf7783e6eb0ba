// The walk through softmax + top-k, 00_unfused.cu to 03_online_single_pass.cu: what a
// step is called with, and the steps in reading order. It stands alone: a walk includes
// nothing of what ships.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "core/annotate.hpp"
#include "core/element.hpp"
#include "onepass/status.hpp"

namespace onepass {
struct Plan;
}

namespace onepass::ops::select {

// Rows of logits; per row, its K largest probabilities and their indices, largest first. Rows lie
// at one stride each, their elements side by side.
template <class T>
struct Rows {
  const T* x;
  T* values;
  std::int64_t* indices;
  std::int64_t rows, cols;
  std::int64_t x_stride, values_stride, indices_stride;
  int k;

  ONEPASS_HD const T* in(std::int64_t row) const { return x + row * x_stride; }
};

struct Call {
  std::variant<Rows<float>, Rows<F16>, Rows<BF16>> rows;
  void* workspace;  // WalkLaunch::scratch_bytes of the GPU's memory
  void* stream;     // a cudaStream_t
};

// A block per row.
struct WalkLaunch {
  std::int64_t blocks = 0;
  int threads = 0;
  std::size_t scratch_bytes = 0;
  bool resident = false;  // x is read from memory once

  Plan plan() const;
  bool operator==(const WalkLaunch&) const = default;
};

// What the kernels and their launches (plan.hpp) agree on.
inline constexpr int kLanes = 32;          // of a warp
inline constexpr int kMostK = 256;         // keys of a row that a block has room for
inline constexpr int kWideThreads = 1024;  // of a block whose threads only look
inline constexpr int kListKeys =
    16;  // that a thread keeps: two registers each, which every new key passes
inline constexpr int kListThreads =
    256;  // of a block whose threads have lists: their registers are full
inline constexpr int kListWarps = kListThreads / kLanes;

Status unfused(const Call& call, const WalkLaunch& launch);
Status three_pass_local(const Call& call, const WalkLaunch& launch);
Status warp_merge(const Call& call, const WalkLaunch& launch);
Status online_single_pass(const Call& call, const WalkLaunch& launch);

}  // namespace onepass::ops::select
