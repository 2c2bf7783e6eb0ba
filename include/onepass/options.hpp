// What a call may ask for beyond its tensors. Every field has a default that changes nothing.
//
// All row ops see the logits z, made from x while it is loaded:
//
//     z = softcap(x · scale) / temperature + additive mask,     softcap(v) = cap · tanh(v / cap)
//
// and −inf where a boolean, length, causal or window mask hides the element.
#pragma once

#include <cstdint>
#include <string_view>

#include "onepass/plan.hpp"
#include "onepass/tensor.hpp"

namespace onepass {

// One value for all rows, or a floating tensor with one value a row: x's shape without the axis,
// or anything that broadcasts to it.
struct PerRow {
  double value = 1;
  ConstTensor rows{};

  PerRow(double all) : value(all) {}
  PerRow(ConstTensor each) : rows(each) {}
  PerRow(Tensor each) : rows(each) {}
};

// The parts of a mask compose: an element takes part when every part keeps it.
// "Query" is the last dimension that is not the axis; with Q queries and K keys the diagonal is
// bottom-right aligned: query q stands at key q + K − Q.
struct Mask {
  ConstTensor additive{};  // floating, added to z; broadcasts to x
  ConstTensor boolean{};   // u8, non-zero keeps; broadcasts to x
  ConstTensor lengths{};   // i32 or i64, one a row: keys at or past it are hidden
  bool causal = false;     // keys past the query's own are hidden
  std::int64_t window_left =
      -1;  // keys more than this many before the query's are hidden; −1: none
  std::int64_t window_right = -1;  // the same after it

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

// Both masks at once. Where the two hold the same part, the right one's is taken.
inline Mask operator&(Mask left, const Mask& right) {
  if (right.additive.present()) left.additive = right.additive;
  if (right.boolean.present()) left.boolean = right.boolean;
  if (right.lengths.present()) left.lengths = right.lengths;
  if (right.window_left >= 0) left.window_left = right.window_left;
  if (right.window_right >= 0) left.window_right = right.window_right;
  left.causal = left.causal || right.causal;
  return left;
}

// softmax, log_softmax, logsumexp.
struct SoftmaxOptions {
  int axis = -1;
  PerRow scale = 1.0;
  PerRow temperature = 1.0;
  double softcap = 0;  // 0: none
  Mask mask{};
  Tensor lse{};                  // optional output, f32 or f64, x's shape without the axis
  std::string_view variant{};    // force one by name; empty: the dispatcher chooses
  Plan* plan = nullptr;          // receives the plan that ran
  bool batch_invariant = false;  // a row's bits do not depend on how many rows there are
};

// softmax_backward, log_softmax_backward. Pass what the forward call got: an additive mask has no
// derivative in x, the others decide where the gradient is zero.
struct BackwardOptions {
  int axis = -1;
  PerRow scale = 1.0;
  PerRow temperature = 1.0;
  double softcap = 0;
  Mask mask{};
  ConstTensor x{};  // the forward's input; needed, and read, only with a softcap
  std::string_view variant{};
  Plan* plan = nullptr;
  bool batch_invariant = false;
};

enum class Reduction : std::uint8_t {
  none,  // loss has x's shape without the axis
  sum,   // loss is one value
  // Over the rows that are not ignored, by the weights of their targets; 0 where these add up to 0.
  mean,
};

// loss = lse − (1 − s)·z[target] − s·mean(z) + z_loss·lse², the mean over the
// classes with z > −inf.
//
// With weights w of the classes
//
//     loss = (1 − s)·w[target]·(lse − z[target]) + s·mean(w·(lse − z)) + z_loss·lse²
//
// so the last term has no weight, and reduction mean divides the sum of all losses by the sum of
// w[target]. A target of weight 0 adds nothing, even where it is hidden.
//
// With probabilities q as target
//
//     loss = (1 − s)·Σ w·q·(lse − z) + s·mean(w·(lse − z)) + z_loss·lse²
//
// q need not add up to 1. A hidden class makes the loss infinite where w·q is not 0, and adds
// nothing where it is. No row is ignored (an ignore_index of 0 or more is refused), and reduction
// mean divides by the number of rows.
struct CrossEntropyOptions {
  int axis = -1;
  PerRow scale = 1.0;
  PerRow temperature = 1.0;
  double softcap = 0;
  Mask mask{};
  ConstTensor weight{};              // floating, one a class; absent: 1
  std::int64_t ignore_index = -100;  // rows with this target have loss 0 and gradient 0
  double label_smoothing = 0;        // s, in [0, 1]
  double z_loss = 0;
  Reduction reduction = Reduction::none;
  Tensor lse{};  // optional output of the forward
  std::string_view variant{};
  Plan* plan = nullptr;
  bool batch_invariant = false;
};

}  // namespace onepass
