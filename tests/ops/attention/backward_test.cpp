// attention_backward by its contract: slopes of the forward, what is hidden, what NaN may touch,
// and that bits repeat, whatever the threads. Values against the oracle: the lines of
// workloads/test_attention_backward.txt, in verify_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "dispatch/variant.hpp"
#include "onepass/attention.hpp"
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

struct Size {
  std::int64_t batch = 1, heads = 2, kv_heads = 2, queries = 5, keys = 7, dim = 8, dim_v = 8;
};

struct Training {
  explicit Training(const Size& s, DType dtype = DType::f32)
      : q(dtype, {s.batch, s.heads, s.queries, s.dim}, normal(count(s, s.dim), 1)),
        k(dtype, {s.batch, s.kv_heads, s.keys, s.dim}, normal(key_count(s, s.dim), 2)),
        v(dtype, {s.batch, s.kv_heads, s.keys, s.dim_v}, normal(key_count(s, s.dim_v), 3)),
        o(dtype, {s.batch, s.heads, s.queries, s.dim_v}),
        d_o(dtype, {s.batch, s.heads, s.queries, s.dim_v}, normal(count(s, s.dim_v), 4)),
        lse(wide(dtype), {s.batch, s.heads, s.queries}),
        d_lse(wide(dtype), {s.batch, s.heads, s.queries}, normal(count(s, 1), 5)),
        d_q(dtype, {s.batch, s.heads, s.queries, s.dim}),
        d_k(dtype, {s.batch, s.kv_heads, s.keys, s.dim}),
        d_v(dtype, {s.batch, s.kv_heads, s.keys, s.dim_v}) {}

  static DType wide(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }
  static std::int64_t count(const Size& s, std::int64_t dim) {
    return s.batch * s.heads * s.queries * dim;
  }
  static std::int64_t key_count(const Size& s, std::int64_t dim) {
    return s.batch * s.kv_heads * s.keys * dim;
  }

  void run_forward(const AttentionBackwardOptions& options) {
    const Status status = attention(Context::cpu(), q.tensor(), k.tensor(), v.tensor(), o.tensor(),
                                    {.scale = options.scale,
                                     .softcap = options.softcap,
                                     .mask = options.mask,
                                     .alibi = options.alibi,
                                     .sinks = options.sinks,
                                     .q_offsets = options.q_offsets,
                                     .kv_offsets = options.kv_offsets,
                                     .lse = lse.tensor()});
    ASSERT_TRUE(status.ok()) << status.message();
  }

