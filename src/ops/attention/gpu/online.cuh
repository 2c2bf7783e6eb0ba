// The state of two rows while their tiles of scores go by, in the layout that the tensor cores give
// them: four neighbouring lanes share the rows, and a lane has of each eight columns two of the
// upper and two of the lower row.
#pragma once

#include "core/exponential.hpp"
#include "core/number.hpp"
#include "core/state.hpp"
#include "merge/thread.cuh"

namespace onepass::ops::attention {

// Scores to capped logits: cap · tanh(s · scale / cap), or s · scale without a cap.
class Cap {
 public:
  Cap() = default;
  ONEPASS_HD Cap(float scale, float cap)
      : scale_(scale), cap_(cap), rate_(cap == 0 ? 0 : scale / cap) {}

  __device__ bool any() const { return cap_ != 0; }

  // tanh(s · scale / cap). tanh(t) = 1 − 2 / (e^2t + 1), which is ±1 where the exponential is 0 or
  // inf; near 0, where that would lose digits, t − t³ / 3.
  __device__ float tanh(float s) const {
    const float t = s * rate_;
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(power_of_two(t * (2 * kLog2E)) + 1));
    return fabsf(t) < 0.05F ? fmaf(t * t * t, -1.F / 3, t) : fmaf(-2, inverse, 1);
  }
  __device__ float of_tanh(float tanh) const { return cap_ * tanh; }
  __device__ float capped(float s) const { return of_tanh(tanh(s)); }
  __device__ float scaled(float s) const { return s * scale_; }
  __device__ float operator()(float s) const { return any() ? capped(s) : scaled(s); }

 private:
  float scale_ = 1, cap_ = 0, rate_ = 0;
};

// Two numbers of 16 bits in a register, the first in the lower half.
template <class Stored>
__device__ inline unsigned narrow_pair(float low, float high) {
  unsigned pair;
  if constexpr (std::is_same_v<Stored, BF16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

// Of two words the one whose place, low or high, is not this lane's is swapped with the
// partner's at a distance.
__device__ inline void swap_with(unsigned distance, unsigned& low, unsigned& high) {
  const bool upper = (threadIdx.x & distance) != 0;
  const unsigned got = __shfl_xor_sync(0xFFFFFFFFU, upper ? low : high, distance);
  (upper ? low : high) = got;
}

// Of each eight columns the four lanes of a row have a word each, that of their own two. Of
// two eights lanes 0 and 2 leave with the halves of the first, lanes 1 and 3 of the second, 8
// bytes side by side.
template <int Words>
__device__ inline void gather_eights(unsigned (&words)[Words]) {
#pragma unroll
  for (int i = 0; i < Words; i += 2) swap_with(1, words[i], words[i + 1]);
}

// Of four eights lane l leaves with all of the l-th, 16 bytes side by side.
template <int Words>
__device__ inline void gather_sixteens(unsigned (&words)[Words]) {
#pragma unroll
  for (int i = 0; i < Words; i += 4) {
    swap_with(1, words[i], words[i + 1]);
    swap_with(1, words[i + 2], words[i + 3]);
    swap_with(2, words[i], words[i + 2]);
    swap_with(2, words[i + 1], words[i + 3]);
  }
}

// The weights of a row's keys as the left operand of the next product.
template <class Stored, int Size, int Steps>
__device__ inline void narrow_weights(const float (&s)[Size], unsigned (&weights)[Steps][4]) {
  static_assert(Size == 8 * Steps);
#pragma unroll
  for (int i = 0; i < Steps; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      weights[i][j] = narrow_pair<Stored>(s[8 * i + 2 * j], s[8 * i + 2 * j + 1]);
    }
  }
}

// The keys [begin, end) that each of the two rows sees.
struct Seen {
  int begin[2], end[2];
};

// Scores of keys that are not seen become −inf. `first` is the key of the lane's first score.
template <int Size>
__device__ inline void hide(float (&s)[Size], const Seen& seen, int first) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int begin = seen.begin[r] - first;
    const int end = seen.end[r] - first;
#pragma unroll
    for (int i = 0; i < Size / 4; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int key = 8 * i + e;
        float& score = s[4 * i + 2 * r + e];
        score = key >= begin && key < end ? score : minus_infinity<float>();
      }
    }
  }
}

