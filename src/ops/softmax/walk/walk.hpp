// The walk through softmax, 00_naive.cu to 11_split_k_single.cu: what a step is called with, and
// the steps in reading order. It stands alone: a walk includes nothing of what ships.
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

namespace onepass::ops::softmax {

// Rows of x and y, each at one stride, their elements side by side. Offsets are 64 bits
// wide throughout.
template <class T>
struct Rows {
  const T* x;
  T* y;
  std::int64_t rows, cols, x_stride, y_stride;

  ONEPASS_HD const T* in(std::int64_t row) const { return x + row * x_stride; }
  ONEPASS_HD T* out(std::int64_t row) const { return y + row * y_stride; }
};

struct Call {
  std::variant<Rows<float>, Rows<F16>, Rows<BF16>> rows;
  void* workspace;  // WalkLaunch::scratch_bytes of the GPU's memory
  void* stream;     // a cudaStream_t
};

struct WalkLaunch {
  std::int64_t blocks = 0;
  int threads = 0;
  std::size_t shared_bytes = 0;
  int packs = 0;                  // per thread, in registers
  int split = 1;                  // blocks per row
  std::size_t scratch_bytes = 0;  // of the workspace
  bool resident = false;          // x is read from memory once

  Plan plan() const;
  bool operator==(const WalkLaunch&) const = default;
};

// What the kernels and their launches (plan.hpp) agree on.
inline constexpr int kInFlight = 4;   // packs that a thread loads before it uses any
inline constexpr int kHeldPacks = 8;  // most packs per thread of a row that shared memory shares
inline constexpr int kSplitThreads = 256;  // of a block that has a chunk of a row
inline constexpr int kResidentBlocks = 4;  // blocks per SM of a cooperative launch

Status naive(const Call& call, const WalkLaunch& launch);
Status block_serial(const Call& call, const WalkLaunch& launch);
Status shared(const Call& call, const WalkLaunch& launch);
Status vec4(const Call& call, const WalkLaunch& launch);
Status warp_shuffle(const Call& call, const WalkLaunch& launch);
Status online(const Call& call, const WalkLaunch& launch);
Status register_packed(const Call& call, const WalkLaunch& launch);
Status register_shared_medium(const Call& call, const WalkLaunch& launch);
Status register_shared_extreme(const Call& call, const WalkLaunch& launch);
Status two_pass_vector(const Call& call, const WalkLaunch& launch);
Status split_k(const Call& call, const WalkLaunch& launch);
Status split_k_single(const Call& call, const WalkLaunch& launch);

}  // namespace onepass::ops::softmax