  void run_backward(const AttentionBackwardOptions& options, int threads = 2) {
    const Status status = attention_backward(Context::cpu(threads), q.tensor(), k.tensor(),
                                             v.tensor(), o.tensor(), lse.tensor(), d_o.tensor(),
                                             d_q.tensor(), d_k.tensor(), d_v.tensor(), options);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  void run(const AttentionBackwardOptions& options = {}, int threads = 2) {
    run_forward(options);
    run_backward(options, threads);
  }

  Values q, k, v, o, d_o, lse, d_lse, d_q, d_k, d_v;
};

void for_each_variant(const std::function<void(std::string_view)>& body) {
  for_each_isa([&] {
    for (const Variant& v : variants(Op::attention_backward)) {
      if (v.device != Device::cpu) continue;
      SCOPED_TRACE(std::string(v.name));
      body(v.name);
    }
  });
}

void expect_all(const Values& values, double expected) {
  for (std::int64_t i = 0; i < values.size(); ++i) ASSERT_EQ(values.get(i), expected) << i;
}

// Σ do · o + Σ dlse · lse, which the gradients are of.
double loss(Training& t, const AttentionBackwardOptions& options) {
  t.run_forward(options);
  double sum = 0;
  for (std::int64_t i = 0; i < t.o.size(); ++i) sum += t.o.get(i) * t.d_o.get(i);
  for (std::int64_t i = 0; i < t.lse.size(); ++i) sum += t.lse.get(i) * t.d_lse.get(i);
  return sum;
}

// By differences of the forward in float64, for a few elements of an input.
void expect_slopes(Training& t, const AttentionBackwardOptions& options, Values& x,
                   const Values& gradient) {
  constexpr double step = 1e-6;
  for (std::int64_t i = 0; i < x.size(); i += 1 + x.size() / 17) {
    const double before = x.get(i);
    x.set(i, before + step);
    const double above = loss(t, options);
    x.set(i, before - step);
    const double below = loss(t, options);
    x.set(i, before);
    EXPECT_NEAR(gradient.get(i), (above - below) / (2 * step), 2e-8) << i;
  }
}

TEST(AttentionBackwardTest, GradientsAreTheSlopesOfTheForward) {
  constexpr Size size{.batch = 2, .heads = 4, .kv_heads = 2, .queries = 9, .keys = 70, .dim_v = 16};
  Values sinks(DType::f64, {4}, normal(4, 6)), additive(DType::f64, {4, 9, 1}, normal(36, 7));
  const Values alibi(DType::f64, {4}, {0.5, 0.25, 0.125, 0.1});
  Mask mask = causal();
  mask.additive = additive.tensor();
  mask.window_left = 60;
  for_each_variant([&](std::string_view variant) {
    Training t(size, DType::f64);
    Values d_sinks(DType::f64, {4}), d_additive(DType::f64, {4, 9, 1});
    const AttentionBackwardOptions options{.scale = -0.4,
                                           .softcap = 3,
                                           .mask = mask,
                                           .alibi = alibi.tensor(),
                                           .sinks = sinks.tensor(),
                                           .d_lse = t.d_lse.tensor(),
                                           .d_sinks = d_sinks.tensor(),
                                           .d_additive = d_additive.tensor(),
                                           .variant = variant};
    t.run(options);
    expect_slopes(t, options, t.q, t.d_q);
    expect_slopes(t, options, t.k, t.d_k);
    expect_slopes(t, options, t.v, t.d_v);
    expect_slopes(t, options, sinks, d_sinks);
    expect_slopes(t, options, additive, d_additive);
  });
}

// Several tiles of keys add to the gradients of the queries, and rows of several heads to those of
// the keys.
TEST(AttentionBackwardTest, NoBitDependsOnTheThreadsOrTheRun) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (const Mask& mask : {Mask(), causal(), window(100, 7)}) {
      for_each_variant([&](std::string_view variant) {
        Training one({.heads = 4, .kv_heads = 1, .queries = 200, .keys = 300}, dtype);
        one.run({.mask = mask, .variant = variant}, 1);
        Training other = one;
        for (const int threads : {2, 3, 7, 2}) {
          other.run_backward({.mask = mask, .variant = variant}, threads);
          ASSERT_EQ(other.d_q, one.d_q) << threads;
          ASSERT_EQ(other.d_k, one.d_k) << threads;
          ASSERT_EQ(other.d_v, one.d_v) << threads;
        }
      });
    }
  }
}

// The tiles of keys are larger where there are more of them.
TEST(AttentionBackwardTest, NoBitDependsOnTheRestOfTheBatch) {
  for_each_variant([](std::string_view variant) {
    Plan plan_of_both, plan_alone;
    Training both({.batch = 2, .heads = 1, .kv_heads = 1, .queries = 70, .keys = 9000});
    both.run({.mask = causal(), .variant = variant, .plan = &plan_of_both});
    Training alone({.batch = 1, .heads = 1, .kv_heads = 1, .queries = 70, .keys = 9000});
    alone.run({.mask = causal(), .variant = variant, .plan = &plan_alone});
    EXPECT_EQ(plan_of_both.details != plan_alone.details, variant == "cpu_flash");
    for (std::int64_t i = 0; i < alone.d_q.size(); ++i) {
      ASSERT_EQ(alone.d_q.get(i), both.d_q.get(i));
    }
    for (std::int64_t i = 0; i < alone.d_k.size(); ++i) {
      ASSERT_EQ(alone.d_k.get(i), both.d_k.get(i));
      ASSERT_EQ(alone.d_v.get(i), both.d_v.get(i));
    }
  });
}

TEST(AttentionBackwardTest, ThePlanHasSoManyThreads) {
  Training t({.heads = 4, .kv_heads = 4, .queries = 200, .keys = 300});
  Plan plan;
  t.run({.plan = &plan}, 3);
  EXPECT_EQ(plan.variant, "cpu_flash");
  EXPECT_EQ(plan.threads, 3);
  EXPECT_NE(plan.details.find("workspace="), std::string::npos);
  t.run({.variant = "cpu_naive", .plan = &plan}, 3);
  EXPECT_EQ(plan.variant, "cpu_naive");
}

