// What softcap, ALiBi and masks in memory make of a tile of scores and of what do · v comes to:
// pair.cuh's formulas, for the pairs that a lane has in registers.
#pragma once

#include "ops/attention/gpu/backward/tiles.cuh"

namespace onepass::ops::attention::backward {

// Whose pairs a lane's scores are: of two rows of the product, two of every eight columns. Where
// the product is transposed, keys are its rows.
template <bool Transposed>
struct LanePlaces {
  int row, key;  // of the first score

  __device__ static constexpr int down(int i) { return i / 2 % 2 * 8; }
  __device__ static constexpr int across(int i) { return i / 4 * 8 + i % 2; }
  __device__ int row_of(int i) const { return row + (Transposed ? across(i) : down(i)); }
  __device__ int key_of(int i) const { return key + (Transposed ? down(i) : across(i)); }
};

// 2^(score · unit − lse). No weight is above 1, but z and lse are rounded.
__device__ inline float power_of_score(float score, float unit, const BackwardRow& row) {
  float x;
  asm("min.NaN.f32 %0, %1, 0f00000000;" : "=f"(x) : "f"(fmaf(score, unit, -row.lse)));
  return power_of_two(x);
}

// Calls body(i, x) with the mask's element x for each of `Size` scores. Pairs past the last row or
// key, which the kernels hide, read that of the last: no load is behind a branch, and all are on
// their way together.
template <class Stored, int Size, class Places, class Body>
__device__ inline void each_masked(const Heads& mask, const PackedRows& rows, const Places& places,
                                   Body body) {
  const auto* data = static_cast<const Stored*>(mask.data) + rows.s.k_first * mask.key;
#pragma unroll
  for (int i = 0; i < Size; ++i) {
    const int row = min(places.row_of(i), rows.count() - 1);
    const int key = min(places.key_of(i), rows.sight.keys - 1);
    body(i, data[rows.row_offset(mask, row) + key * mask.key]);
  }
}

// Scores become weights, and what do · v comes to the gradients of the scores, less the scale.
// facts(i) has what is known of the i-th score's row. Each option is asked for once for all scores.
template <int Size, class Places, class FactsOf>
__device__ inline void make_pairs(float (&s)[Size], float (&d_s)[Size], const PackedRows& rows,
                                  const Places& places, FactsOf facts) {
  const AttentionArgs& a = rows.a;
  const Cap cap(static_cast<float>(a.scale), static_cast<float>(a.softcap));
#pragma unroll
  for (int i = 0; i < Size; ++i) d_s[i] -= facts(i).mean;
  if (cap.any()) {
#pragma unroll
    for (int i = 0; i < Size; ++i) {
      const float tanh = cap.tanh(s[i]);
      s[i] = cap.of_tanh(tanh);
      d_s[i] *= 1 - tanh * tanh;
    }
  } else {
#pragma unroll
    for (float& score : s) score = cap.scaled(score);
  }
  if (a.alibi) {
#pragma unroll
    for (int i = 0; i < Size; ++i) {
      const GeneralRow row = facts(i);
      s[i] -= row.slope * static_cast<float>(abs(places.key_of(i) - row.own));
    }
  }
  if (const Heads& mask = a.additive) {
    with_type_for<float>(mask.dtype, [&]<class Stored>(Type<Stored>) {
      each_masked<Stored, Size>(mask, rows, places,
                                [&](int i, Stored x) { s[i] += static_cast<float>(widen(x)); });
    });
  }
  if (const Heads& mask = a.boolean) {
    each_masked<std::uint8_t, Size>(mask, rows, places, [&](int i, std::uint8_t shown) {
      if (shown == 0) s[i] = minus_infinity<float>();
    });
  }
#pragma unroll
  for (int i = 0; i < Size; ++i) {
    const bool hidden = s[i] == minus_infinity<float>();
    const float weight = power_of_score(s[i], kLog2E, facts(i));
    d_s[i] = hidden ? 0 : weight * d_s[i];  // of a hidden pair it may be NaN
    s[i] = hidden ? 0 : weight;
  }
}

}  // namespace onepass::ops::attention::backward
