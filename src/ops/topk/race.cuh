// A token by the race that its noise makes of its logit (ops/topk/gumbel.hpp), on the device.
#pragma once

#include "core/philox.hpp"
#include "ops/topk/choose.cuh"
#include "ops/topk/gumbel.hpp"

namespace onepass::ops::topk {

// Where a row's random words come from.
struct Noise {
  std::uint64_t seed, offset;

  __device__ Words4 of_four(std::int64_t first_token) const {
    return words_of_tokens(seed, offset, first_token);
  }
};

// Called, not inlined: it is in double, and few tokens need it.
static __device__ __noinline__ float gumbel_of(std::uint32_t word) {
  return static_cast<float>(gumbel(word));
}

// What a token runs with: noisy logits as keys, so that the largest wins and the lower token where two are equal.
// z counts from near the row's largest: a sum with a large z would lose the noise.
__device__ inline Key runner(float z, std::uint32_t word, unsigned token) {
  return key_of(z + gumbel_of(word), token);
}

__device__ inline Key runner(float z, const Noise& noise, unsigned token) {
  const Words4 words = noise.of_four(token);
  std::uint32_t word = words[0];
#pragma unroll
  for (unsigned k = 1; k < 4; ++k) word = token % 4 == k ? words[k] : word;
  return runner(z, word, token);
}

// A logit to count from that all parts of a row agree on: the largest of its first few.
template <class Row>
__device__ inline float start_of(const Row& row, int cols) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const float z = lane < cols ? row.z(row.at(lane)) : minus_infinity<float>();
  const float largest = warp_fold(z, Largest<float>());
  return isfinite(largest) ? largest : 0;
}

// Four neighbours, the first of them at a multiple of four, −inf where there are no more.
template <class Row>
__device__ inline void load_four(const Row& row, int four, int end, int cols, float (&z)[4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int token = 4 * four + k;
    z[k] = four < end && token < cols ? row.z(row.at(token)) : minus_infinity<float>();
  }
}

// One thread's part in a race.
class Racer {
 public:
  __device__ Racer(const Noise& noise, float start) : noise_(noise), start_(start) {}

  // The noise is exact only for those that could still win: E ≥ w, so that z − log(w) is the most that a token
  // can have.
  __device__ void run(const float (&z)[4], int four) {
    float m = z[0];
#pragma unroll
    for (int k = 1; k < 4; ++k) m = larger_or_nan(m, z[k]);
    State<float> state{m, 0};
#pragma unroll
    for (int k = 0; k < 4; ++k) state.d += exponential(z[k] - shift(m));
    state_ = merge(state_, state);
    const Words4 words = noise_.of_four(4 * static_cast<std::int64_t>(four));
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float own_z = z[k] - start_;
      const float most = own_z - __logf(fmaf(static_cast<float>(words[k]), 0x1p-32F, 0x1p-33F));
      const float margin = 1e-4F + 4e-7F * fabsf(most);
      if (most + margin > to_beat_ && z[k] > minus_infinity<float>()) {
        const Key own = runner(own_z, words[k], static_cast<unsigned>(4 * four + k));
        winner_ = own > winner_ ? own : winner_;
      }
    }
  }

  // The warp's best so far is what each of its lanes has to beat.
  __device__ void meet() {
    const unsigned of_warp = __reduce_max_sync(0xFFFFFFFFU, static_cast<unsigned>(winner_ >> 32));
    if (of_warp != 0) to_beat_ = value_of_word(of_warp);
  }

  __device__ State<float> state() const { return state_; }
  __device__ Key winner() const { return winner_; }  // 0: none

 private:
  Noise noise_;
  float start_;
  State<float> state_ = identity<float>();
  Key winner_ = 0;
  float to_beat_ = minus_infinity<float>();
};

// What a thread has of a race: the State of its tokens, and its warp's best.
struct Raced {
  State<float> state;
  float best;
};

// Called, not inlined, so that what races and what chooses do not share their registers.
//
// All tokens of a part, twice four a thread on their way at a time, each beside the part's tally; the winner's
// key is offered.
template <class Row>
__device__ __noinline__ Raced race_all(const Row& row, int cols, int rank, int parts,
                                       const Noise& noise, BestKeys best) {
  const auto step = static_cast<int>(blockDim.x);
  const int fours = (cols + 3) / 4;
  const int size = (fours + parts - 1) / parts;
  const int end = min(fours, size * (rank + 1));
  Racer racer(noise, start_of(row, cols));
#pragma unroll 1
  for (int i = size * rank; i < end; i += 2 * step) {
    const int four = i + static_cast<int>(threadIdx.x);
    float a[4], b[4];
    load_four(row, four, end, cols, a);
    load_four(row, four + step, end, cols, b);
    racer.run(a, four);
    racer.run(b, four + step);
    racer.meet();
  }
  const Key winner = warp_fold(racer.winner(), LargestKey());
  __syncthreads();
  if (threadIdx.x % 32 == 0 && winner != 0) best.offer(winner);
  return {racer.state(), winner == 0 ? minus_infinity<float>() : value_of(winner)};
}

}  // namespace onepass::ops::topk