TEST(AttentionBackwardTest, FullyMaskedRowsHaveNoGradient) {
  const Values nothing(DType::u8, {1, 9}, std::vector<double>(9, 0));
  const Values hidden(DType::f32, {1, 9}, std::vector<double>(9, -kInf));
  const Values none(DType::i32, {2}, {0, 0});
  for_each_variant([&](std::string_view variant) {
    for (const Mask& mask :
         {boolean(nothing.tensor()), additive(hidden.tensor()), lengths(none.tensor())}) {
      Training t({.batch = 2, .keys = 9});
      t.run({.mask = mask, .d_lse = t.d_lse.tensor(), .variant = variant});
      expect_all(t.d_q, 0);
      expect_all(t.d_k, 0);
      expect_all(t.d_v, 0);
    }
  });
}

TEST(AttentionBackwardTest, WithoutQueriesKeysHaveNoGradient) {
  for_each_variant([](std::string_view variant) {
    Training t({.batch = 2, .queries = 0});
    t.run({.variant = variant});
    expect_all(t.d_k, 0);
    expect_all(t.d_v, 0);
    Training no_keys({.batch = 2, .keys = 0});
    no_keys.run({.variant = variant});
    expect_all(no_keys.d_q, 0);
  });
}

// Tokens past the last sequence, and keys past a length.
TEST(AttentionBackwardTest, TokensOfNoSequenceHaveNoGradient) {
  const Values q_offsets(DType::i32, {3}, {0, 2, 5}), kv_offsets(DType::i64, {3}, {0, 3, 8});
  const Values length(DType::i32, {2}, {2, 5});
  for_each_variant([&](std::string_view variant) {
    Training all({.queries = 7, .keys = 11});
    const auto packed = [](Values& x) {
      Tensor t = x.tensor();
      return Tensor(t.data, t.dtype, {t.shape[1], t.shape[2], t.shape[3]});
    };
    Tensor lse = all.lse.tensor();
    lse = Tensor(lse.data, lse.dtype, {lse.shape[1], lse.shape[2]});
    const AttentionBackwardOptions options{.mask = lengths(length.tensor()),
                                           .q_offsets = q_offsets.tensor(),
                                           .kv_offsets = kv_offsets.tensor(),
                                           .variant = variant};
    ASSERT_TRUE(attention(Context::cpu(), packed(all.q), packed(all.k), packed(all.v),
                          packed(all.o),
                          {.mask = options.mask,
                           .q_offsets = options.q_offsets,
                           .kv_offsets = options.kv_offsets,
                           .lse = lse})
                    .ok());
    const Status status = attention_backward(
        Context::cpu(), packed(all.q), packed(all.k), packed(all.v), packed(all.o), lse,
        packed(all.d_o), packed(all.d_q), packed(all.d_k), packed(all.d_v), options);
    ASSERT_TRUE(status.ok()) << status.message();
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t t = 0; t < 7; ++t) {
        EXPECT_EQ(all.d_q.get((h * 7 + t) * 8) == 0, t >= 5) << t;
      }
      for (std::int64_t t = 0; t < 11; ++t) {
        EXPECT_EQ(all.d_k.get((h * 11 + t) * 8) == 0, t == 2 || t >= 8) << t;
        EXPECT_EQ(all.d_v.get((h * 11 + t) * 8) == 0, t == 2 || t >= 8) << t;
      }
    }
  });
}

TEST(AttentionBackwardTest, SharedHeadsSumTheirGradients) {
  for_each_variant([](std::string_view variant) {
    Training shared({.heads = 3, .kv_heads = 1, .queries = 70, .keys = 90}, DType::f64);
    Training apart({.heads = 3, .kv_heads = 3, .queries = 70, .keys = 90}, DType::f64);
    for (std::int64_t i = 0; i < apart.k.size(); ++i) {
      apart.k.set(i, shared.k.get(i % shared.k.size()));
      apart.v.set(i, shared.v.get(i % shared.v.size()));
    }
    shared.run({.variant = variant});
    apart.run({.variant = variant});
    for (std::int64_t i = 0; i < shared.d_k.size(); ++i) {
      const std::int64_t size = shared.d_k.size();
      const auto sum = [&](const Values& x) {
        return x.get(i) + x.get(i + size) + x.get(i + 2 * size);
      };
      ASSERT_NEAR(shared.d_k.get(i), sum(apart.d_k), 1e-12);
      ASSERT_NEAR(shared.d_v.get(i), sum(apart.d_v), 1e-12);
    }
  });
}

