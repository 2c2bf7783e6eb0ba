// Where the kernels of a call on a GPU go.
#pragma once

namespace onepass {

struct Queue {
  void* stream = nullptr;  // the caller's: a cudaStream_t
  // They may begin before what the stream did last has ended, and wait: core/cuda/dependent.cuh.
  bool early = false;
};

}  // namespace onepass
