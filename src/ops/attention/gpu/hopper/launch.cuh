// The kernel of hopper and its launches for one dim.
#pragma once

#include "core/cuda/dependent.cuh"
#include "ops/attention/gpu/hopper/mainloop.cuh"
#include "ops/attention/gpu/hopper/plan.hpp"
#include "ops/attention/gpu/hopper/tensor_map.hpp"
#include "ops/attention/gpu/hopper/variants.hpp"
#include "runtime/launch.cuh"

namespace onepass::ops::attention {
namespace hopper {

template <class Stored, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    hopper_kernel(const __grid_constant__ Params p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ std::byte memory[];
  auto& shared = *reinterpret_cast<Shared<Stored, Tile>*>(
      (reinterpret_cast<std::uintptr_t>(memory) + 1023) / 1024 * 1024);
  if (threadIdx.x == 0) {
    for (const CUtensorMap* map : {&p.q, &p.k, &p.v}) tma::fetch(*map);
    shared.q_ring.open(Tile::kReaders);
    shared.k_ring.open(Tile::kReaders);
    shared.v_ring.open(Tile::kReaders);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  await_previous();
  const int group = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / kWarpgroup, 0) - 1;
  if (group < 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Tile::kLoaderRegisters));
    if (threadIdx.x == 0) load_all(p, shared);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Tile::kRegisters));
    Consumer<Stored, Tile>(p, shared, group).run();
  }
#else
  // Compiled for something else, and chosen all the same: no result is better than an old one.
  __trap();
#endif
}

template <class Stored, class Tile>
Status run(const AttentionArgs& a, const gpu_attention::HopperLaunch& planned) {
  Params p{};
  p.sight = sight_of(a, {0, a.queries, 0, a.keys});
  p.q_offsets = a.q_offsets;
  p.kv_offsets = a.kv_offsets;
  p.lengths = a.lengths;
  p.batch = static_cast<int>(a.batch);
  p.heads = Divisor(static_cast<int>(a.heads));
  p.dim = a.dim;
  p.o = a.o;
  p.lse = a.lse;
  p.sinks = a.sinks;
  p.packed = static_cast<bool>(a.q_offsets);
  const int own = static_cast<int>((a.queries + Tile::kQueries - 1) / Tile::kQueries);
  const int tiles = p.packed ? own + p.batch : own;
  const int heads = p.heads * (p.packed ? 1 : p.batch);
  p.schedule = Schedule(tiles, heads);
  if (planned.paired) {
    p.schedule =
        Schedule::in_pairs(tiles, heads, static_cast<int>(planned.blocks), planned.rounds_left);
    p.lead = planned.lead;
  }
  p.sharing = Divisor(static_cast<int>(a.heads / a.kv_heads));
  p.scale = static_cast<float>(a.scale);
  p.cap = Cap(p.scale, static_cast<float>(a.softcap));
  p.plain = a.softcap == 0 && p.scale > 0;
  const std::int64_t q_batch = p.packed ? 1 : a.batch;
  const std::int64_t k_batch = a.kv_offsets ? 1 : a.batch;
  for (const Status& status :
       {make_tensor_map(a.q, {q_batch, a.heads, a.queries, a.dim}, Tile::kQueries, kColumns, p.q),
        make_tensor_map(a.k, {k_batch, a.kv_heads, a.keys, a.dim}, Tile::kKeys, kColumns, p.k),
        make_tensor_map(a.v, {k_batch, a.kv_heads, a.keys, a.dim}, Tile::kKeys, kColumns, p.v),
        make_tensor_map(a.o, {q_batch, a.heads, a.queries, a.dim}, kRows, kColumns, p.out)}) {
    if (!status.ok()) return status;
  }
  return launch({.queue = a.queue,
                 .blocks = planned.blocks,
                 .threads = Tile::kThreads,
                 .shared_bytes = sizeof(Shared<Stored, Tile>) + 1024},
                "gpu_hopper", hopper_kernel<Stored, Tile>, p);
}

template <class Stored, int Dim, bool Ragged>
Status launch_tile(const AttentionArgs& a, const gpu_attention::HopperLaunch& planned) {
  if constexpr (Dim == 64) {
    return planned.tile.groups == 3 ? run<Stored, Tile<64, 3, 128>>(a, planned)
                                    : run<Stored, Tile<64, 2, 128, Ragged>>(a, planned);
  } else if constexpr (Dim == 256) {
    return planned.tile.keys == 64 ? run<Stored, Tile<256, 2, 64>>(a, planned)
                                   : run<Stored, Tile<256, 2, 80>>(a, planned);
  } else {
    constexpr int kKeys = gpu_attention::hopper_tile(Dim, 0, false, Ragged).keys;
    return run<Stored, Tile<Dim, 2, kKeys, Ragged>>(a, planned);
  }
}

}  // namespace hopper

template <int Dim>
Status gpu_hopper_of(const AttentionArgs& args, const gpu_attention::HopperLaunch& planned) {
  const bool ragged = args.lengths || args.q_offsets || args.kv_offsets;
  const auto as = [&]<class Stored>(Type<Stored>) {
    return ragged && Dim < 256     ? hopper::launch_tile < Stored, Dim,
           Dim<256>(args, planned) : hopper::launch_tile<Stored, Dim, false>(args, planned);
  };
  return args.q.dtype == DType::bf16 ? as(Type<BF16>{}) : as(Type<F16>{});
}

}  // namespace onepass::ops::attention
