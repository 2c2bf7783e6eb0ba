// The kernel of hopper.cu and its launch for one dim.
#pragma once

#include "core/cuda/dependent.cuh"
#include "core/try.hpp"
#include "ops/attention/gpu/backward/hopper/compute.cuh"
#include "ops/attention/gpu/backward/hopper/load.cuh"
#include "ops/attention/gpu/backward/hopper/variants.hpp"
#include "ops/attention/gpu/hopper/tensor_map.hpp"
#include "runtime/launch.cuh"

namespace onepass::ops::attention::backward_hopper {

template <class Stored, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    backward_columns(const __grid_constant__ Params<Tile> p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  // Swizzled tiles begin at multiples of 1024 bytes, and so does the memory: there is no other.
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<Shared<Stored, Tile>*>(memory);
  if (shared_address(memory) % 1024 != 0) __trap();
  if (threadIdx.x == 0) {
    for (const CUtensorMap* map : {&p.q, &p.k, &p.v, &p.d_o}) tma::fetch(*map);
    shared.k_ring.open(kReaders);
    shared.v_ring.open(kReaders);
    shared.q_ring.open(kReaders);
    shared.d_o_ring.open(kReaders);
    shared.row_ring.open(kReaders);
    shared.job_ring.open(kReaders);
    shared.part_ring.open(1);
    for (int i = 0; i < 2 * kGroups; ++i) {
      tma::open(shared.shared[i / kGroups][i % kGroups], kReaders / kGroups);
      tma::open(shared.read[i / kGroups][i % kGroups], kReaders / kGroups);
    }
    for (Mbarrier& part : shared.summed) tma::open(part, kReaders);
    for (Mbarrier& part : shared.taken) tma::open(part, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp < kWarpgroup / 32) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (warp == 0 && threadIdx.x == 0) load_tiles(p, shared);
    if (warp == 1) load_rows(p, shared);
    if (warp == 2) order_parts(p, shared);
    if (warp == 3 && threadIdx.x % 32 == 0) add_parts(p, shared);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    Consumer<Stored, Tile>(p, shared, warp / (kWarpgroup / 32) - 1).run();
  }
#else
  // Compiled for something else, and chosen all the same: no result is better than an old one.
  __trap();
#endif
}

template <class Stored, int Dim>
Status launch_columns(const AttentionBackwardArgs& a,
                      const gpu_attention::BackwardHopperLaunch& planned) {
  using Tile = backward_hopper::Tile<Dim>;
  static_assert(sizeof(Shared<Stored, Tile>) <= 227 * 1024, "what a block of sm_90 can have");
  Params<Tile> p{};
  p.args = a;
  const auto sharing = static_cast<int>(a.heads / a.kv_heads);
  p.turns =
      decltype(p.turns)(sharing, sight_of(a, {0, a.queries, 0, a.keys}),
                        static_cast<int>(a.batch * a.kv_heads), static_cast<int>(planned.blocks));
  p.query_tiles = p.turns.tiles_of(static_cast<int>(a.queries), Tile::kQueries);
  p.sums = reinterpret_cast<float*>(a.workspace + planned.sums_at);
  p.added = reinterpret_cast<int*>(a.workspace + planned.added_at);
  const auto map = [&](const Heads& of, std::int64_t heads, std::int64_t tokens, int rows,
                       CUtensorMap& out) {
    return make_tensor_map(of, {a.batch, heads, tokens, a.dim}, rows, kColumns, out);
  };
  ONEPASS_TRY(map(a.q, a.heads, a.queries, Tile::kQueries, p.q));
  ONEPASS_TRY(map(a.d_o, a.heads, a.queries, Tile::kQueries, p.d_o));
  ONEPASS_TRY(map(a.k, a.kv_heads, a.keys, Tile::kKeys, p.k));
  ONEPASS_TRY(map(a.v, a.kv_heads, a.keys, Tile::kKeys, p.v));
  return launch({.queue = a.queue,
                 .blocks = int{p.turns.blocks},
                 .threads = planned.threads,
                 .shared_bytes = sizeof(Shared<Stored, Tile>),
                 .together = true},
                "gpu_hopper", backward_columns<Stored, Tile>, p);
}

}  // namespace onepass::ops::attention::backward_hopper

namespace onepass::ops::attention {

template <int Dim>
Status gpu_backward_hopper_of(const AttentionBackwardArgs& a,
                              const gpu_attention::BackwardHopperLaunch& planned) {
  return a.q.dtype == DType::bf16 ? backward_hopper::launch_columns<BF16, Dim>(a, planned)
                                  : backward_hopper::launch_columns<F16, Dim>(a, planned);
}

}  // namespace onepass::ops::attention
