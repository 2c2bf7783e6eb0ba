// Bad input of attention: each is refused with its name and value, and no output is touched.
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
  std::int32_t q_places[3] = {0, 2, 5}, kv_places[3] = {0, 3, 6}, lengths[2] = {6, 4};
  std::int32_t table[4] = {0, 1, 1, 0};
  ConstTensor q{data, DType::f32, {2, 4, 5, 8}};
  ConstTensor k{data, DType::f32, {2, 2, 6, 8}};
  ConstTensor v{data, DType::f32, {2, 2, 6, 8}};
  Tensor o{written, DType::f32, {2, 4, 5, 8}};
  AttentionOptions options;

  Call() { std::fill(std::begin(written), std::end(written), 7.0F); }

  Status run() { return attention(Context::cpu(), q, k, v, o, options); }

  void make_ragged_q() {
    q = {data, DType::f32, {4, 5, 8}};
    o = {written, DType::f32, {4, 5, 8}};
    options.q_offsets = {q_places, DType::i32, {3}};
  }
  void make_ragged_kv() {
    k = v = {data, DType::f32, {2, 6, 8}};
    options.kv_offsets = {kv_places, DType::i32, {3}};
  }
  void make_paged() {
    k = v = {data, DType::f32, {2, 2, 3, 8}};
    options.pages = {table, DType::i32, {2, 2}};
    options.mask.lengths = {lengths, DType::i32, {2}};
  }
};

void expect_refused(const std::function<void(Call&)>& spoil, std::string_view text) {
  Call call;
  spoil(call);
  const Status status = call.run();
  EXPECT_EQ(status.code(), Code::invalid_argument) << text;
  EXPECT_NE(status.message().find(text), std::string::npos)
      << "'" << status.message() << "' does not say '" << text << "'";
  for (const float each : call.written) ASSERT_EQ(each, 7.0F) << text;
}

