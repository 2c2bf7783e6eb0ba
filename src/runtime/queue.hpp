// Where the kernels of a call on a GPU go.
#pragma once

namespace onepass {

struct Queue {
  void* stream = nullptr;  // the caller's: a cudaStream_t
  bool early =
      false;  // they may come before what the stream did last has ended: see core/dependent.cuh
};

}  // namespace onepass
