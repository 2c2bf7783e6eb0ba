// Arguments of the kernels that are compiled for the usual call: no options, rows at one distance
// from each other. A few cache lines of parameters where RowArgs has dozens.
#pragma once

#include "rows/args.hpp"
#include "rows/packs.hpp"

namespace onepass {

struct FlatOperand {
  std::byte* data = nullptr;
  std::int64_t stride = 0;  // bytes from row to row
  DType dtype = DType::f32;

  ONEPASS_HD explicit operator bool() const { return data != nullptr; }
};

struct FlatArgs {
  Op op;
  std::int64_t first_row, end_row, cols;
  FlatOperand in, dy, out, lse, target, dloss, loss;  // in: x, or y in a backward of it
  std::int64_t ignore_index;
  float z_loss, dloss_scale;
  const double* mean_scale;  // stands in for dloss_scale
  double* row_losses;        // stands in for out
};

inline FlatOperand flat(const Operand& operand) {
  return {static_cast<std::byte*>(operand.data),
          operand.row_strides[0] * static_cast<std::int64_t>(size_of(operand.dtype)),
          operand.dtype};
}

inline FlatArgs flat(const RowArgs& args) {
  const Operand& in = args.y ? args.y : args.logits.x;
  return {.op = args.op,
          .first_row = args.first_row,
          .end_row = args.end_row,
          .cols = args.space.cols,
          .in = flat(in),
          .dy = flat(args.dy),
          .out = flat(args.out),
          .lse = flat(args.lse),
          .target = flat(args.target),
          .dloss = flat(args.dloss),
          .loss = flat(args.loss),
          .ignore_index = args.ignore_index,
          .z_loss = static_cast<float>(args.z_loss),
          .dloss_scale = static_cast<float>(args.dloss_scale),
          .mean_scale = args.mean_scale,
          .row_losses = args.row_losses};
}

// What a Row asks of its arguments, whichever they are.
ONEPASS_HD inline void* row_of(const FlatArgs&, const FlatOperand& operand, std::int64_t row) {
  return operand.data + row * operand.stride;
}
ONEPASS_HD inline void* row_of(const RowArgs& args, const Operand& operand, std::int64_t row) {
  return row_data(args.space, operand, row);
}
ONEPASS_HD inline std::int64_t cols_of(const FlatArgs& args) { return args.cols; }
ONEPASS_HD inline std::int64_t cols_of(const RowArgs& args) { return args.space.cols; }

}  // namespace onepass
