// The checked arguments of a row op: a space of rows, and operands laid over it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "core/annotate.hpp"
#include "core/number.hpp"
#include "core/problem.hpp"
#include "onepass/options.hpp"
#include "runtime/queue.hpp"

namespace onepass {

// All dimensions but the axis, in C order. Dimensions that every operand can walk as one are
// merged.
struct RowSpace {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  int rank = 0;
  std::array<std::int64_t, kMaxRank> extent{};
};

// A tensor over a row space. Broadcast dimensions have stride 0.
struct Operand {
  void* data = nullptr;  // null: absent. Inputs are never written through this.
  DType dtype = DType::f32;
  std::int64_t col_stride = 0;
  std::array<std::int64_t, kMaxRank> row_strides{};

  ONEPASS_HD explicit operator bool() const { return data != nullptr; }
};

// The address of column 0 of a row.
ONEPASS_HD_ONCE inline void* row_data(const RowSpace& space, const Operand& operand,
                                      std::int64_t row) {
  std::int64_t offset = 0;
#ifdef __CUDA_ARCH__
#pragma unroll 1  // rows seldom have more than one dimension
#endif
  for (int i = space.rank - 1; i > 0; --i) {
    offset += (row % space.extent[i]) * operand.row_strides[i];
    row /= space.extent[i];
  }
  offset += row * operand.row_strides[0];
  return static_cast<std::byte*>(operand.data) +
         offset * static_cast<std::int64_t>(size_of(operand.dtype));
}

// The element in a column of a row, of any dtype; an operand with one value per row has it in
// column 0. Kernels that read many elements of a row take row_data once.
template <class T>
inline T read_at(const RowSpace& space, const Operand& operand, std::int64_t row,
                 std::int64_t column = 0) {
  return read<T>(row_data(space, operand, row), operand.dtype, column * operand.col_stride);
}

template <class T>
inline void write_at(const RowSpace& space, const Operand& operand, std::int64_t row,
                     std::int64_t column, T value) {
  write(row_data(space, operand, row), operand.dtype, column * operand.col_stride, value);
}

// How z is made from x. See onepass/options.hpp.
struct Logits {
  Operand x;
  double scale = 1;
  double temperature = 1;
  double softcap = 0;
  Operand scale_rows, temperature_rows, additive, boolean, lengths;
  bool causal = false;
  std::int64_t window_left = -1, window_right = -1;
  std::int64_t queries = 1;  // extent of the last row dimension

  // Which options a row can ignore:
  ONEPASS_HD bool plain() const {  // z = x
    return scale == 1 && temperature == 1 && softcap == 0 && !scale_rows && !temperature_rows &&
           !additive && !boolean;
  }
  ONEPASS_HD bool only_scaled() const {  // z = x times a positive number
    return scale > 0 && scale <= std::numeric_limits<double>::max() && softcap == 0 &&
           !scale_rows && !additive && !boolean;
  }
  ONEPASS_HD bool whole_rows() const {  // every column is live
    return !lengths && !causal && window_left < 0 && window_right < 0;
  }
};

struct Select;

struct RowArgs {
  Op op = Op::softmax;
  RowSpace space;
  std::int64_t first_row = 0;  // the call computes rows [first_row, end_row)
  std::int64_t end_row = 0;
  Logits logits;   // the logits of x; in a backward from y, its masks and scales
  Operand y, dy;   // the backward ops' inputs
  Operand out;     // y, dx or the per-row result
  Operand lse;     // optional output; input of cross_entropy_backward
  Operand target;  // cross-entropy: class indices, or the classes' probabilities
  Operand dloss;   // the loss's gradient, one per row; absent: 1
  Operand loss;    // in a backward: receives the loss, too, and lse is then an output
  double dloss_scale = 1;
  double* row_losses = nullptr;  // receives the losses in place of `out`, from first_row on
  Reduction reduction = Reduction::none;  // on a GPU: how they are then reduced into `out`
  double* mean_scale = nullptr;           // on a GPU: receives the backward's 1 / rows that count
  std::int64_t ignore_index = 0;
  double label_smoothing = 0;
  double z_loss = 0;
  bool in_place = false;
  const Select* select = nullptr;  // of the select ops
  Queue queue;                     // on a GPU
  std::byte* workspace = nullptr;  // on a GPU: plan.scratch_bytes of its memory
  Operand weight;                  // cross-entropy: one per class, the same for all rows
  bool has_probabilities = false;  // cross-entropy: the target has one column per class
};

// The weight of one class of a cross-entropy.
ONEPASS_HD inline double weight_of(const Operand& weight, std::int64_t c) {
  if (!weight) return 1;
  const std::int64_t past =
      c * weight.col_stride * static_cast<std::int64_t>(size_of(weight.dtype));
  return read_one<double>(static_cast<const std::byte*>(weight.data) + past, weight.dtype);
}

// The columns of a row that no length, causal or window mask hides. They are a range, so that those
// outside need not be read.
struct Columns {
  std::int64_t begin, end;
};

ONEPASS_HD inline Columns live_columns(const RowSpace& space, const Logits& logits,
                                       std::int64_t row) {
  constexpr std::int64_t far = std::numeric_limits<std::int64_t>::max() / 4;
  std::int64_t begin = 0;
  std::int64_t end = space.cols;
  if (logits.lengths) {
    end = std::min(
        end, read_one<std::int64_t>(row_data(space, logits.lengths, row), logits.lengths.dtype));
  }
  const std::int64_t own = row % logits.queries + space.cols - logits.queries;
  if (logits.causal) end = std::min(end, own + 1);
  if (logits.window_right >= 0) end = std::min(end, own + std::min(logits.window_right, far) + 1);
  if (logits.window_left >= 0) begin = std::max(begin, own - std::min(logits.window_left, far));
  end = std::max<std::int64_t>(end, 0);
  return {std::min(begin, end), end};
}

// The scale of a row: its own, or that of all rows.
ONEPASS_HD inline double row_scale(const RowSpace& space, const Logits& logits, std::int64_t row) {
  return logits.scale_rows
             ? read_one<double>(row_data(space, logits.scale_rows, row), logits.scale_rows.dtype)
             : logits.scale;
}

ONEPASS_HD inline double row_temperature(const RowSpace& space, const Logits& logits,
                                         std::int64_t row) {
  return logits.temperature_rows ? read_one<double>(row_data(space, logits.temperature_rows, row),
                                                    logits.temperature_rows.dtype)
                                 : logits.temperature;
}

}  // namespace onepass
