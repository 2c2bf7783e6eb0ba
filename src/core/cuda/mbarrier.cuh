// Barriers in shared memory that count bytes (sm_90). A block of a cluster stores into another's
// shared memory and signals its barrier in the same instruction, so threads wait only for the data
// that they need.
#pragma once

#include <cstdint>
#include <cstring>

namespace onepass {

using Mbarrier = std::uint64_t;

__device__ inline unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// The same address in the shared memory of another block of the cluster.
__device__ inline unsigned address_in_block(const void* mine, int rank) {
  unsigned address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(address)
      : "r"(shared_address(mine)), "r"(rank));
  return address;
}

// Initialises a barrier; one thread calls it. The barrier opens once each of `count` senders has
// announced its bytes and all of them have arrived. Other blocks may send after a cluster barrier.
__device__ inline void expect_senders(Mbarrier& barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(count)
               : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Announces bytes to the block's own barrier; one thread per sender calls it.
__device__ inline void announce_bytes(const Mbarrier& barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
      "r"(bytes)
      : "memory");
}

// Announces bytes to another block's barrier. Relaxed: orders no other access.
__device__ inline void announce_bytes(const Mbarrier& barrier, int bytes, int rank) {
  asm volatile("mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(
                   address_in_block(&barrier, rank)),
               "r"(bytes)
               : "memory");
}

// Initialises a barrier that opens once, when this many bytes have arrived from any blocks.
__device__ inline void expect_bytes(Mbarrier& barrier, int bytes) {
  expect_senders(barrier, 1);
  announce_bytes(barrier, bytes);
}

// Waits until the barrier has opened for the phase-th time, counted modulo 2.
__device__ inline void wait_for_phase(const Mbarrier& barrier, int phase) {
  unsigned open = 0;
  while (open == 0) {
    asm volatile(
        "{ .reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(open)
        : "r"(shared_address(&barrier)), "r"(phase)
        : "memory");
  }
}
__device__ inline void wait_for_bytes(Mbarrier& barrier) { wait_for_phase(barrier, 0); }

// Copies bytes from global to this block's shared memory by the copy engine, both at multiples of
// 16. They count at the barrier when they have arrived.
__device__ inline void copy_bulk(const void* from, void* to, int bytes, const Mbarrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(&barrier))
      : "memory");
}

// Stores a value in the same slot of another block and counts its bytes at that block's barrier.
template <class Value>
__device__ inline void send(const Value& value, const Value* slot, const Mbarrier& barrier,
                            int rank) {
  const unsigned to = address_in_block(slot, rank);
  const unsigned tell = address_in_block(&barrier, rank);
  if constexpr (sizeof(Value) == 4) {
    unsigned word;
    memcpy(&word, &value, 4);
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
        "r"(word), "r"(tell)
        : "memory");
  } else {
    static_assert(sizeof(Value) % 8 == 0);
    std::uint64_t words[sizeof(Value) / 8];
    memcpy(words, &value, sizeof value);
#pragma unroll
    for (unsigned i = 0; i < sizeof(Value) / 8; ++i) {
      asm volatile(
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(to +
                                                                                            8 * i),
          "l"(words[i]), "r"(tell)
          : "memory");
    }
  }
}

#endif

}  // namespace onepass
