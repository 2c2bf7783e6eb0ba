// Problems of attention for tests of plans.
#pragma once

#include "core/machine.hpp"
#include "core/problem.hpp"
#include "dispatch/machines.hpp"

namespace onepass {

inline Problem attention_problem(std::int64_t batch, std::int64_t heads, std::int64_t kv_heads,
                                 std::int64_t queries, std::int64_t keys, int dim,
                                 DType dtype = DType::bf16) {
  Problem p{.op = Op::attention, .rows = batch * heads * queries, .cols = keys};
  p.in = p.out = dtype;
  p.attention = {.batch = batch,
                 .heads = heads,
                 .kv_heads = kv_heads,
                 .queries = queries,
                 .keys = keys,
                 .dim = dim,
                 .aligned = true};
  return p;
}

inline const Machine& h200() { return *find_machine("h200"); }

}  // namespace onepass
