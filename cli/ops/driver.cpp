#include "cli/ops/driver.hpp"

namespace onepass::cli {

const Driver& driver_of(Op op) {
  switch (op) {
    case Op::softmax:
    case Op::log_softmax:
    case Op::logsumexp:
    case Op::softmax_backward:
    case Op::log_softmax_backward: return softmax_driver;
    case Op::cross_entropy:
    case Op::cross_entropy_backward: return loss_driver;
    case Op::topk:
    case Op::sample:
    case Op::gate: return select_driver;
    case Op::attention: return attention_driver;
    case Op::attention_backward: break;
  }
  return attention_backward_driver;
}

}  // namespace onepass::cli
