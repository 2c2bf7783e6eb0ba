// attention_backward on the GPU: the same bits always, beside the CPU's gradients, and zeros for
// what takes no part.

#ifdef ONEPASS_HAS_CUDA

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <utility>
#include <vector>

#include "onepass/onepass.hpp"
#include "tests/support/copies.hpp"
#include "tests/support/graph.hpp"
#include "tests/support/values.hpp"

namespace onepass {
namespace {

using namespace test;

struct Size {
  std::int64_t batch = 2, heads = 4, kv_heads = 2, queries = 70, keys = 90, dim = 64, dim_v = 64;
  bool packed = false;  // without a batch dimension: queries and keys are all tokens

  std::vector<std::int64_t> of(std::int64_t head_count, std::int64_t tokens,
                               std::int64_t columns) const {
    std::vector<std::int64_t> shape = {head_count, tokens};
    if (!packed) shape.insert(shape.begin(), batch);
    if (columns > 0) shape.push_back(columns);
    return shape;
  }
};

// A call with arrays of its own; those that are not there are left out.
struct Training {
  explicit Training(const Size& s, DType dtype = DType::f32)
      : q(random(dtype, s.of(s.heads, s.queries, s.dim), 1)),
        k(random(dtype, s.of(s.kv_heads, s.keys, s.dim), 2)),
        v(random(dtype, s.of(s.kv_heads, s.keys, s.dim_v), 3)),
        o(dtype, s.of(s.heads, s.queries, s.dim_v)),
        d_o(random(dtype, s.of(s.heads, s.queries, s.dim_v), 4)),
        lse(DType::f32, s.of(s.heads, s.queries, 0)),
        d_q(dtype, s.of(s.heads, s.queries, s.dim)),
        d_k(dtype, s.of(s.kv_heads, s.keys, s.dim)),
        d_v(dtype, s.of(s.kv_heads, s.keys, s.dim_v)) {}

  void run_forward() {
    const Status status =
        attention(Context::cpu(), q.tensor(), k.tensor(), v.tensor(), o.tensor(),
                  {.softcap = softcap,
                   .mask = mask_of([](Values& x) { return x.tensor(); }),
                   .sinks = there(sinks) ? sinks.tensor() : Tensor(),
                   .q_offsets = there(q_offsets) ? q_offsets.tensor() : Tensor(),
                   .kv_offsets = there(kv_offsets) ? kv_offsets.tensor() : Tensor(),
                   .lse = lse.tensor()});
    ASSERT_TRUE(status.ok()) << status.message();
  }

  // place(values) gives the tensor that a context can reach.
  template <class Place>
  Status run(const Context& context, std::string_view variant, Place place) {
    const auto maybe = [&](Values& x) { return there(x) ? place(x) : Tensor(); };
    AttentionBackwardOptions options{.softcap = softcap,
                                     .mask = mask_of(place),
                                     .sinks = maybe(sinks),
                                     .q_offsets = maybe(q_offsets),
                                     .kv_offsets = maybe(kv_offsets),
                                     .d_lse = maybe(d_lse),
                                     .d_sinks = maybe(d_sinks),
                                     .d_additive = maybe(d_additive),
                                     .accumulate = accumulate,
                                     .variant = variant};
    return attention_backward(context, place(q), place(k), place(v), place(o), place(lse),
                              place(d_o), place(d_q), place(d_k), place(d_v), options);
  }
  void run_on_cpu() {
    const Status status = run(Context::cpu(), "cpu_naive", [](Values& x) { return x.tensor(); });
    ASSERT_TRUE(status.ok()) << status.message();
  }
  void run_on_gpu(std::string_view variant) {
    Copies copies;
    const Status status = run(Context::cuda(), variant, [&](Values& x) { return copies(x); });
    ASSERT_TRUE(status.ok()) << status.message();
    copies.bring_back();
  }

  static bool there(const Values& x) { return x.tensor().rank > 0; }
  template <class Place>
  Mask mask_of(Place place) {
    Mask mask = hides;
    if (there(additive)) mask.additive = place(additive);
    if (there(boolean)) mask.boolean = place(boolean);
    if (there(length)) mask.lengths = place(length);
    return mask;
  }

