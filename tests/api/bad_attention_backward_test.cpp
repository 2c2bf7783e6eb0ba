// Bad input of attention_backward: each is refused with its name and value, and no output is
// touched. What it shares with the forward: bad_attention_test.cpp.
#include <gtest/gtest.h>

#include <functional>

#include "onepass/attention.hpp"
#include "tests/support/values.hpp"

namespace onepass {
namespace {

using namespace test;

// A call that is right in everything, until a test makes one thing wrong.
struct Call {
  float data[4096] = {};
  float written[4096];
  std::int32_t places[3] = {0, 2, 5}, table[4] = {0, 1, 1, 0}, lengths[2] = {6, 4};
  ConstTensor q{data, DType::f32, {2, 4, 5, 8}};
  ConstTensor k{data, DType::f32, {2, 2, 6, 8}};
  ConstTensor v{data, DType::f32, {2, 2, 6, 16}};
  ConstTensor o{data, DType::f32, {2, 4, 5, 16}};
  ConstTensor d_o = o;
  ConstTensor lse{data, DType::f32, {2, 4, 5}};
  Tensor d_q{written, DType::f32, {2, 4, 5, 8}};
  Tensor d_k{written + 1000, DType::f32, {2, 2, 6, 8}};
  Tensor d_v{written + 2000, DType::f32, {2, 2, 6, 16}};
  AttentionBackwardOptions options;

  Call() { std::fill(std::begin(written), std::end(written), 7.0F); }

