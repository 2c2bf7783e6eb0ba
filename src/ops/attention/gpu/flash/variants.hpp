// The variants of flash attention, and the kernels that are long to compile: each dim has a file of
// its own, dim_*.cu, so that cores share the work.
#pragma once

#include "onepass/status.hpp"
#include "ops/attention/args.hpp"
#include "ops/attention/gpu/flash/plan.hpp"

namespace onepass::ops::attention {

Status gpu_flash(const AttentionArgs& args, const gpu_attention::FlashLaunch& launch);
Status gpu_decode(const AttentionArgs& args, const gpu_attention::FlashLaunch& launch);

// For dims up to Dim, from the one before: 64, 96, 128, 192, 256, 512.
template <int Dim>
Status gpu_flash_of(const AttentionArgs& args, const gpu_attention::FlashLaunch& launch);
template <int Dim>
Status gpu_decode_of(const AttentionArgs& args, const gpu_attention::FlashLaunch& launch);

// Calls body.operator()<Dim>() with the least of the dims that has room for a head.
template <class Body>
Status with_dim(int dim, Body body) {
  if (dim <= 64) return body.template operator()<64>();
  if (dim <= 96) return body.template operator()<96>();
  if (dim <= 128) return body.template operator()<128>();
  if (dim <= 192) return body.template operator()<192>();
  if (dim <= 256) return body.template operator()<256>();
  return body.template operator()<512>();
}

}  // namespace onepass::ops::attention
