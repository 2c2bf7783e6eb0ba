// The gradients of a merge: each result's, and each lse's, from those of the merged result. With
// the weights wa and wb of the results
//
//     da = wa · do        dlse_a = wa · (wb · (Σ do · a − Σ do · b) + dlse)
//
// and the same for b.
#pragma once

#include "onepass/attention.hpp"
#include "rows/args.hpp"

namespace onepass {

// The tensors, over a space whose rows are queries and whose columns are elements of o.
struct MergeBackwardArgs {
  RowSpace space;
  Operand a, b, d_o, d_a, d_b;
  Operand lse_a, lse_b, d_lse, d_lse_a, d_lse_b;  // d_lse may be absent
  Queue queue;                                    // on a GPU
};

// The gradient of a result's lse, from the results' weights and Σ do · (own o − other's).
ONEPASS_HD inline double gradient_of_lse(double own, double other, double difference,
                                         double d_lse) {
  return own == 0 ? 0 : own * (other * difference + d_lse);
}

struct MergeBackwardTensors {
  ConstTensor a, lse_a, b, lse_b, d_o, d_lse;
  Tensor d_a, d_lse_a, d_b, d_lse_b;
};

Status check_merge_backward(const MergeBackwardTensors& t, MergeBackwardArgs& args);

void merge_backward_on_cpu(const MergeBackwardArgs& args, int threads);
Status merge_backward_on_gpu(const MergeBackwardArgs& args);

}  // namespace onepass
