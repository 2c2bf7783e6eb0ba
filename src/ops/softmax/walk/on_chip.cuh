// A row that a block holds on chip: the first packs in shared memory, the rest in registers. They
// are held as they came, 16 bits per element where x has 16; so each is exponentiated twice.
#pragma once

#include "merge/block.cuh"
#include "merge/thread.cuh"
#include "ops/softmax/walk/packs.cuh"

namespace onepass::ops::softmax {

// `stage` has room for `staged` packs; each thread looks only at those it put there itself.
template <int Held, class T>
__device__ inline void softmax_on_chip(PackedRow<T> row, Pack<T>* stage, int staged,
                                       BlockMerge::Scratch& scratch) {
  constexpr int kLanes = Pack<T>::kLanes;
  const int step = static_cast<int>(blockDim.x);
  const int first_held = staged + static_cast<int>(threadIdx.x);

  const auto packs = static_cast<int>(row.packs());

  Pack<T> held[Held];
#pragma unroll
  for (int k = 0; k < Held; ++k) {
    if (first_held + k * step < packs) held[k] = row.load(first_held + k * step);
  }
#pragma unroll 4
  for (int i = threadIdx.x; i < min(staged, packs); i += step) stage[i] = row.load(i);

  const auto for_each_pack = [&](auto body) {
    float v[kLanes];
#pragma unroll
    for (int k = 0; k < Held; ++k) {
      if (first_held + k * step >= packs) continue;
      widen({held[k]}, v);
      body(first_held + k * step, v);
    }
    for (int i = threadIdx.x; i < min(staged, packs); i += step) {
      widen({stage[i]}, v);
      body(i, v);
    }
  };

  State<float> mine = identity<float>();
  for_each_pack([&](int, const float(&v)[kLanes]) { mine.m = fmaxf(mine.m, largest_of(v)); });
  for_each_pack([&, s = shift(mine.m)](int, const float(&v)[kLanes]) {
    for (const float x : v) mine.d += exponential(x - s);
  });
  const State<float> all = BlockMerge(scratch).all(mine);
  const float scale = factor(all, all.m);
  for_each_pack([&, s = shift(all.m)](int i, float(&v)[kLanes]) {
    for (float& each : v) each = exponential(each - s);
    row.store(i, v, scale);
  });
}

template <class T>
__global__ void __launch_bounds__(1024) on_chip_kernel(Rows<T> a, int staged) {
  extern __shared__ std::byte stage[];
  __shared__ BlockMerge::Scratch scratch;
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    softmax_on_chip<kHeldPacks>(packed(a, row), reinterpret_cast<Pack<T>*>(stage), staged, scratch);
  }
}

// With as much shared memory as planned.
inline Status launch_on_chip(const Call& call, const WalkLaunch& how) {
  return with_rows(call, [&]<class T>(Rows<T> rows) {
    const auto staged = static_cast<int>(how.shared_bytes / sizeof(Pack<T>));
    return launch(on_chip_kernel<T>, how, call, rows, staged);
  });
}

}  // namespace onepass::ops::softmax