  Status run() {
    return attention_backward(Context::cpu(), q, k, v, o, lse, d_o, d_q, d_k, d_v, options);
  }
  void add_sinks() {
    options.sinks = {data, DType::f32, {4}};
    options.d_sinks = {written + 3000, DType::f32, {4}};
  }
  void add_mask() {
    options.mask.additive = {data, DType::f32, {5, 6}};
    options.d_additive = {written + 3000, DType::f32, {5, 6}};
  }
};

void expect_refused(const std::function<void(Call&)>& spoil, std::string_view text,
                    Code code = Code::invalid_argument) {
  Call call;
  spoil(call);
  const Status status = call.run();
  EXPECT_EQ(status.code(), code) << text;
  EXPECT_NE(status.message().find(text), std::string::npos)
      << "'" << status.message() << "' does not say '" << text << "'";
  for (const float each : call.written) ASSERT_EQ(each, 7.0F) << text;
}

TEST(BadAttentionBackwardTest, WhatIsRightIsTaken) {
  const std::function<void(Call&)> ways[] = {[](Call&) {}, [](Call& c) { c.add_sinks(); },
                                             [](Call& c) { c.add_mask(); },
                                             [](Call& c) { c.options.d_lse = c.lse; }};
  for (const auto& way : ways) {
    Call call;
    way(call);
    const Status status = call.run();
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(BadAttentionBackwardTest, TheForwardsInputs) {
  expect_refused([](Call& c) { c.q = {}; }, "q: is missing");
  expect_refused([](Call& c) { c.k.dtype = DType::bf16; }, "k: dtype bf16 is not that of q, f32");
  expect_refused([](Call& c) { c.options.softcap = -1; }, "softcap: -1");
  expect_refused([](Call& c) { c.options.scale = kNan; }, "scale: nan");
  expect_refused([](Call& c) { c.options.mask.window_left = -2; }, "mask.window_left: -2");
  expect_refused(
      [](Call& c) {
        c.options.mask.lengths = {c.lengths, DType::i32, {2}};
        c.lengths[1] = 7;
      },
      "mask.lengths: 7 at 1 is not between 0 and 6");
  expect_refused([](Call& c) { c.options.variant = "cpu_none"; },
                 "variant: attention_backward has no 'cpu_none'");
}

TEST(BadAttentionBackwardTest, TheForwardsResults) {
  expect_refused([](Call& c) { c.o = {}; }, "o: is missing");
  expect_refused([](Call& c) { c.d_o = {}; }, "d_o: is missing");
  expect_refused([](Call& c) { c.lse = {}; }, "lse: is missing");
  expect_refused([](Call& c) { c.o.shape[3] = 8; },
                 "o: shape [2, 4, 5, 8] is not that of q, [2, 4, 5, 8], with the dim of v, 16");
  expect_refused([](Call& c) { c.d_o.shape[2] = 4; }, "d_o: shape [2, 4, 4, 16]");
  expect_refused(
      [](Call& c) {
        c.d_o = {c.data, DType::f32, {2, 4, 5, 16}, {640, 160, 32, 2}};
      },
      "d_o: stride 2 of the last dimension is not 1");
  expect_refused([](Call& c) { c.d_o.dtype = DType::i32; }, "d_o: dtype i32");
  expect_refused([](Call& c) { c.lse.shape[2] = 4; },
                 "lse: shape [2, 4, 4] is not that of q without the last, [2, 4, 5]");
  expect_refused([](Call& c) { c.lse.dtype = DType::bf16; }, "lse: dtype bf16 is not f32 or f64");
  expect_refused([](Call& c) { c.options.d_lse = c.q; }, "d_lse: shape [2, 4, 5, 8]");
}

TEST(BadAttentionBackwardTest, Gradients) {
  expect_refused([](Call& c) { c.d_q = {}; }, "d_q: is missing");
  expect_refused([](Call& c) { c.d_k.shape[2] = 5; },
                 "d_k: shape [2, 2, 5, 8] is not that of k, [2, 2, 6, 8]");
  expect_refused([](Call& c) { c.d_v.shape[3] = 8; },
                 "d_v: shape [2, 2, 6, 8] is not that of v, [2, 2, 6, 16]");
  expect_refused([](Call& c) { c.d_q.dtype = DType::f16; },
                 "d_q: dtype f16 is neither that of q, f32, nor f32");
  expect_refused(
      [](Call& c) {
        c.q.dtype = c.k.dtype = c.v.dtype = c.o.dtype = c.d_o.dtype = DType::bf16;
        c.d_v.dtype = DType::bf16;
      },
      "d_v: dtype bf16 is not that of d_q, f32");
  expect_refused([](Call& c) { c.d_k.strides[2] = 0; }, "d_k: stride 0");
  expect_refused([](Call& c) { c.d_q.data = c.data; }, "d_q: overlaps q");
  expect_refused([](Call& c) { c.d_v.data = c.written; }, "d_v: overlaps d_q");
  expect_refused([](Call& c) { c.d_k.data = nullptr; }, "d_k: ");
}

TEST(BadAttentionBackwardTest, SinksAndMask) {
  expect_refused(
      [](Call& c) {
        c.add_sinks();
        c.options.sinks = {};
      },
      "d_sinks: there are no sinks");
  expect_refused(
      [](Call& c) {
        c.add_sinks();
        c.options.d_sinks.shape[0] = 3;
      },
      "d_sinks: shape [3] is not one value for each of 4 heads");
  expect_refused(
      [](Call& c) {
        c.add_mask();
        c.options.mask.additive = {};
      },
      "d_additive: there is no mask.additive");
  expect_refused(
      [](Call& c) {
        c.add_mask();
        c.options.d_additive.shape[0] = 1;
      },
      "d_additive: shape [1, 6] is not that of mask.additive, [5, 6]");
  expect_refused(
      [](Call& c) {
        c.add_mask();
        c.options.d_additive.strides[0] = 0;
      },
      "d_additive: stride 0");
  expect_refused(
      [](Call& c) {
        c.add_mask();
        c.options.d_additive.data = c.written;
      },
      "d_additive: overlaps d_q");
}

TEST(BadAttentionBackwardTest, PagesHaveNoGradient) {
  expect_refused(
      [](Call& c) {
        c.options.pages = {c.table, DType::i32, {2, 2}};
      },
      "pages: keys in pages have no gradient", Code::unsupported);
}

}  // namespace
}  // namespace onepass