  Values q, k, v, o, d_o, lse, d_q, d_k, d_v;
  Values additive, boolean, length, sinks, q_offsets, kv_offsets, d_lse, d_sinks, d_additive;
  Mask hides;  // by place alone
  double softcap = 0;
  bool accumulate = false;
};

void expect_near(const Values& found, const Values& expected, double least, double relative,
                 std::string_view what) {
  for (std::int64_t i = 0; i < found.size(); ++i) {
    const double bound = least + relative * std::abs(expected.get(i));
    ASSERT_NEAR(found.get(i), expected.get(i), bound) << what << " at " << i;
  }
}

void expect_gradients(const Training& found, const Training& expected, double least,
                      double relative) {
  expect_near(found.d_q, expected.d_q, least, relative, "d_q");
  expect_near(found.d_k, expected.d_k, least, relative, "d_k");
  expect_near(found.d_v, expected.d_v, least, relative, "d_v");
}

// All options that have no place in another array.
Training everything(const Size& size, DType dtype = DType::f32) {
  Training t(size, dtype);
  t.hides = causal();
  t.hides.window_left = 60;
  t.softcap = 5;
  t.sinks = random(DType::f32, {size.heads}, 5);
  t.d_sinks = Values(DType::f32, {size.heads});
  t.d_lse = random(DType::f32, size.of(size.heads, size.queries, 0), 6);
  return t;
}

class AttentionBackwardGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const Status status = gpu::available(); !status.ok()) GTEST_SKIP() << status.message();
  }
};

TEST_F(AttentionBackwardGpuTest, RepeatsAreTheSameBits) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::string_view variant : {"gpu_simt", "gpu_flash", ""}) {
      if (variant == "gpu_flash" && dtype == DType::f32) continue;
      Training first = everything({.queries = 200, .keys = 300}, dtype);
      if (variant.empty()) first.softcap = 0;  // which gpu_hopper does not take
      first.run_forward();
      first.run_on_gpu(variant);
      Training other = first;
      for (int i = 0; i < 20; ++i) {
        for (Values* each : {&other.d_q, &other.d_k, &other.d_v, &other.d_sinks}) {
          for (std::int64_t j = 0; j < each->size(); ++j) each->set(j, kNan);
        }
        other.run_on_gpu(variant);
        ASSERT_EQ(other.d_q, first.d_q);
        ASSERT_EQ(other.d_k, first.d_k);
        ASSERT_EQ(other.d_v, first.d_v);
        ASSERT_EQ(other.d_sinks, first.d_sinks);
      }
    }
  }
}

// How far 16 bits take the gradients away.
double step_of(DType dtype) {
  return dtype == DType::f32 ? 1e-4 : dtype == DType::f16 ? 2e-3 : 1e-2;
}

// Every number of columns per lane, and tiles of both sizes.
TEST_F(AttentionBackwardGpuTest, GradientsAreThoseOfTheCpu) {
  for (const auto& [dim, dim_v] : {std::pair(64, 64), std::pair(24, 136), std::pair(256, 40),
                                   std::pair(512, 512), std::pair(8, 264)}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      SCOPED_TRACE(testing::Message() << dim << " " << dim_v << " " << name(dtype));
      Training expected = everything({.dim = dim, .dim_v = dim_v}, dtype);
      expected.run_forward();
      Training found = expected;
      expected.run_on_cpu();
      found.run_on_gpu("gpu_simt");
      const double step = step_of(dtype);
      expect_gradients(found, expected, step, step);
      expect_near(found.d_sinks, expected.d_sinks, 1e-3, 1e-4, "d_sinks");
      if (HasFatalFailure()) return;
    }
  }
}

// Every dim that the tensor cores' kernels are compiled for, and some between.
TEST_F(AttentionBackwardGpuTest, GradientsByTensorCoresAreThoseOfTheCpu) {
  for (const int dim : {64, 72, 128, 200, 256, 264, 392, 512}) {
    for (const DType dtype : {DType::f16, DType::bf16}) {
      SCOPED_TRACE(testing::Message() << dim << " " << name(dtype));
      Training expected = everything({.dim = dim, .dim_v = dim}, dtype);
      expected.run_forward();
      Training found = expected;
      expected.run_on_cpu();
      found.run_on_gpu("gpu_flash");
      expect_gradients(found, expected, 4 * step_of(dtype), 4 * step_of(dtype));
      if (HasFatalFailure()) return;
    }
  }
}

