// The walk through attention, 00_naive.cu to 03_flash_wmma.cu (backward.hpp has 04 and 05): what a
// step is called with, and the steps in order. A walk includes nothing of what ships.
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

namespace onepass::ops::attention {

// Vectors over batch × heads × tokens, strides in elements. The elements of a token
// lie side by side.
template <class T>
struct Tokens {
  T* data;
  std::int64_t batch, head, token;

  ONEPASS_HD T* at(std::int64_t b, std::int64_t h, std::int64_t t) const {
    return data + b * batch + h * head + t * token;
  }
  Tokens<const T> to_read() const { return {data, batch, head, token}; }
};

// o = softmax(scale · q kᵀ) v. Heads that follow each other share the keys of one kv head; a causal
// mask ends where queries and keys end.
template <class T>
struct Attention {
  using Element = T;
  std::int64_t batch, heads, kv_heads, queries, keys;
  int dim;
  Tokens<const T> q, k, v;
  Tokens<T> o;
  float scale;
  bool causal;

  // The first key that a query does not see.
  ONEPASS_HD int end(int query) const {
    const auto all = static_cast<int>(keys);
    const int own = query + all - static_cast<int>(queries);
    return !causal || own >= all ? all : own < 0 ? 0 : own + 1;
  }
};

struct Call {
  std::variant<Attention<F16>, Attention<BF16>> attention;
  std::byte* workspace;  // WalkLaunch::scratch_bytes of the GPU's memory
  void* stream;          // a cudaStream_t
};

struct WalkLaunch {
  std::int64_t blocks = 0;
  int threads = 0;
  std::size_t shared_bytes = 0, scratch_bytes = 0;
  double extra_bytes = 0;  // moved beside q, k, v and o

  Plan plan() const;
  bool operator==(const WalkLaunch&) const = default;
};

// What the kernels and their launches (plan.hpp) agree on. A block's part of a product: so many
// rows and columns, and so much of what is summed over at a time.
inline constexpr int kTile = 64;
inline constexpr int kDepth = 32;
inline constexpr int kProductThreads = 128;
inline constexpr int kWideThreads = 1024;  // of a block that has a row of scores
inline constexpr int kTunedThreads = 256;  // the same in 02
inline constexpr int kFlashThreads = 128;
inline constexpr int kFlashTile = 64;  // of queries and of keys
// Rows in shared memory are eight elements longer than what they hold: eight rows of 16 bits at the
// same columns, and four rows of floats at the same eight, meet no bank twice.
inline constexpr int kPad = 8;

Status naive(const Call& call, const WalkLaunch& launch);
Status fused_softmax(const Call& call, const WalkLaunch& launch);
Status fused_tuned(const Call& call, const WalkLaunch& launch);
Status flash_wmma(const Call& call, const WalkLaunch& launch);

}  // namespace onepass::ops::attention
