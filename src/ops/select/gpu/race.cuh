// A token by the race that its noise makes of its logit (ops/select/gumbel.hpp), on the device.
#pragma once

#include "core/philox.hpp"
#include "ops/select/gpu/select.cuh"
#include "ops/select/gumbel.hpp"
#include "rows/packs.hpp"

namespace onepass::ops::select {

// Where a row's random words come from.
struct Noise {
  std::uint64_t seed, offset;

  __device__ Words4 of_four(std::int64_t first_token) const {
    return words_of_tokens(seed, offset, first_token);
  }
  __device__ std::uint32_t of(unsigned token) const {
    const Words4 words = of_four(token);
    // Selected, not found by a number: that would be a place in memory.
    const bool odd = token % 2 != 0;
    const std::uint32_t low = odd ? words[1] : words[0];
    const std::uint32_t high = odd ? words[3] : words[2];
    return token % 4 >= 2 ? high : low;
  }
};

// Called, not inlined: it is in double, and few tokens need it.
static __device__ __noinline__ float gumbel_of(std::uint32_t word) {
  return static_cast<float>(gumbel(word));
}

// The same but for less than 2^-17. 1 − w comes from the word, too: it would have lost what w has
// in digits that a float has not. A small w has E = w + w² / 2 + w³ / 3 + …
__device__ inline float gumbel_guess(std::uint32_t word) {
  const float w = fmaf(static_cast<float>(word), 0x1p-32F, 0x1p-33F);
  const float rest = fmaf(static_cast<float>(~word), 0x1p-32F, 0x1p-33F);
  float series = 1.0F / 7;
#pragma unroll
  for (int n = 6; n > 0; --n) series = fmaf(series, w, 1.0F / static_cast<float>(n));
  const float large = -__logf(rest);
  return -__logf(w < 0.125F ? series * w : large);
}

// How far a guess may be from the sum that it stands for, and then some.
__device__ inline float margin_of(float guess) { return 2e-5F + 1e-6F * fabsf(guess); }

// A token's noise: the random word that it comes from, and a guess of what it is.
struct Gumbel {
  std::uint32_t word;
  float guess;

  Gumbel() = default;
  __device__ explicit Gumbel(std::uint32_t from) : word(from), guess(gumbel_guess(from)) {}
};

// A token in a race, with a guess of its noisy logit. z counts from near the row's largest: a sum
// with a large z would lose the noise.
struct Runner {
  float z = 0;
  std::uint32_t word = 0;
  unsigned token = 0;
  float guess = minus_infinity<float>();  // of none

  Runner() = default;
  __device__ Runner(float logit, const Gumbel& noise, unsigned index)
      : z(logit), word(noise.word), token(index), guess(logit + noise.guess) {}

  // Works the guess out here and now, and not where it is looked at first.
  __device__ void settle() { asm volatile("" : "+f"(guess)); }

  __device__ bool runs() const { return guess > minus_infinity<float>(); }
  // Noisy logits as keys, so that the largest wins and the lower token where two are
  // equal; 0: of none.
  __device__ Key key() const { return runs() ? key_of(z + gumbel_of(word), token) : 0; }
};

// One thread's part in a race: who has the largest noisy logit of those that it has seen. A guess
// tells, but where it is too close to call.
class Contest {
 public:
  // Whether it leads now.
  __device__ bool enter(const Runner& runner) {
    const float margin = margin_of(runner.guess);
    if (!(runner.guess + margin > best_.guess)) return false;
    if (!(runner.guess - margin > best_.guess) && runner.key() <= best_.key()) return false;
    best_ = runner;
    return true;
  }

  __device__ float guess() const { return best_.guess; }
  // Whether its best may be that of all, if theirs was guessed like this.
  __device__ bool may_win(float best) const {
    return best_.runs() && best_.guess + margin_of(best) >= best;
  }
  __device__ Key key() const { return best_.key(); }
  // The same but for its value.
  __device__ Key guessed_key() const { return key_of(best_.guess, best_.token); }

 private:
  Runner best_;
};

// The key of who wins, for the whole block; its value is only good where it was needed to tell.
__device__ inline Key winner_of_block(const Contest& mine, BlockFold<LargestKey>::Scratch& keys) {
  const BlockFold<LargestKey> block(keys);
  const bool any = mine.guess() > minus_infinity<float>();
  const Key best = block.all(any ? mine.guessed_key() : 0);
  if (best == 0) return 0;
  const bool contends = mine.may_win(value_of(best));
  if (__syncthreads_count(contends) == 1) return best;
  return block.all(contends ? mine.key() : 0);
}

// Whose lane it is of a warp; some lane has entered.
__device__ inline int lane_of_winner(const Contest& mine) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  const unsigned most = __reduce_max_sync(kAll, ordered(mine.guess()));
  const bool contends = mine.may_win(value_of_word(most));
  unsigned lanes = __ballot_sync(kAll, contends);
  if (__popc(lanes) > 1) {
    const Key own = contends ? mine.key() : 0;
    const Key best = warp_fold(own, LargestKey());
    lanes = __ballot_sync(kAll, contends && own == best);
  }
  return __ffs(static_cast<int>(lanes)) - 1;
}

