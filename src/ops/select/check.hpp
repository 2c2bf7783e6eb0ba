// The checks of the ops that select from a row; `args` come as they were made.
#pragma once

#include "ops/select/args.hpp"

namespace onepass {

Status check_topk(ConstTensor x, Tensor values, Tensor indices, const TopkOptions& options,
                  RowArgs& args, Select& select);
Status check_sample(ConstTensor x, Tensor token, const SampleOptions& options, RowArgs& args,
                    Select& select);
Status check_gate(ConstTensor scores, Tensor weights, Tensor experts, const GateOptions& options,
                  RowArgs& args, Select& select);

// What the dispatcher has to know. On a GPU no tensor's values can be looked at before.
Problem describe(const RowArgs& args, const Select& select, bool on_gpu);

// What the tensors with a value a row hold, on a CPU.
Status check_select_values(const RowArgs& args, const Select& select);

}  // namespace onepass
