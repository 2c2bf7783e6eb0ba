// Merges two results of attention over different keys by the algebra of core/state.hpp: each result
// counts as one key, with its lse as the logit and its o as the value.
#pragma once

#include "core/state.hpp"
#include "onepass/attention.hpp"
#include "rows/args.hpp"

namespace onepass {

// The weight of each result in the merged one, and the merged lse.
template <class T>
struct Shares {
  T a, b;
  T lse;
};

template <class T>
ONEPASS_HD inline Shares<T> shares(T lse_a, T lse_b) {
  const State<T> both = merge(leaf(lse_a), leaf(lse_b));
  return {weight(both, lse_a), weight(both, lse_b), logsumexp(both)};
}

// The tensors, over a space whose rows are queries and whose columns are elements of o.
struct MergeArgs {
  RowSpace space;
  Operand a, b, o;
  Operand lse_a, lse_b, lse;
  Queue queue;  // on a GPU
};

Status check_merge(ConstTensor a, ConstTensor lse_a, ConstTensor b, ConstTensor lse_b, Tensor o,
                   Tensor lse, MergeArgs& args);

void merge_on_cpu(const MergeArgs& args, int threads);
Status merge_on_gpu(const MergeArgs& args);

}  // namespace onepass
