// How the warpgroups of a block take turns.
#pragma once

namespace onepass::ops::attention::hopper {

// Warpgroups take turns at the tensor cores: while one has its products issued, the next
// exponentiates. A barrier of the block each, by number; 0 is __syncthreads'.
template <int Groups>
class PingPong {
 public:
  __device__ explicit PingPong(int group) : group_(group) {
    if (group == Groups - 1) pass();
  }
  __device__ void take() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group_), "n"(kThreads) : "memory");
  }
  __device__ void pass() const {
    const int next = group_ + 1 == Groups ? 0 : group_ + 1;
    asm volatile("bar.arrive %0, %1;" ::"r"(1 + next), "n"(kThreads) : "memory");
  }

 private:
  static constexpr int kThreads = 256;  // of two warpgroups: who takes, and who has passed

  int group_;
};

}  // namespace onepass::ops::attention::hopper