TEST(BadAttentionTest, WhatIsRightIsTaken) {
  const std::function<void(Call&)> ways[] = {[](Call&) {}, [](Call& c) { c.make_ragged_q(); },
                                             [](Call& c) { c.make_ragged_kv(); },
                                             [](Call& c) { c.make_paged(); }};
  for (const auto& way : ways) {
    Call call;
    way(call);
    const Status status = call.run();
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(BadAttentionTest, Shapes) {
  expect_refused([](Call& c) { c.q = {}; }, "q: is missing");
  expect_refused([](Call& c) { c.q.rank = 3; }, "q: shape [2, 4, 5] has 3 dimensions");
  expect_refused(
      [](Call& c) {
        c.k = {c.data, DType::f32, {2, 3, 6, 8}};
        c.v = c.k;
      },
      "k: 3 heads do not divide the 4 of q");
  expect_refused(
      [](Call& c) {
        c.k = {c.data, DType::f32, {2, 0, 6, 8}};
        c.v = c.k;
      },
      "k: 0 heads do not divide the 4 of q");
  expect_refused(
      [](Call& c) {
        c.k = {c.data, DType::f32, {3, 2, 6, 8}};
        c.v = c.k;
      },
      "k: batch 3 is not that of q, 2");
  expect_refused(
      [](Call& c) {
        c.k = {c.data, DType::f32, {2, 2, 6, 16}};
      },
      "k: shape [2, 2, 6, 16] has another dim than the 8 of q");
  expect_refused(
      [](Call& c) {
        c.v = {c.data, DType::f32, {2, 2, 5, 8}};
      },
      "v: shape [2, 2, 5, 8] is not that of k but for the last, [2, 2, 6, 8]");
  expect_refused(
      [](Call& c) {
        c.v = {c.data, DType::f32, {2, 2, 6, 20}};
      },
      "v: dim 20 is not a multiple of 8 from 8 to 512");
  expect_refused(
      [](Call& c) {
        c.v = {c.data, DType::f32, {2, 2, 6, 16}};
      },
      "o: shape [2, 4, 5, 8] is not that of q, [2, 4, 5, 8], with the dim of v, 16");
  expect_refused(
      [](Call& c) {
        c.o = {c.written, DType::f32, {2, 4, 4, 8}};
      },
      "o: shape [2, 4, 4, 8] is not that of q");
  for (const std::int64_t dim : {0, 4, 12, 520}) {
    expect_refused(
        [dim](Call& c) {
          c.q = {c.data, DType::f32, {1, 1, 1, dim}};
          c.k = c.v = c.q;
        },
        "q: dim " + std::to_string(dim) + " is not a multiple of 8 from 8 to 512");
  }
}

TEST(BadAttentionTest, StridesAndOverlaps) {
  expect_refused(
      [](Call& c) {
        c.k = {c.data, DType::f32, {2, 2, 6, 8}, {192, 96, 16, 2}};
      },
      "k: stride 2 of the last dimension is not 1");
  expect_refused([](Call& c) { c.o.strides[2] = 0; }, "o: stride 0");
  expect_refused([](Call& c) { c.o.data = c.data; }, "o: overlaps q");
  expect_refused(
      [](Call& c) {
        c.options.lse = {c.written, DType::f32, {2, 4, 5}};
      },
      "lse: overlaps o");
}

TEST(BadAttentionTest, DTypes) {
  expect_refused([](Call& c) { c.q.dtype = DType::u8; }, "q: dtype u8");
  expect_refused([](Call& c) { c.q.dtype = DType::f64; }, "k: dtype f32 is not that of q, f64");
  expect_refused([](Call& c) { c.v.dtype = DType::bf16; }, "v: dtype bf16 is not that of q, f32");
  expect_refused([](Call& c) { c.o.dtype = DType::i32; }, "o: dtype i32");
  expect_refused(
      [](Call& c) {
        c.options.lse = {c.written + 2000, DType::f16, {2, 4, 5}};
      },
      "lse: dtype f16 is not f32 or f64");
  expect_refused(
      [](Call& c) {
        c.options.lse = {c.written + 2000, DType::f32, {2, 4}};
      },
      "lse: shape [2, 4] is not that of q without the last, [2, 4, 5]");
}

TEST(BadAttentionTest, Numbers) {
  expect_refused([](Call& c) { c.options.softcap = -1; }, "softcap: -1");
  expect_refused([](Call& c) { c.options.softcap = kNan; }, "softcap: nan");
  expect_refused([](Call& c) { c.options.scale = kNan; }, "scale: nan");
  expect_refused([](Call& c) { c.options.scale = 1e300; }, "scale: 1e+300");
  expect_refused([](Call& c) { c.options.softcap = 1e-50; }, "softcap: 1e-50");
  expect_refused([](Call& c) { c.options.mask.window_left = -2; }, "mask.window_left: -2");
  expect_refused([](Call& c) { c.options.mask.window_right = -9; }, "mask.window_right: -9");
  expect_refused([](Call& c) { c.options.split = -1; }, "split: -1 is negative");
  expect_refused([](Call& c) { c.options.variant = "flash"; }, "variant: attention has no 'flash'");
}

TEST(BadAttentionTest, MasksAndHeads) {
  expect_refused(
      [](Call& c) {
        c.options.mask.additive = {c.data, DType::f32, {5, 7}};
      },
      "mask.additive: shape [5, 7] does not broadcast");
  expect_refused(
      [](Call& c) {
        c.options.mask.additive = {c.data, DType::u8, {5, 6}};
      },
      "mask.additive: dtype u8");
  expect_refused(
      [](Call& c) {
        c.options.mask.boolean = {c.data, DType::f32, {5, 6}};
      },
      "mask.boolean: dtype f32 is not u8");
  expect_refused(
      [](Call& c) {
        c.options.alibi = {c.data, DType::f32, {3}};
      },
      "alibi: shape [3] is not one value for each of 4 heads");
  expect_refused([](Call& c) { c.options.sinks = {c.data, DType::i32, {4}}; }, "sinks: dtype i32");
  expect_refused(
      [](Call& c) {
        c.options.sinks = {c.data, DType::f32, {2, 4}};
      },
      "sinks: shape [2, 4]");
}

TEST(BadAttentionTest, Offsets) {
  expect_refused(
      [](Call& c) {
        c.options.q_offsets = {c.q_places, DType::i32, {3}};
      },
      "q: shape [2, 4, 5, 8] has 4 dimensions, not the 3 of heads, tokens, dim");
  expect_refused(
      [](Call& c) {
        c.make_ragged_q();
        c.options.q_offsets.dtype = DType::f32;
      },
      "q_offsets: dtype f32 is not i32 or i64");
  expect_refused(
      [](Call& c) {
        c.make_ragged_q();
        c.q_places[0] = 1;
      },
      "q_offsets: 1 at 0 is not 0");
  expect_refused(
      [](Call& c) {
        c.make_ragged_q();
        c.q_places[1] = 6;
      },
      "q_offsets: 6 at 1 is past the 5 tokens");
  expect_refused(
      [](Call& c) {
        c.make_ragged_q();
        c.q_places[2] = 1;
      },
      "q_offsets: 1 at 2 is less than the 2 before it");
  expect_refused(
      [](Call& c) {
        c.make_ragged_kv();
        c.options.kv_offsets.shape[0] = 2;
      },
      "kv_offsets: shape [2] is not [3]");
  expect_refused(
      [](Call& c) {
        c.make_ragged_kv();
        c.kv_places[2] = 7;
      },
      "kv_offsets: 7 at 2 is past the 6 tokens");
}

TEST(BadAttentionTest, Lengths) {
  const auto with_lengths = [](Call& c) { c.options.mask.lengths = {c.lengths, DType::i32, {2}}; };
  expect_refused(
      [=](Call& c) {
        with_lengths(c);
        c.lengths[1] = 7;
      },
      "mask.lengths: 7 at 1 is not between 0 and 6");
  expect_refused(
      [=](Call& c) {
        with_lengths(c);
        c.lengths[0] = -1;
      },
      "mask.lengths: -1 at 0 is not between 0 and 6");
  expect_refused(
      [=](Call& c) {
        with_lengths(c);
        c.options.mask.lengths.shape[0] = 1;
      },
      "mask.lengths: shape [1] is not [2]");
  expect_refused(
      [=](Call& c) {
        with_lengths(c);
        c.options.mask.lengths.dtype = DType::u8;
      },
      "mask.lengths: dtype u8");
}

TEST(BadAttentionTest, Pages) {
  expect_refused(
      [](Call& c) {
        c.make_paged();
        c.options.mask.lengths = {};
      },
      "mask.lengths: are missing");
  expect_refused(
      [](Call& c) {
        c.make_paged();
        c.options.pages.dtype = DType::i64;
      },
      "pages: dtype i64 is not i32");
  expect_refused(
      [](Call& c) {
        c.make_paged();
        c.options.pages.shape[0] = 1;
      },
      "pages: shape [1, 2] is not [2, most pages of a sequence]");
  expect_refused(
      [](Call& c) {
        c.make_paged();
        c.table[1] = 2;
      },
      "pages: 2 at [0, 1] is not one of the 2 pages of k");
  expect_refused(
      [](Call& c) {
        c.make_paged();
        c.table[2] = -1;
      },
      "pages: -1 at [1, 0] is not one of the 2 pages of k");
  expect_refused(
      [](Call& c) {
        c.make_paged();
        c.k = c.v = {c.data, DType::f32, {2, 6, 8}};
        c.options.kv_offsets = {c.kv_places, DType::i32, {3}};
      },
      "kv_offsets: are of keys side by side");
}

}  // namespace
}  // namespace onepass