TEST(AttentionBackwardTest, AccumulateAddsToWhatIsThere) {
  for_each_variant([](std::string_view variant) {
    Training once({.queries = 70, .keys = 90});
    once.run({.variant = variant});
    Training twice = once;
    twice.run_backward({.accumulate = true, .variant = variant});
    for (std::int64_t i = 0; i < once.d_q.size(); ++i) {
      ASSERT_EQ(twice.d_q.get(i), 2 * once.d_q.get(i));
    }
    for (std::int64_t i = 0; i < once.d_k.size(); ++i) {
      ASSERT_EQ(twice.d_k.get(i), 2 * once.d_k.get(i));
      ASSERT_EQ(twice.d_v.get(i), 2 * once.d_v.get(i));
    }
  });
}

bool row_is_nan(const Values& x, std::int64_t row, bool all) {
  for (std::int64_t j = 0; j < 8; ++j) {
    if (std::isnan(x.get(row * 8 + j)) != all) return !all;
  }
  return all;
}

TEST(AttentionBackwardTest, ANaNReachesWhatSeesIt) {
  for_each_variant([](std::string_view variant) {
    // Query 30 sees keys up to 30, and makes their gradients NaN.
    Training of_query({.heads = 1, .kv_heads = 1, .queries = 90, .keys = 90});
    of_query.q.set(30 * 8 + 3, kNan);
    of_query.run({.mask = causal(), .variant = variant});
    // Queries from 30 on see key 30, and keys up to the last are seen by one of them.
    Training of_key({.heads = 1, .kv_heads = 1, .queries = 90, .keys = 90});
    of_key.k.set(30 * 8 + 3, kNan);
    of_key.run({.mask = causal(), .variant = variant});
    for (std::int64_t t = 0; t < 90; ++t) {
      for (const bool all : {false, true}) {
        EXPECT_EQ(row_is_nan(of_query.d_q, t, all), t == 30) << t;
        EXPECT_EQ(row_is_nan(of_query.d_k, t, all), t <= 30) << t;
        EXPECT_EQ(row_is_nan(of_query.d_v, t, all), t <= 30) << t;
        EXPECT_EQ(row_is_nan(of_key.d_q, t, all), t >= 30) << t;
      }
    }
  });
}

TEST(AttentionBackwardTest, HiddenKeysAndValuesMayBeAnything) {
  std::vector<double> keep(33, 1);
  keep[7] = keep[20] = 0;
  const Values mask(DType::u8, {1, 33}, keep);
  const Values length(DType::i64, {1}, {30});
  const Mask hides = boolean(mask.tensor()) & lengths(length.tensor());
  for_each_variant([&](std::string_view variant) {
    Training clean({.keys = 33});
    clean.run({.mask = hides, .variant = variant});
    Training poisoned = clean;
    for (std::int64_t head = 0; head < 2; ++head) {
      for (const std::int64_t t : {7, 20, 30, 32}) {
        for (std::int64_t j = 0; j < 8; ++j) {
          poisoned.k.set((head * 33 + t) * 8 + j, kNan);
          poisoned.v.set((head * 33 + t) * 8 + j, kInf);
        }
      }
    }
    poisoned.run_backward({.mask = hides, .variant = variant});
    for (std::int64_t i = 0; i < clean.d_q.size(); ++i) {
      ASSERT_NEAR(poisoned.d_q.get(i), clean.d_q.get(i), 1e-5);
    }
    for (std::int64_t i = 0; i < clean.d_k.size(); ++i) {
      ASSERT_NEAR(poisoned.d_k.get(i), clean.d_k.get(i), 1e-5);
      ASSERT_NEAR(poisoned.d_v.get(i), clean.d_v.get(i), 1e-5);
    }
  });
}

TEST(AttentionBackwardTest, AnExplanationComputesNothing) {
  Training t({});
  Explanation told;
  const Status status = attention_backward(
      Context::cpu().explaining(told), t.q.tensor(), t.k.tensor(), t.v.tensor(), t.o.tensor(),
      t.lse.tensor(), t.d_o.tensor(), t.d_q.tensor(), t.d_k.tensor(), t.d_v.tensor());
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(told.plan.variant, "cpu_flash");
  EXPECT_FALSE(told.reasons.empty());
  EXPECT_GT(told.least_bytes, 0);
  EXPECT_TRUE(std::isnan(t.d_q.get(0)));
}

}  // namespace
}  // namespace onepass
