// attention/20_hopper: the tensor cores, the copy engine and the exponentials of a Hopper GPU, all at once.
//
// Idea    a warpgroup loads, two or three compute. Each has 64 rows of queries: scores of a tile of keys while the
//         values of the tile before are summed, and exponentials while other warpgroups have the tensor cores,
//         relative to the maximum of a row's first tile. Blocks stay and take tile after tile.
// Versus  10_mma: the operands of the products lie in shared memory, and nobody waits for a load or for a product.
// Bytes   q and o once; k and v once a tile of queries, from L2 where a few heads fit there.
// Limits  sm_90a; f16, bf16; dim 64, 96, 128, 192, 256; masks by place, softcap, sinks; lengths and
//         offsets up to dim 192.
// Proof   `onepass verify attention`; numbers: results/h200/attention.json.

#include "core/dependent.cuh"
#include "dispatch/attention_launch.hpp"
#include "ops/attention/hopper_consumer.cuh"
#include "ops/attention/variants.hpp"
#include "runtime/launch.cuh"
#include "runtime/tensor_map.hpp"

namespace onepass::ops::attention {
namespace hopper {
namespace {

template <class Stored, class Tile>
__global__ __launch_bounds__(Tile::kThreads, 1) void attend(const __grid_constant__ Params p) {
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
  __trap();  // compiled for something else, and chosen all the same: no result is better than an old one
#endif
}

template <class Stored, class Tile>
Status run(const AttentionArgs& a, const Plan& plan) {
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
  p.schedule = attention_tiles::Schedule(tiles, heads);
  if (p.sight.after >= 0 && !p.packed) {
    p.schedule = attention_tiles::Schedule::in_pairs(
        tiles, heads, static_cast<int>(plan.blocks),
        attention_launch::hopper_rounds_left(Tile::kDim, tiles));
    p.lead = attention_launch::hopper_lead({Tile::kGroups, Tile::kKeys}, tiles, p.sight.queries);
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
                 .blocks = plan.blocks,
                 .threads = Tile::kThreads,
                 .shared_bytes = sizeof(Shared<Stored, Tile>) + 1024},
                plan.variant, attend<Stored, Tile>, p);
}

template <class Stored, bool Ragged>
Status launch_tile(const AttentionArgs& a, const Plan& plan, int keys) {
  switch (a.dim) {
    case 64:
      return plan.threads == Tile<64, 3, 128>::kThreads
                 ? run<Stored, Tile<64, 3, 128>>(a, plan)
                 : run<Stored, Tile<64, 2, 128, Ragged>>(a, plan);
    case 96: return run<Stored, Tile<96, 2, 128, Ragged>>(a, plan);
    case 128: return run<Stored, Tile<128, 2, 128, Ragged>>(a, plan);
    case 192: return run<Stored, Tile<192, 2, 96, Ragged>>(a, plan);
    default:
      return keys == 64 ? run<Stored, Tile<256, 2, 64>>(a, plan)
                        : run<Stored, Tile<256, 2, 80>>(a, plan);
  }
}

template <class Stored>
Status launch_any(const AttentionArgs& a, const Plan& plan) {
  const bool cut = a.causal || a.window_left >= 0 || a.window_right >= 0;
  const bool ragged = a.lengths || a.q_offsets || a.kv_offsets;
  const int keys = attention_launch::hopper_tile(a.dim, a.keys, cut, ragged).keys;
  return ragged ? launch_tile<Stored, true>(a, plan, keys)
                : launch_tile<Stored, false>(a, plan, keys);
}

}  // namespace
}  // namespace hopper

Status gpu_hopper(const AttentionArgs& args, const Plan& plan) {
  return args.q.dtype == DType::bf16 ? hopper::launch_any<BF16>(args, plan)
                                     : hopper::launch_any<F16>(args, plan);
}

}  // namespace onepass::ops::attention
