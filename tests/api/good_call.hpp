// A call of any op that is right in everything, until a test makes one thing wrong.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "core/problem.hpp"
#include "onepass/onepass.hpp"

namespace onepass::test {

inline constexpr std::int64_t kRows = 3, kCols = 4;
inline constexpr std::byte kPattern{0xA5};

inline bool is_backward(Op op) {
  return op == Op::softmax_backward || op == Op::log_softmax_backward;
}
inline bool is_loss(Op op) { return op == Op::cross_entropy || op == Op::cross_entropy_backward; }

// One tensor argument of a call, by the name that errors give it.
struct Slot {
  std::string_view name;
  ConstTensor* in = nullptr;
  Tensor* out = nullptr;

  template <class Change>
  void change(Change change) const {
    in != nullptr ? change(*in) : change(*out);
  }
};

struct Call {
  explicit Call(Op which) : op(which) {
    std::memset(written, static_cast<int>(kPattern), sizeof written);
    for (std::size_t i = 0; i < kRows * kCols; ++i) first_data[i] = second_data[i] = 0.25F;
    out = traffic(op).writes == 0 ? Tensor(written, DType::f32, {kRows})
                                  : Tensor(written, DType::f32, {kRows, kCols});
    if (op == Op::logsumexp || op == Op::cross_entropy_backward || is_backward(op)) lse = {};
    if (is_loss(op)) second = ConstTensor(target_data, DType::i32, {kRows});
  }

  std::string_view in_name() const { return is_backward(op) ? "y" : "x"; }
  std::string_view out_name() const {
    return op == Op::cross_entropy                               ? "loss"
           : is_backward(op) || op == Op::cross_entropy_backward ? "dx"
                                                                 : "y";
  }

  // Every tensor that the op takes as an argument, options aside.
  std::vector<Slot> slots() {
    std::vector<Slot> all = {{.name = in_name(), .in = &in}, {.name = out_name(), .out = &out}};
    if (is_backward(op)) all.push_back({.name = "dy", .in = &second});
    if (is_loss(op)) all.push_back({.name = "target", .in = &second});
    if (op == Op::cross_entropy_backward) all.push_back({.name = "dloss", .in = &dloss});
    if (lse.present()) all.push_back({.name = "lse", .out = &lse});
    return all;
  }

  template <class Options>
  Options filled(Options options) const {
    options.axis = axis;
    options.scale = scale;
    options.temperature = temperature;
    options.softcap = softcap;
    options.mask = mask;
    options.variant = variant;
    return options;
  }

  Status run() const {
    if (is_backward(op)) {
      BackwardOptions options = filled(BackwardOptions{});
      options.x = x;
      return op == Op::softmax_backward ? softmax_backward(context, in, second, out, options)
                                        : log_softmax_backward(context, in, second, out, options);
    }
    if (is_loss(op)) {
      CrossEntropyOptions options = filled(CrossEntropyOptions{});
      options.ignore_index = ignore_index;
      options.label_smoothing = label_smoothing;
      options.z_loss = z_loss;
      options.reduction = reduction;
      options.lse = lse;
      return op == Op::cross_entropy
                 ? cross_entropy(context, in, second, out, options)
                 : cross_entropy_backward(context, in, second, known_lse, dloss, out, options);
    }
    SoftmaxOptions options = filled(SoftmaxOptions{});
    options.lse = lse;
    return op == Op::softmax       ? softmax(context, in, out, options)
           : op == Op::log_softmax ? log_softmax(context, in, out, options)
                                   : logsumexp(context, in, out, options);
  }

  // Refused, for the reason given in all these words, and nothing was written.
  void refused(std::initializer_list<std::string_view> words,
               Code code = Code::invalid_argument) const {
    SCOPED_TRACE(name(op));
    const Status status = run();
    EXPECT_EQ(name(status.code()), name(code)) << status.message();
    for (const std::string_view word : words) {
      EXPECT_NE(status.message().find(word), std::string::npos)
          << "'" << word << "' is not in: " << status.message();
    }
    for (const std::byte b : written) ASSERT_EQ(b, kPattern) << "the output was written";
  }

  void accepted() const {
    SCOPED_TRACE(name(op));
    const Status status = run();
    EXPECT_TRUE(status.ok()) << status.message();
  }

  alignas(64) float first_data[kRows * kCols], second_data[kRows * kCols];
  std::int32_t target_data[kRows] = {0, 1, 2};
  float dloss_data[kRows] = {1, 1, 1};
  alignas(64) std::byte written[1024];  // the output, then the lse, with room around them

  Op op;
  Context context = Context::cpu(1);
  ConstTensor in{first_data, DType::f32, {kRows, kCols}};
  ConstTensor second{second_data, DType::f32, {kRows, kCols}};
  ConstTensor x{}, known_lse{};
  ConstTensor dloss{dloss_data, DType::f32, {kRows}};
  Tensor out;
  Tensor lse{written + 512, DType::f32, {kRows}};
  int axis = -1;
  PerRow scale = 1.0, temperature = 1.0;
  double softcap = 0;
  Mask mask{};
  std::string_view variant;
  std::int64_t ignore_index = -100;
  double label_smoothing = 0, z_loss = 0;
  Reduction reduction = Reduction::none;
};

// Calls body with a fresh, good call of every op.
inline void for_each_op(const std::function<void(Call&)>& body) {
  for (const Op op : kRowOps) {
    Call call(op);
    body(call);
  }
}

// And for every tensor argument of every op.
inline void for_each_slot(const std::function<void(Call&, const Slot&)>& body) {
  for (const Op op : kRowOps) {
    for (std::size_t i = 0; i < Call(op).slots().size(); ++i) {
      Call call(op);
      body(call, call.slots()[i]);
    }
  }
}

inline std::string shape_text(const ConstTensor& t) {
  std::string text = "[";
  for (int i = 0; i < t.rank; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(t.shape[static_cast<std::size_t>(i)]);
  }
  return text + "]";
}

}  // namespace onepass::test
