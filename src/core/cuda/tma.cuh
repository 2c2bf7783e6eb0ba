// Tiles between global and shared memory by the copy engine (sm_90), and the ring of stages that
// they pass through.
#pragma once

#include <cuda.h>

#include <cuda/ptx>

#include "core/cuda/mbarrier.cuh"

namespace onepass::tma {

namespace ptx = cuda::ptx;

// Where a tile begins in a tensor of batch × heads × tokens × dim, the last first.
struct Place {
  int column, token, head, batch;
};

// The map itself, which the first copy would wait for.
__device__ inline void fetch(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// The bytes of the tile count at the barrier when they have come. What lies outside of the
// tensor comes as zeros.
__device__ inline void load(void* to, const CUtensorMap& map, const Place& from,
                            Mbarrier& barrier) {
  const std::int32_t at[4] = {from.column, from.token, from.head, from.batch};
  ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, to, &map, at, &barrier);
}

// What the threads of a block wrote to shared memory is there for the copy engine.
__device__ inline void publish() { ptx::fence_proxy_async(ptx::space_shared); }

// What lies outside of the tensor is not written.
__device__ inline void store(const CUtensorMap& map, const Place& to, const void* from) {
  const std::int32_t at[4] = {to.column, to.token, to.head, to.batch};
  ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &map, at, from);
}
__device__ inline void commit_stores() { ptx::cp_async_bulk_commit_group(); }

// Until the stores of this thread have read what they store.
__device__ inline void wait_stores() { ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>{}); }

__device__ inline void arrive(Mbarrier& barrier) {
  ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &barrier);
}

__device__ inline void arrive_and_expect(Mbarrier& barrier, int bytes) {
  ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &barrier,
                                 bytes);
}

__device__ inline void wait(Mbarrier& barrier, unsigned phase) {
  while (!ptx::mbarrier_try_wait_parity(&barrier, phase)) {
  }
}

// Stages that one thread fills and readers empty, in turn: step n has stage n mod Stages,
// again and again.
template <int Stages>
struct Ring {
  static_assert((Stages & (Stages - 1)) == 0);
  Mbarrier full[Stages];
  Mbarrier empty[Stages];

  // By one thread, before anybody uses it.
  __device__ void open(int readers) {
#pragma unroll
    for (int i = 0; i < Stages; ++i) {
      ptx::mbarrier_init(&full[i], 1);
      ptx::mbarrier_init(&empty[i], readers);
    }
  }

  __device__ static int stage(unsigned step) { return static_cast<int>(step % Stages); }

  // The writer's: once all readers have left the stage, so many bytes are on their way to it.
  __device__ void wait_empty(unsigned step) { wait(empty[stage(step)], (step / Stages + 1) % 2); }
  __device__ Mbarrier& fill(unsigned step, int bytes) {
    wait_empty(step);
    arrive_and_expect(full[stage(step)], bytes);
    return full[stage(step)];
  }

  // The readers'.
  __device__ void wait_full(unsigned step) { wait(full[stage(step)], step / Stages % 2); }
  __device__ void leave(unsigned step) { arrive(empty[stage(step)]); }
};

}  // namespace onepass::tma
