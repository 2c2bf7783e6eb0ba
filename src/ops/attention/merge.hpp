// Two results of attention over different keys as one, by the algebra of core/state.hpp: an lse is
// the logit of all that a run saw, and o its value.
#pragma once

#include "core/state.hpp"
#include "onepass/attention.hpp"
#include "rows/args.hpp"

namespace onepass {

// What each of the two weighs in the whole, and the lse of that.
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

// The tensors over a space whose rows are queries and whose columns are elements of o.
struct MergeArgs {
  RowSpace space;
  Operand a, b, o;
  Operand lse_a, lse_b, lse;
  Queue queue;  // of a GPU op
};

Status check_merge(ConstTensor a, ConstTensor lse_a, ConstTensor b, ConstTensor lse_b, Tensor o,
                   Tensor lse, MergeArgs& args);

void merge_on_cpu(const MergeArgs& args, int threads);
Status merge_on_gpu(const MergeArgs& args);

}  // namespace onepass
