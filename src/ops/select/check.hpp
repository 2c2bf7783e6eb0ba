// The checks of the select ops. `args` must be fresh.
#pragma once

#include "ops/select/args.hpp"

namespace onepass {

Status check_topk(ConstTensor x, Tensor values, Tensor indices, const TopkOptions& options,
                  RowArgs& args, Select& select);
Status check_sample(ConstTensor x, Tensor token, const SampleOptions& options, RowArgs& args,
                    Select& select);
Status check_gate(ConstTensor scores, Tensor weights, Tensor experts, const GateOptions& options,
                  RowArgs& args, Select& select);

// Describes a checked call to the dispatcher. On a GPU it cannot read any tensor's values.
Problem describe(const RowArgs& args, const Select& select, bool on_gpu);

// Checks the values of tensors with one value per row, on a CPU.
Status check_select_values(const RowArgs& args, const Select& select);

}  // namespace onepass
