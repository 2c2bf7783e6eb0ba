// Copies tiles between global and shared memory by the copy engine (TMA, sm_90), and the ring of
// stages that they pass through.
#pragma once

#include <cuda.h>

#include <cuda/ptx>

#include "core/cuda/mbarrier.cuh"

namespace onepass::tma {

namespace ptx = cuda::ptx;

// The coordinates of a tile in a tensor of batch × heads × tokens × dim, the last dimension first.
struct Place {
  int column, token, head, batch;
};

// Prefetches the tensor map, for which the first copy would wait.
__device__ inline void fetch(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Loads a tile. Its bytes count at the barrier when they have arrived. Elements outside the tensor
// are zeros.
__device__ inline void load(void* to, const CUtensorMap& map, const Place& from,
                            Mbarrier& barrier) {
  const std::int32_t at[4] = {from.column, from.token, from.head, from.batch};
  ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, to, &map, at, &barrier);
}

// Makes the threads' writes to shared memory visible to the copy engine.
__device__ inline void publish() { ptx::fence_proxy_async(ptx::space_shared); }

// Stores a tile, except its elements outside the tensor.
__device__ inline void store(const CUtensorMap& map, const Place& to, const void* from) {
  const std::int32_t at[4] = {to.column, to.token, to.head, to.batch};
  ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &map, at, from);
}
__device__ inline void commit_stores() { ptx::cp_async_bulk_commit_group(); }

// Stores or adds float32 numbers, so many bytes from a multiple of 16 on.
__device__ inline void store(float* to, const void* from, int bytes) {
  ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, to, from, bytes);
}
__device__ inline void add(float* to, const float* from, int bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
      "r"(shared_address(from)), "r"(bytes)
      : "memory");
}

// Orders what other blocks have written, and this thread has seen, before its copies.
__device__ inline void publish_global() { ptx::fence_proxy_async(ptx::space_global); }

// Waits until this thread's stores can be seen by all.
__device__ inline void wait_written() { ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{}); }

// Waits until this thread's stores have read their sources.
__device__ inline void wait_stores() { ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>{}); }

// Initialises a barrier that so many arrivals open; one thread calls it.
__device__ inline void open(Mbarrier& barrier, int arrivals) {
  ptx::mbarrier_init(&barrier, arrivals);
}

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

// A ring of stages that one thread fills and readers empty: step n uses stage n mod Stages.
template <int Stages>
struct Ring {
  static_assert((Stages & (Stages - 1)) == 0);
  Mbarrier full[Stages];
  Mbarrier empty[Stages];

  // Initialises the ring; one thread calls it before any other use.
  __device__ void open(int readers) {
#pragma unroll
    for (int i = 0; i < Stages; ++i) {
      tma::open(full[i], 1);
      tma::open(empty[i], readers);
    }
  }

  __device__ static int stage(unsigned step) { return static_cast<int>(step % Stages); }

  // For the writer: waits until all readers have left the stage, and announces this many bytes.
  __device__ void wait_empty(unsigned step) { wait(empty[stage(step)], (step / Stages + 1) % 2); }
  __device__ Mbarrier& fill(unsigned step, int bytes) {
    wait_empty(step);
    arrive_and_expect(full[stage(step)], bytes);
    return full[stage(step)];
  }

  // For the readers.
  __device__ void wait_full(unsigned step) { wait(full[stage(step)], step / Stages % 2); }
  __device__ void leave(unsigned step) { arrive(empty[stage(step)]); }
};

}  // namespace onepass::tma
