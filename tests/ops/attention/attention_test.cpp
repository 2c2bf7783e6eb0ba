// attention by its contract: what is hidden, what is empty, what NaN may touch, that parts merge to
// the whole, and that bits repeat. Values against the oracle: the lines of
// workloads/test_attention.txt, in verify_test.cpp.
#include "onepass/attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "dispatch/variant.hpp"
#include "tests/support/values.hpp"

namespace onepass {
namespace {

using namespace test;

std::vector<double> normal(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> distribution;
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = distribution(random);
  return values;
}

struct Attention {
  Attention(std::int64_t batch, std::int64_t heads, std::int64_t queries, std::int64_t keys,
            std::int64_t dim, DType dtype = DType::f32)
      : q(dtype, {batch, heads, queries, dim}, normal(batch * heads * queries * dim, 1)),
        k(dtype, {batch, heads, keys, dim}, normal(batch * heads * keys * dim, 2)),
        v(dtype, {batch, heads, keys, dim}, normal(batch * heads * keys * dim, 3)),
        o(DType::f32, {batch, heads, queries, dim}),
        lse(DType::f32, {batch, heads, queries}) {}

  void run(AttentionOptions options = {}, int threads = 2) {
    options.lse = lse.tensor();
    const Status status =
        attention(Context::cpu(threads), q.tensor(), k.tensor(), v.tensor(), o.tensor(), options);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  Values q, k, v, o, lse;
};

void for_each_variant(const std::function<void(std::string_view)>& body) {
  for_each_isa([&] {
    for (const Variant& v : variants(Op::attention)) {
      if (v.device != Device::cpu) continue;
      SCOPED_TRACE(std::string(v.name));
      body(v.name);
    }
  });
}

void expect_all(const Values& values, double expected) {
  for (std::int64_t i = 0; i < values.size(); ++i) ASSERT_EQ(values.get(i), expected) << i;
}

TEST(AttentionTest, NoKeysGiveZerosAndMinusInfinity) {
  for_each_variant([](std::string_view variant) {
    Attention a(2, 3, 5, 0, 16);
    a.run({.variant = variant});
    expect_all(a.o, 0);
    expect_all(a.lse, -kInf);
  });
}

TEST(AttentionTest, FullyMaskedRowsGiveZerosAndMinusInfinity) {
  const Values nothing(DType::u8, {1, 9}, std::vector<double>(9, 0));
  const Values hidden(DType::f32, {1, 9}, std::vector<double>(9, -kInf));
  const Values none(DType::i32, {2}, {0, 0});
  for_each_variant([&](std::string_view variant) {
    for (const Mask& mask :
         {boolean(nothing.tensor()), additive(hidden.tensor()), lengths(none.tensor())}) {
      Attention a(2, 2, 5, 9, 16);
      a.run({.mask = mask, .variant = variant});
      expect_all(a.o, 0);
      expect_all(a.lse, -kInf);
    }
  });
}

// More queries than keys: the first ones stand before the first key.
TEST(AttentionTest, QueriesBeforeTheFirstKeySeeNothing) {
  for_each_variant([](std::string_view variant) {
    Attention a(1, 1, 70, 3, 8);
    a.run({.mask = causal(), .variant = variant});
    for (std::int64_t q = 0; q < 67; ++q) {
      EXPECT_EQ(a.lse.get(q), -kInf) << q;
      for (std::int64_t j = 0; j < 8; ++j) EXPECT_EQ(a.o.get(q * 8 + j), 0) << q;
    }
    for (std::int64_t j = 0; j < 8; ++j) EXPECT_EQ(a.o.get(67 * 8 + j), a.v.get(j));
  });
}

TEST(AttentionTest, ASinkAloneIsTheLse) {
  const Values sinks(DType::f32, {2}, {0.5, -3});
  for_each_variant([&](std::string_view variant) {
    Attention a(1, 2, 3, 0, 8);
    a.run({.sinks = sinks.tensor(), .variant = variant});
    expect_all(a.o, 0);
    for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(a.lse.get(i), i < 3 ? 0.5 : -3);
  });
}

bool row_is_nan(const Values& o, std::int64_t row, std::int64_t dim) {
  bool all = true;
  for (std::int64_t j = 0; j < dim; ++j) all = all && std::isnan(o.get(row * dim + j));
  return all;
}

bool row_has_nan(const Values& o, std::int64_t row, std::int64_t dim) {
  bool any = false;
  for (std::int64_t j = 0; j < dim; ++j) any = any || std::isnan(o.get(row * dim + j));
  return any;
}

TEST(AttentionTest, ANaNOfAQueryStaysInIt) {
  for_each_variant([](std::string_view variant) {
    Attention a(1, 2, 70, 100, 16);
    a.q.set(37 * 16 + 5, kNan);
    a.run({.variant = variant});
    for (std::int64_t row = 0; row < 140; ++row) {
      EXPECT_EQ(row_is_nan(a.o, row, 16), row == 37) << row;
      EXPECT_EQ(row_has_nan(a.o, row, 16), row == 37) << row;
      EXPECT_EQ(std::isnan(a.lse.get(row)), row == 37) << row;
    }
  });
}

TEST(AttentionTest, ANaNOfAKeyOrAValueReachesOnlyWhoSeesIt) {
  for (const bool in_value : {false, true}) {
    for (const double poison : {kNan, kInf}) {
      for_each_variant([&](std::string_view variant) {
        Attention a(1, 1, 130, 130, 16);
        (in_value ? a.v : a.k).set(70 * 16 + 3, poison);
        a.run({.mask = causal(), .variant = variant});
        for (std::int64_t row = 0; row < 130; ++row) {
          bool finite = true;
          for (std::int64_t j = 0; j < 16; ++j) {
            finite = finite && std::isfinite(a.o.get(row * 16 + j));
          }
          // A score of inf is NaN in o; a large one that is −inf weighs nothing.
          if (in_value || std::isnan(poison) || row < 70) {
            EXPECT_EQ(finite, row < 70) << row;
          }
        }
      });
    }
  }
}

TEST(AttentionTest, HiddenValuesMayBeAnything) {
  std::vector<double> keep(33, 1);
  keep[7] = keep[20] = 0;
  const Values mask(DType::u8, {1, 33}, keep);
  const Values length(DType::i64, {1}, {30});
  for_each_variant([&](std::string_view variant) {
    Attention a(1, 2, 5, 33, 24);
    a.run({.mask = boolean(mask.tensor()) & lengths(length.tensor()), .variant = variant});
    Attention poisoned = a;
    for (std::int64_t head = 0; head < 2; ++head) {
      for (const std::int64_t t : {7, 20, 30, 32}) {
        for (std::int64_t j = 0; j < 24; ++j) {
          poisoned.k.set((head * 33 + t) * 24 + j, kNan);
          poisoned.v.set((head * 33 + t) * 24 + j, kInf);
        }
      }
    }
    poisoned.run({.mask = boolean(mask.tensor()) & lengths(length.tensor()), .variant = variant});
    for (std::int64_t i = 0; i < a.o.size(); ++i) EXPECT_NEAR(a.o.get(i), poisoned.o.get(i), 1e-6);
    for (std::int64_t i = 0; i < a.lse.size(); ++i) EXPECT_EQ(a.lse.get(i), poisoned.lse.get(i));
  });
}

// The keys from `first` to `end` of a call.
Tensor some_keys(Values& all, std::int64_t first, std::int64_t end) {
  Tensor t = all.tensor();
  t.data = static_cast<float*>(t.data) + first * t.strides[2];
  t.shape[2] = end - first;
  return t;
}

TEST(MergeAttentionTest, HalvesMakeTheWhole) {
  for (const std::int64_t cut : {0, 1, 50, 99, 100}) {
    Attention whole(2, 3, 17, 100, 32);
    whole.run();
    Attention first = whole, second = whole;
    const Context context = Context::cpu();
    ASSERT_TRUE(attention(context, whole.q.tensor(), some_keys(whole.k, 0, cut),
                          some_keys(whole.v, 0, cut), first.o.tensor(), {.lse = first.lse.tensor()})
                    .ok());
    ASSERT_TRUE(attention(context, whole.q.tensor(), some_keys(whole.k, cut, 100),
                          some_keys(whole.v, cut, 100), second.o.tensor(),
                          {.lse = second.lse.tensor()})
                    .ok());
    // Over the first half's own.
    const Status status =
        merge_attention(context, first.o.tensor(), first.lse.tensor(), second.o.tensor(),
                        second.lse.tensor(), first.o.tensor(), first.lse.tensor());
    ASSERT_TRUE(status.ok()) << status.message();
    for (std::int64_t i = 0; i < whole.o.size(); ++i) {
      ASSERT_NEAR(first.o.get(i), whole.o.get(i), 2e-6) << cut;
    }
    for (std::int64_t i = 0; i < whole.lse.size(); ++i) {
      ASSERT_NEAR(first.lse.get(i), whole.lse.get(i), 2e-6) << cut;
    }
  }
}

TEST(MergeAttentionTest, NothingAndNothingIsNothing) {
  Values o(DType::f32, {3, 8}), lse(DType::f64, {3});
  const Values zero(DType::f16, {3, 8}, std::vector<double>(24, 0));
  const Values none(DType::f32, {3}, std::vector<double>(3, -kInf));
  ASSERT_TRUE(merge_attention(Context::cpu(), zero.tensor(), none.tensor(), zero.tensor(),
                              none.tensor(), o.tensor(), lse.tensor())
                  .ok());
  expect_all(o, 0);
  expect_all(lse, -kInf);
}

TEST(MergeAttentionTest, BadInput) {
  Values o(DType::f32, {3, 8}), lse(DType::f32, {3});
  const Values a(DType::f32, {3, 8}, normal(24, 1)), other(DType::f32, {3, 16}, normal(48, 1));
  const Values l(DType::f32, {3}, {1, 2, 3}), short_l(DType::f32, {2}, {1, 2});
  const auto merge = [&](const Values& b, const Values& lse_b, Tensor to) {
    return merge_attention(Context::cpu(), a.tensor(), l.tensor(), b.tensor(), lse_b.tensor(), to,
                           lse.tensor());
  };
  EXPECT_TRUE(merge(a, l, o.tensor()).ok());
  EXPECT_NE(merge(other, l, o.tensor()).message().find("b: shape [3, 16]"), std::string::npos);
  EXPECT_NE(merge(a, short_l, o.tensor()).message().find("lse_b: shape [2]"), std::string::npos);
  EXPECT_FALSE(merge(a, l, {}).ok());
}

TEST(AttentionTest, TheSameBitsEveryRun) {
  for (const AttentionOptions& options :
       {AttentionOptions{}, AttentionOptions{.mask = causal()}, AttentionOptions{.split = 64}}) {
    Attention a(2, 4, 33, 500, 64, DType::bf16);
    a.run(options);
    const Values o = a.o, lse = a.lse;
    for (int i = 0; i < 20; ++i) {
      a.run(options);
      ASSERT_EQ(a.o, o);
      ASSERT_EQ(a.lse, lse);
    }
  }
}

// A batch of two holds the first sequence's bits, whatever the threads: with parts of
// keys, and without.
TEST(AttentionTest, BatchInvariantBitsAreASequencesOwn) {
  for (const std::int64_t queries : {1, 100}) {
    Attention both(2, 2, queries, 3000, 64);
    Attention alone(1, 2, queries, 3000, 64);  // the same seeds: the first half of the same numbers
    both.run({.batch_invariant = true}, 2);
    alone.run({.batch_invariant = true}, 1);
    for (std::int64_t i = 0; i < alone.o.size(); ++i) ASSERT_EQ(alone.o.get(i), both.o.get(i));
    for (std::int64_t i = 0; i < alone.lse.size(); ++i)
      ASSERT_EQ(alone.lse.get(i), both.lse.get(i));
  }
}

// A row's bits do not depend on who shares its tile.
TEST(AttentionTest, AQuerysBitsAreItsOwnUnderAWindow) {
  Attention many(1, 1, 200, 200, 64);
  many.run({.mask = window(30, 0)}, 1);
  Attention few(1, 1, 200, 200, 64);
  Tensor q = few.q.tensor(), o = few.o.tensor();
  for (Tensor* t : {&q, &o}) {
    t->data = static_cast<float*>(t->data) + 150 * 64;
    t->shape[2] = 50;
  }
  ASSERT_TRUE(
      attention(Context::cpu(1), q, few.k.tensor(), few.v.tensor(), o, {.mask = window(30, 0)})
          .ok());
  for (std::int64_t i = 150 * 64; i < 200 * 64; ++i) ASSERT_EQ(few.o.get(i), many.o.get(i));
}

TEST(AttentionTest, PagesAreTheSameKeys) {
  for (const std::int64_t page : {1, 3, 16, 64}) {
    constexpr std::int64_t keys = 50, heads = 2, dim = 16;
    Attention dense(1, heads, 4, keys, dim);
    dense.run();
    const std::int64_t pages = (keys + page - 1) / page;
    Values k(DType::f32, {pages + 2, heads, page, dim}), v = k, table(DType::i32, {1, pages});
    const Values length(DType::i32, {1}, {keys});
    for (std::int64_t t = 0; t < keys; ++t) {
      const std::int64_t at = pages + 1 - t / page;  // backwards, and not page 0
      table.set(t / page, static_cast<double>(at));
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t j = 0; j < dim; ++j) {
          const std::int64_t to = ((at * heads + h) * page + t % page) * dim + j;
          k.set(to, dense.k.get((h * keys + t) * dim + j));
          v.set(to, dense.v.get((h * keys + t) * dim + j));
        }
      }
    }
    Values o = dense.o;
    const Status status =
        attention(Context::cpu(), dense.q.tensor(), k.tensor(), v.tensor(), o.tensor(),
                  {.mask = lengths(length.tensor()), .pages = table.tensor()});
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(o, dense.o);
  }
}

TEST(AttentionTest, ThePlanIsToldAndAVariantCanBeForced) {
  Attention a(1, 2, 9, 9, 8);
  Plan plan;
  a.run({.plan = &plan});
  EXPECT_EQ(plan.variant, "cpu_flash");
  a.run({.variant = "cpu_naive", .plan = &plan});
  EXPECT_EQ(plan.variant, "cpu_naive");
}

}  // namespace
}  // namespace onepass