// A logit to count from that all parts of a row agree on before they have seen it: the largest of
// its first few. Where the row's largest turns out to be far from it, noise was lost in the sums,
// and the race is void.
inline constexpr float kFarFromStart = 64;
template <class Row>
__device__ inline float start_of(const Row& row, int cols) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const float z = lane < cols ? row.z(row.at(lane)) : minus_infinity<float>();
  const float largest = warp_fold(z, Largest<float>());
  return isfinite(largest) ? largest : 0;
}

// Four neighbours, the first of them at a multiple of four, −inf where there are no more. In one
// load, where rows begin at such an address.
template <class Row>
__device__ inline void load_four(const Row& row, int four, int end, int cols, bool aligned,
                                 float (&x)[4]) {
  if (aligned && four < end && 4 * four + 4 <= cols) return row.four(4 * four, x);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int token = 4 * four + k;
    x[k] = four < end && token < cols ? row.at(token) : minus_infinity<float>();
  }
}

// One thread's tokens of a race that many run.
class Racer {
 public:
  __device__ Racer(const Noise& noise, float start) : noise_(noise), start_(start) {}

  // The four from token 4 · four on; −inf for who does not run. Noise is looked at closely only for
  // those that could still win: E ≥ w, so that a token can have z − log(w) at most, and none of
  // them more than z + 33 · log(2).
  __device__ void run(const float (&z)[4], int four) {
    const float largest = fmaxf(fmaxf(z[0], z[1]), fmaxf(z[2], z[3]));
    constexpr float kMostNoise = 23;
    if (!((largest - start_) + kMostNoise >= to_beat_)) return;
    const Words4 words = noise_.of_four(4 * static_cast<std::int64_t>(four));
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float own_z = z[k] - start_;
      const float reach = power_of_two(fmaf(own_z - to_beat_, kLog2E, 32.01F));  // of w, by 2^32
      if (static_cast<float>(words[k]) < reach) {
        contest_.enter(Runner(own_z, Gumbel(words[k]), static_cast<unsigned>(4 * four + k)));
      }
    }
  }

  // The warp's best so far is what each of its lanes has to beat.
  __device__ void meet() {
    const float best = value_of_word(__reduce_max_sync(0xFFFFFFFFU, ordered(contest_.guess())));
    to_beat_ = best - 2 * margin_of(best);
  }

  __device__ const Contest& contest() const { return contest_; }

 private:
  Noise noise_;
  float start_;
  Contest contest_;
  float to_beat_ = minus_infinity<float>();
};

// The tokens of [begin, end) fours: a few fours a thread on their way at a time. see(x) gets what
// was loaded, −inf where there are no more, and leaves the logits of those that run. Small: the
// instructions of one four serve all.
template <bool Small, class Row, class See>
__device__ inline Contest race(const Row& row, int cols, int begin, int end, const Noise& noise,
                               float start, See see) {
  constexpr int kAhead = 4;
  const auto step = static_cast<int>(blockDim.x);
  const bool aligned = row.fours_are_aligned();
  Racer racer(noise, start);
#pragma unroll 1
  for (int i = begin; i < end; i += kAhead * step) {
    const int first = i + static_cast<int>(threadIdx.x);
    float z[kAhead][4];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      load_four(row, first + a * step, end, cols, aligned, z[a]);
    }
    see(z, first, step);
    const auto run = [&](const float(&four)[4], int a) {
      racer.run(four, first + a * step);
      if (a == kAhead - 1 || i == begin) racer.meet();
    };
    if constexpr (Small) {
#pragma unroll 1
      for (int a = 0; a < kAhead; ++a) {
        run(z[0], a);
#pragma unroll
        for (int k = 0; k < 4 * (kAhead - 1); ++k) z[k / 4][k % 4] = z[k / 4 + 1][k % 4];
      }
    } else {
#pragma unroll
      for (int a = 0; a < kAhead; ++a) run(z[a], a);
    }
  }
  return racer.contest();
}

// What a thread has of a race: the State of its tokens, and its warp's best.
struct Raced {
  State<float> state;
  float best;
};

// Called, not inlined, so that what races and what selects do not share their registers; it takes
// copies to have in its own.
//
// All tokens of a part, each beside the part's tally; the winner's key is offered.
template <class Row>
__device__ __noinline__ Raced race_all(const Row& of, int cols, int rank, int parts,
                                       const Noise& noise, BestKeys best) {
  const Row row = of;
  const int fours = (cols + 3) / 4;
  const int size = (fours + parts - 1) / parts;
  State<float> state = identity<float>();
  const auto count = [&]<int N>(float(&z)[N][4], int, int) {
    float m = minus_infinity<float>();
#pragma unroll
    for (int j = 0; j < 4 * N; ++j) {
      z[j / 4][j % 4] = row.z(z[j / 4][j % 4]);
      m = larger_or_nan(m, z[j / 4][j % 4]);
    }
    float d = 0;
#pragma unroll
    for (int j = 0; j < 4 * N; ++j) d += exponential(z[j / 4][j % 4] - shift(m));
    state = merge(state, {m, d});
  };
  const Contest contest = race<false>(row, cols, size * rank, min(fours, size * (rank + 1)), noise,
                                      start_of(row, cols), count);
  const float guess = warp_fold(contest.guess(), Largest<float>());
  const Key winner = warp_fold(contest.may_win(guess) ? contest.key() : Key{0}, LargestKey());
  __syncthreads();
  best.assume_shared();
  if (threadIdx.x % 32 == 0 && winner != 0) best.offer(winner);
  return {state, winner == 0 ? minus_infinity<float>() : value_of(winner)};
}

}  // namespace onepass::ops::select