// The sums of two rows shrink; if so wanted, only where a row of the warp's has to.
template <bool WhereNeeded, int Size>
__device__ inline void shrink(float (&o)[Size], const float (&by)[2]) {
  if (WhereNeeded && __all_sync(0xFFFFFFFFU, by[0] == 1 && by[1] == 1)) return;
#pragma unroll
  for (int i = 0; i < Size; ++i) o[i] *= by[i / 2 % 2];
}

// What is exponentiated is scaled to base 2 in the same instruction: exp(scale · (s − m)) is
// 2^(s·unit − m·unit) with unit = scale · log2 e.
class Online {
 public:
  Online() = default;
  __device__ explicit Online(float unit) : unit_(unit) {}

  // A tile of scores becomes the weights 2^((s − m) · unit). `by` is what the sums from before
  // shrink by. A maximum that grew by less than 2^kSlack stays as it was: the algebra takes any m
  // that is near it, and the sums need not shrink. A NaN is the largest from then on, so that no
  // +inf hides it from the lse.
  template <int Size>
  __device__ void absorb(float (&s)[Size], float (&by)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top[2] = {m_[r], m_[r]};
#pragma unroll
      for (int i = 0; i < Size / 4; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) top[e] = larger_or_nan(top[e], s[4 * i + 2 * r + e]);
      }
      float m = larger_or_nan(top[0], top[1]);
      m = larger_or_nan(m, __shfl_xor_sync(0xFFFFFFFFU, m, 1));
      m = larger_or_nan(m, __shfl_xor_sync(0xFFFFFFFFU, m, 2));
      const bool grew = (m - m_[r]) * unit_ > kSlack || m != m;
      m = grew ? m : m_[r];
      // Both products are rounded alike, as the weights from before were made with.
      const float base = __fmul_rn(shift(m), unit_);
      by[r] = grew ? power_of_two(__fmul_rn(m_[r], unit_) - base) : 1.F;
      m_[r] = m;
      float d[2] = {d_[r] * by[r], 0};
#pragma unroll
      for (int i = 0; i < Size / 4; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = s[4 * i + 2 * r + e];
          score = power_of_two(fmaf(score, unit_, -base));
          d[e] += score;
        }
      }
      d_[r] = d[0] + d[1];
    }
  }

  // Whether a row has seen a key.
  __device__ bool knows(int r) const { return m_[r] > minus_infinity<float>(); }

  // As absorb, where all rows know a key, but no thread looks for the largest: weights are relative
  // to the largest from before, and `d` has their sums. Where a sum is not small, that was too
  // little; the scores are gone then.
  template <int Size>
  __device__ void follow(float (&s)[Size], float (&d)[2]) const {
    const float base[2] = {__fmul_rn(m_[0], unit_), __fmul_rn(m_[1], unit_)};
    d[0] = d[1] = 0;
#pragma unroll
    for (int i = 0; i < Size; ++i) {
      const int r = i / 2 % 2;
      s[i] = power_of_two(fmaf(s[i], unit_, -base[r]));
      d[r] += s[i];
    }
  }
  // No weight is too large: values up to 2^90 can still be summed, and f16 ends at 2^16.
  template <class Stored>
  __device__ static bool small(float d) {
    return d < (std::is_same_v<Stored, BF16> ? 0x1p32F : 0x1p15F);
  }
  __device__ void add(const float (&d)[2]) {
    d_[0] += d[0];
    d_[1] += d[1];
  }

  // False, and known only when all weights of a tile are: none of them is negative.
  __device__ bool never() const { return d_[0] + d_[1] < 0; }

  // The state of a row, of all its lanes together, in logits.
  __device__ State<float> row(int r) const {
    float d = d_[r];
    d += __shfl_xor_sync(0xFFFFFFFFU, d, 1);
    d += __shfl_xor_sync(0xFFFFFFFFU, d, 2);
    return {m_[r] * (unit_ / kLog2E), d};
  }

 private:
  static constexpr float kSlack = 8;

  float unit_ = 1;
  float m_[2] = {minus_infinity<float>(), minus_infinity<float>()};
  float d_[2] = {0, 0};  // of this lane
};

}  // namespace onepass::ops::attention
