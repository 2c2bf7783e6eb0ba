// How gradients go to their place: rounded, or added to what is there.
#pragma once

#include "core/cuda/number.cuh"
#include "core/number.hpp"
#include "ops/attention/args.hpp"
#include "ops/attention/gpu/online.cuh"

namespace onepass::ops::attention {

// Eight neighbouring columns of a token, which begin at a multiple of 16 bytes.
__device__ inline void store_eight(const Heads& gradient, std::int64_t at, const float (&sums)[8],
                                   float by, bool accumulate) {
  with_type_for<float>(gradient.dtype, [&]<class Out>(Type<Out>) {
    struct alignas(16) Eight {
      Out of[8];
    };
    auto& to = *reinterpret_cast<Eight*>(static_cast<Out*>(gradient.data) + at);
    Eight before{};
    if (accumulate) before = to;
    Eight now;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float sum = sums[i] * by;
      now.of[i] = store_as<Out>(accumulate ? sum + load_as<float>(before.of[i]) : sum);
    }
    to = now;
  });
}

// The part of a gradient that a thread has of one token: two neighbours of every eight columns from
// `at` on, of which there are so many.
template <int Size>
__device__ inline void store_gradient(const Heads& gradient, std::int64_t at,
                                      const float (&sums)[Size], int r, float by, int columns,
                                      bool accumulate) {
  const int own = 2 * static_cast<int>(threadIdx.x % 4);
  with_type_for<float>(gradient.dtype, [&]<class Out>(Type<Out>) {
    struct alignas(2 * sizeof(Out)) Pair {
      Out low, high;
    };
    auto* to = static_cast<Out*>(gradient.data) + at + own;
#pragma unroll
    for (int i = 0; i < Size / 4; ++i) {
      if (8 * i >= columns) break;
      float low = sums[4 * i + 2 * r] * by, high = sums[4 * i + 2 * r + 1] * by;
      auto& pair = *reinterpret_cast<Pair*>(to + 8 * i);
      if (accumulate) {
        const Pair before = pair;
        low += load_as<float>(before.low);
        high += load_as<float>(before.high);
      }
      pair = {store_as<Out>(low), store_as<Out>(high)};
    }
  });
}

// The same in the operands' 16 bits, to which nothing is added: four lanes write 64 bytes of a
// token side by side. All lanes of a warp come here; no columns: a token that is not there.
template <class Stored, int Size>
__device__ inline void store_rounded(const Heads& gradient, std::int64_t at,
                                     const float (&sums)[Size], int r, float by, int columns) {
  unsigned words[Size / 4];
#pragma unroll
  for (int i = 0; i < Size / 4; ++i) {
    words[i] = narrow_pair<Stored>(sums[4 * i + 2 * r] * by, sums[4 * i + 2 * r + 1] * by);
  }
  gather_sixteens(words);
  const int own = 8 * static_cast<int>(threadIdx.x % 4);
  auto* to = static_cast<Stored*>(gradient.data) + at + own;
#pragma unroll
  for (int i = 0; i < Size / 16; ++i) {
    if (32 * i + own >= columns) continue;
    *reinterpret_cast<uint4*>(to + 32 * i) =
        make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
  }
}

}  // namespace onepass::ops::attention
