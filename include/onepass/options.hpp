// What a call can ask for beside its tensors. The defaults give the plain op.
//
// All row ops see the logits z, which are computed from x as it is loaded:
//
//     z = softcap(x · scale) / temperature + additive mask,     softcap(v) = cap · tanh(v / cap)
//
// and z = −inf where a boolean, length, causal or window mask hides the element.
#pragma once

#include <cstdint>
#include <string_view>

#include "onepass/tensor.hpp"

namespace onepass {

struct Plan;

// One value for all rows, or a floating tensor with one value per row that broadcasts to x's shape
// without the axis.
struct PerRow {
  double value = 1;
  ConstTensor rows{};

  PerRow(double all) : value(all) {}
  PerRow(ConstTensor each) : rows(each) {}
  PerRow(Tensor each) : rows(each) {}
};

// The fields combine: an element counts if every field keeps it. The elements of a row are its
// keys, and the last dimension that is not the axis holds the queries. With Q queries and K keys
// the diagonal is aligned to the bottom right: query q stands at key q + K − Q.
struct Mask {
  ConstTensor additive{};          // floating, added to z; broadcasts to x
  ConstTensor boolean{};           // u8, non-zero keeps; broadcasts to x
  ConstTensor lengths{};           // i32 or i64, one per row: hides keys from this index on
  bool causal = false;             // hides keys after the query's own
  std::int64_t window_left = -1;   // hides keys more than this many before the query's; −1: none
  std::int64_t window_right = -1;  // hides keys more than this many after the query's; −1: none

  bool any() const {
    return additive.present() || boolean.present() || lengths.present() || causal ||
           window_left >= 0 || window_right >= 0;
  }
};

inline Mask additive(ConstTensor values) { return {.additive = values}; }
inline Mask boolean(ConstTensor keep) { return {.boolean = keep}; }
inline Mask lengths(ConstTensor lengths) { return {.lengths = lengths}; }
inline Mask causal() { return {.causal = true}; }
inline Mask window(std::int64_t left, std::int64_t right) {
  return {.window_left = left, .window_right = right};
}

// Both masks at once; a field that both set is taken from the right one.
inline Mask operator&(Mask left, const Mask& right) {
  if (right.additive.present()) left.additive = right.additive;
  if (right.boolean.present()) left.boolean = right.boolean;
  if (right.lengths.present()) left.lengths = right.lengths;
  if (right.window_left >= 0) left.window_left = right.window_left;
  if (right.window_right >= 0) left.window_right = right.window_right;
  left.causal = left.causal || right.causal;
  return left;
}

// For softmax, log_softmax and logsumexp.
struct SoftmaxOptions {
  int axis = -1;
  PerRow scale = 1.0;
  PerRow temperature = 1.0;
  double softcap = 0;  // 0: none
  Mask mask{};
  Tensor lse{};                  // optional output, f32 or f64, x's shape without the axis
  std::string_view variant{};    // forces a variant by name; empty: the dispatcher chooses
  Plan* plan = nullptr;          // receives the plan that ran
  bool batch_invariant = false;  // a row's bits do not depend on the number of rows
};

// For softmax_backward and log_softmax_backward. Pass the forward's options: scale, temperature and
// softcap enter the gradient, which is 0 where a mask hides; additive masks are not read.
struct BackwardOptions {
  int axis = -1;
  PerRow scale = 1.0;
  PerRow temperature = 1.0;
  double softcap = 0;
  Mask mask{};
  ConstTensor x{};  // the forward's input; required, and read, only with a softcap
  std::string_view variant{};
  Plan* plan = nullptr;
  bool batch_invariant = false;
};

enum class Reduction : std::uint8_t {
  none,  // loss has x's shape without the axis
  sum,   // loss is one value
  // The sum over the rows that are not ignored, divided by the sum of their targets' weights; 0
  // where that sum is 0.
  mean,
};

// For the cross-entropy ops. Without class weights, with class indices as the target and with s as
// the label smoothing
//
//     loss = lse − (1 − s)·z[target] − s·mean(z) + z_loss·lse²
//
// where the mean is over the classes with z > −inf. With class weights w
//
//     loss = (1 − s)·w[target]·(lse − z[target]) + s·mean(w·(lse − z)) + z_loss·lse²
//
// so the last term is not weighted, and Reduction::mean divides the sum of all losses by the sum of
// w[target]. A target of weight 0 adds nothing, even if it is hidden. With class probabilities q as
// the target
//
//     loss = (1 − s)·Σ w·q·(lse − z) + s·mean(w·(lse − z)) + z_loss·lse²
//
// q need not sum to 1. A hidden class makes the loss infinite if its w·q is not 0, and adds nothing
// otherwise. No row is ignored (an ignore_index of 0 or more is an error), and Reduction::mean
// divides by the number of rows.
struct CrossEntropyOptions {
  int axis = -1;
  PerRow scale = 1.0;
  PerRow temperature = 1.0;
  double softcap = 0;
  Mask mask{};
  ConstTensor weight{};              // floating, one per class; absent: 1
  std::int64_t ignore_index = -100;  // rows with this target have loss 0 and gradient 0
  double label_smoothing = 0;        // s, in [0, 1]
  double z_loss = 0;
  Reduction reduction = Reduction::none;
  Tensor lse{};  // optional output of the ops that return the loss
  std::string_view variant{};
  Plan* plan = nullptr;
  bool batch_invariant = false;
};

}  // namespace onepass