// Masks that hide keys of a batch, of a query or of a head, whole rows among them, and that have
// strides of 0 everywhere else. The forms that padded batches have come first.
TEST_F(AttentionBackwardGpuTest, ABooleanMaskOfAnyShapeHidesPairs) {
  const std::vector<std::vector<std::int64_t>> shapes = {
      {2, 1, 70, 90}, {2, 1, 1, 90}, {2, 4, 70, 90}, {70, 90}, {90}, {4, 1, 90}, {4, 70, 1}};
  for (const auto& shape : shapes) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      SCOPED_TRACE(testing::PrintToString(shape) + std::string(name(dtype)));
      Training expected({}, dtype);
      expected.boolean = Values(DType::u8, shape);
      Values& shown = expected.boolean;
      for (std::int64_t i = 0; i < shown.size(); ++i) {
        shown.set(i, i / 90 % 7 == 3 || i % 5 == 2 ? 0 : 1);
      }
      expected.run_forward();
      Training found = expected;
      expected.run_on_cpu();
      found.run_on_gpu(dtype == DType::f32 ? "gpu_simt" : "gpu_flash");
      expect_gradients(found, expected, 4 * step_of(dtype), 4 * step_of(dtype));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(AttentionBackwardGpuTest, AccumulateAddsToWhatIsThere) {
  for (const std::string_view variant : {"gpu_simt", ""}) {
    Training once = everything({});
    once.run_forward();
    once.run_on_gpu(variant);
    Training twice = once;
    twice.accumulate = true;
    twice.run_on_gpu(variant);
    for (const auto& [x, y] : {std::pair(&twice.d_q, &once.d_q), std::pair(&twice.d_k, &once.d_k),
                               std::pair(&twice.d_v, &once.d_v)}) {
      for (std::int64_t i = 0; i < x->size(); ++i) ASSERT_EQ(x->get(i), 2 * y->get(i)) << i;
    }
    EXPECT_EQ(twice.d_sinks, once.d_sinks);
  }
}

// Where the mask broadcasts, its gradient is a sum: of one warp, or of a block's.
TEST_F(AttentionBackwardGpuTest, TheMasksGradientIsThatOfTheCpu) {
  const std::vector<std::vector<std::int64_t>> shapes = {
      {2, 4, 20, 33}, {20, 33}, {4, 1, 33}, {2, 1, 1, 33}, {4, 20, 1}, {1, 1}, {2, 1, 20, 1}};
  for (const auto& shape : shapes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(testing::PrintToString(shape) + std::string(name(dtype)));
      Training expected = everything({.queries = 20, .keys = 33}, dtype);
      expected.additive = random(DType::f32, shape, 7);
      expected.d_additive = Values(DType::f64, shape);
      expected.run_forward();
      Training found = expected;
      expected.run_on_cpu();
      found.run_on_gpu("");
      expect_near(found.d_additive, expected.d_additive, 1e-3, 1e-4, "d_additive");
      const double step = dtype == DType::f32 ? 1e-4 : 4e-2;
      expect_gradients(found, expected, step, step);
      if (HasFatalFailure()) return;
    }
  }
}

