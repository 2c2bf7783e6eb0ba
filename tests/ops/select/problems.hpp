// Problems of top-k and the GPUs that launches are planned for.
#pragma once

#include <cstdint>

#include "core/machine.hpp"
#include "core/problem.hpp"
#include "dispatch/machines.hpp"

namespace onepass::test {

inline const Machine& h200() { return *find_machine("h200"); }

inline Machine without_clusters() {
  Machine m = h200();
  m.gpu.sm = 80;
  return m;
}

// Less shared memory per block: an A100's, and that of GPUs for the desk.
inline Machine with_shared(int sm, int bytes) {
  Machine m = h200();
  m.gpu.sm = sm;
  m.gpu.block_shared = bytes;
  return m;
}

inline Problem topk(std::int64_t rows, std::int64_t cols, std::int64_t k, DType in = DType::f32) {
  return {.op = Op::topk, .rows = rows, .cols = cols, .k = k, .in = in};
}

}  // namespace onepass::test
