// The launches of gpu_flash and gpu_decode for one dim.
#pragma once

#include "ops/attention/gpu/flash/mainloop.cuh"
#include "ops/attention/gpu/flash/variants.hpp"

namespace onepass::ops::attention {

// The dims that both are compiled for, and of v the columns that a block sums.
template <int Dim>
inline constexpr gpu_attention::FlashDims kFlashDims = gpu_attention::flash_dims(Dim);

template <class Launch>
Status with_flash_dtype(const AttentionArgs& args, Launch launch) {
  return args.q.dtype == DType::bf16 ? launch(Type<BF16>{}) : launch(Type<F16>{});
}

// With tiles of as many keys as planned. What is not usual has the smaller ones: a kernel for it is
// long to compile.
template <int Dim>
Status gpu_flash_of(const AttentionArgs& args, const gpu_attention::FlashLaunch& planned) {
  constexpr gpu_attention::FlashDims kDims = kFlashDims<Dim>;
  constexpr int kWarps = gpu_attention::flash_threads(kDims) / 32;
  constexpr int kRowTiles = gpu_attention::flash_rows(kDims) / 16 / kWarps;
  using Few = Shape<Dim, kDims.columns, kWarps, kRowTiles>;
  return with_flash_dtype(args, [&]<class Stored>(Type<Stored>) {
    if constexpr (gpu_attention::can_double(kFlashDims<Dim>)) {
      using Twice = Shape<Dim, kFlashDims<Dim>.columns, kWarps, kRowTiles, 2 * Few::kKeys>;
      if (planned.tile_keys == Twice::kKeys && takes_usual(args, planned)) {
        return launch_flash<Stored, Twice>(args, planned);
      }
    }
    return launch_flash<Stored, Few>(args, planned);
  });
}

template <int Dim>
Status gpu_decode_of(const AttentionArgs& args, const gpu_attention::FlashLaunch& planned) {
  return with_flash_dtype(args, [&]<class Stored>(Type<Stored>) {
    return launch_flash<Stored, Shape<Dim, kFlashDims<Dim>.columns, 1, 1>>(args, planned);
  });
}

}  // namespace onepass::ops::attention