// Tokens past the last sequence, keys past a length, keys of a sequence without queries.
TEST_F(AttentionBackwardGpuTest, TokensOfNoSequenceHaveNoGradient) {
  for (const std::string_view variant : {"gpu_simt", ""}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(testing::Message() << variant << " " << name(dtype));
      Training expected({.batch = 3, .queries = 70, .keys = 110, .packed = true}, dtype);
      expected.q_offsets = Values(DType::i32, {4}, {0, 20, 20, 50});
      expected.kv_offsets = Values(DType::i64, {4}, {0, 30, 60, 100});
      expected.length = Values(DType::i32, {3}, {20, 30, 40});
      expected.sinks = random(DType::f32, {4}, 5);
      expected.d_sinks = Values(DType::f32, {4});
      expected.run_forward();
      // Whose gradients are zeros, and what they hold, matters to nothing.
      for (std::int64_t h = 0; h < 4; ++h) {
        for (std::int64_t t = 50; t < 70; ++t) {
          for (std::int64_t c = 0; c < 64; ++c) expected.q.set((h * 70 + t) * 64 + c, kNan);
          expected.lse.set(h * 70 + t, 0);
        }
      }
      Training found = expected;
      expected.run_on_cpu();
      found.run_on_gpu(variant);
      const double step = dtype == DType::f32 ? 1e-4 : 4e-2;
      expect_gradients(found, expected, step, step);
      expect_near(found.d_sinks, expected.d_sinks, 1e-3, 1e-3, "d_sinks");
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t t = 0; t < 110; ++t) {
          const bool hidden = (t >= 20 && t < 60) || t >= 100;
          ASSERT_EQ(found.d_k.get((h * 110 + t) * 64) == 0, hidden) << t;
          ASSERT_EQ(found.d_v.get((h * 110 + t) * 64) == 0, hidden) << t;
        }
      }
      for (std::int64_t t = 0; t < 70; ++t) ASSERT_EQ(found.d_q.get(t * 64) == 0, t >= 50) << t;
    }
  }
}

TEST_F(AttentionBackwardGpuTest, WithoutQueriesOrKeysThereIsNoGradient) {
  for (const std::string_view variant : {"gpu_simt", ""}) {
    Training no_queries({.queries = 0});
    no_queries.run_on_gpu(variant);
    for (std::int64_t i = 0; i < no_queries.d_k.size(); ++i) {
      ASSERT_EQ(no_queries.d_k.get(i), 0);
      ASSERT_EQ(no_queries.d_v.get(i), 0);
    }
    Training no_keys({.keys = 0});
    no_keys.run_forward();
    no_keys.run_on_gpu(variant);
    for (std::int64_t i = 0; i < no_keys.d_q.size(); ++i) ASSERT_EQ(no_keys.d_q.get(i), 0);
  }
}

// What no query sees may hold NaN.
TEST_F(AttentionBackwardGpuTest, HiddenKeysMayBeAnything) {
  for (const std::string_view variant : {"gpu_simt", ""}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Training clean({}, dtype);
      clean.length = Values(DType::i32, {2}, {77, 90});
      clean.run_forward();
      Training poisoned = clean;
      clean.run_on_gpu(variant);
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t i = 77 * 64; i < 90 * 64; ++i) {
          poisoned.k.set(h * 90 * 64 + i, kNan);
          poisoned.v.set(h * 90 * 64 + i, kNan);
        }
      }
      poisoned.run_on_gpu(variant);
      EXPECT_EQ(poisoned.d_q, clean.d_q);
      EXPECT_EQ(poisoned.d_k, clean.d_k);
      EXPECT_EQ(poisoned.d_v, clean.d_v);
    }
  }
}

TEST_F(AttentionBackwardGpuTest, AGraphReplaysTheSameBits) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  Training first = everything({});
  first.run_forward();
  first.run_on_gpu("");
  Training other = first;
  Copies copies;
  const Tensor d_q = copies(other.d_q), d_k = copies(other.d_k), d_v = copies(other.d_v);
  std::deque<std::pair<Values*, Tensor>> inputs;
  const auto place = [&](Values& x) {
    if (&x == &other.d_q) return d_q;
    if (&x == &other.d_k) return d_k;
    if (&x == &other.d_v) return d_v;
    for (const auto& [values, tensor] : inputs) {
      if (values == &x) return tensor;
    }
    return inputs.emplace_back(&x, copies(x)).second;
  };
  ASSERT_TRUE(other.run(Context::cuda(stream), "", place).ok());  // the stream has its workspace
  replay_in_graph(
      stream, 3, [&] { return other.run(Context::cuda(stream), "", place); },
      [&] {
        const std::size_t bytes = static_cast<std::size_t>(other.d_q.size()) * sizeof(float);
        EXPECT_TRUE(gpu::fill(static_cast<std::byte*>(d_q.data), 0xFF, bytes).ok());
      });
  copies.bring_back();
  EXPECT_EQ(other.d_q, first.d_q);
  EXPECT_EQ(other.d_k, first.d_k);
  EXPECT_EQ(other.d_v, first.d_v);
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace onepass

#endif
