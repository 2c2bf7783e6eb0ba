// Attention on the GPU: the same bits always, in graphs and in any batch; halves that merge; pages
// that are not there.

#ifdef ONEPASS_HAS_CUDA

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "cli/gpu/apparatus.hpp"
#include "core/number.hpp"
#include "onepass/onepass.hpp"
#include "tests/support/graph.hpp"

namespace onepass {
namespace {

using Bits = std::vector<std::uint16_t>;

class Memory {
 public:
  explicit Memory(std::size_t bytes) : size_(bytes) {
    if (!buffer_.allocate(std::max<std::size_t>(bytes, 1)).ok()) throw std::bad_alloc();
  }
  template <class T>
  explicit Memory(const std::vector<T>& values) : Memory(values.size() * sizeof(T)) {
    EXPECT_TRUE(gpu::upload(buffer_.data(), values.data(), size_).ok());
  }

  void* data() const { return buffer_.data(); }
  void poison() const { EXPECT_TRUE(gpu::fill(buffer_.data(), 0xFF, size_).ok()); }
  template <class T>
  std::vector<T> values() const {
    std::vector<T> out(size_ / sizeof(T));
    EXPECT_TRUE(gpu::synchronize().ok());
    EXPECT_TRUE(gpu::download(out.data(), buffer_.data(), size_).ok());
    return out;
  }

 private:
  gpu::Buffer buffer_;
  std::size_t size_;
};

Bits normal(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  Bits bits(static_cast<std::size_t>(count));
  for (std::uint16_t& b : bits) b = to_bf16(distribution(random)).bits;
  return bits;
}

struct Shape {
  std::int64_t batch, heads, kv_heads, queries, keys, dim;
};

// An attention with arrays of its own.
class Op {
 public:
  explicit Op(const Shape& s)
      : s_(s),
        q_(normal(s.batch * s.heads * s.queries * s.dim, 1)),
        k_(normal(s.batch * s.kv_heads * s.keys * s.dim, 2)),
        v_(normal(s.batch * s.kv_heads * s.keys * s.dim, 3)),
        o_(static_cast<std::size_t>(s.batch * s.heads * s.queries * s.dim) * 2) {}

  Tensor q() const { return {q_.data(), DType::bf16, {s_.batch, s_.heads, s_.queries, s_.dim}}; }
  Tensor o() const { return {o_.data(), DType::bf16, {s_.batch, s_.heads, s_.queries, s_.dim}}; }
  Tensor k() const { return {k_.data(), DType::bf16, {s_.batch, s_.kv_heads, s_.keys, s_.dim}}; }
  Tensor v() const { return {v_.data(), DType::bf16, {s_.batch, s_.kv_heads, s_.keys, s_.dim}}; }

  Status run(const Context& context, const AttentionOptions& options = {}) const {
    return attention(context, q(), k(), v(), o(), options);
  }
  void poison() const { o_.poison(); }
  Bits result() const { return o_.values<std::uint16_t>(); }

 private:
  Shape s_;
  Memory q_, k_, v_, o_;
};

// One of each kernel: Hopper's three dims, keys in parts, decode, a dim that has no
// kernel of its own.
const std::vector<Shape> kShapes = {{4, 16, 16, 700, 700, 64}, {4, 16, 4, 500, 700, 128},
                                    {2, 40, 40, 260, 90, 256}, {1, 2, 2, 300, 1000, 64},
                                    {3, 32, 8, 1, 3000, 128},  {2, 4, 2, 65, 130, 72}};

class AttentionGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const Status status = gpu::available(); !status.ok()) GTEST_SKIP() << status.message();
  }
};

TEST_F(AttentionGpuTest, AThousandRepeatsAreTheSameBits) {
  for (const Shape& shape : kShapes) {
    const Op op(shape);
    const AttentionOptions causal{.mask = {.causal = true}};
    ASSERT_TRUE(op.run(Context::cuda(), causal).ok());
    const Bits first = op.result();
    for (int batch = 0; batch < 10; ++batch) {
      op.poison();
      for (int i = 0; i < 100; ++i) ASSERT_TRUE(op.run(Context::cuda(), causal).ok());
      ASSERT_EQ(op.result(), first) << shape.dim;
    }
  }
}

// The Hopper kernel's tiles under a diagonal, in pairs and one by one, with first tiles that have
// fewer queries: as the kernel of warps finds it, whose blocks have a tile each.
TEST_F(AttentionGpuTest, EveryTileUnderADiagonalIsThere) {
  for (const Shape& shape : {Shape{2, 100, 100, 400, 400, 64}, Shape{3, 50, 10, 1000, 1100, 64},
                             Shape{1, 13, 13, 5000, 5000, 64}, Shape{2, 90, 90, 300, 350, 128},
                             Shape{1, 20, 20, 2500, 2500, 128}, Shape{1, 30, 30, 1100, 1000, 192},
                             Shape{4, 40, 40, 450, 450, 256}, Shape{1, 30, 30, 1090, 1090, 256}}) {
    const Op op(shape);
    const auto found = [&](std::string_view variant) {
      AttentionOptions options{.mask = {.causal = true}};
      options.variant = variant;
      op.poison();
      const Status status = op.run(Context::cuda(), options);
      EXPECT_TRUE(status.ok()) << status.message();
      return op.result();
    };
    const Bits expected = found("gpu_flash");
    const Bits bits = found("gpu_hopper");
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const float x = to_float(BF16{bits[i]});
      const float y = to_float(BF16{expected[i]});
      ASSERT_NEAR(x, y, 0.02F + 0.02F * std::abs(y))
          << i << " of " << shape.queries << " dim " << shape.dim;
    }
  }
}

TEST_F(AttentionGpuTest, AGraphReplaysTheSameBits) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  for (const Shape& shape : kShapes) {
    const Op op(shape);
    ASSERT_TRUE(op.run(Context::cuda(stream)).ok());  // and the stream has its workspace
    const Bits first = op.result();
    test::replay_in_graph(
        stream, 3, [&] { return op.run(Context::cuda(stream)); }, [&] { op.poison(); });
    EXPECT_EQ(op.result(), first) << shape.dim;
  }
  cudaStreamDestroy(stream);
}

TEST_F(AttentionGpuTest, ABatchInvariantSequenceHasTheSameBitsAlone) {
  for (Shape shape : kShapes) {
    const AttentionOptions options{.batch_invariant = true};
    const Op many(shape);
    ASSERT_TRUE(many.run(Context::cuda(), options).ok());
    Bits all = many.result();
    shape.batch = 1;  // the first sequence of the same numbers
    const Op one(shape);
    ASSERT_TRUE(one.run(Context::cuda(), options).ok());
    const Bits alone = one.result();
    all.resize(alone.size());
    EXPECT_EQ(all, alone) << shape.dim;
  }
}

TEST_F(AttentionGpuTest, HalvesOfTheKeysMergeToTheWhole) {
  constexpr std::int64_t kHeads = 4, kQueries = 70, kKeys = 500, kDim = 64, kLeft = 201;
  const Op whole({1, kHeads, kHeads, kQueries, kKeys, kDim});
  const auto part = [](Tensor t, std::int64_t first, std::int64_t count) {
    t.data = static_cast<std::uint16_t*>(t.data) + first * kDim;
    t.shape[2] = count;
    return t;
  };
  constexpr std::int64_t kRows = kHeads * kQueries;
  const Memory o_a(kRows * kDim * 4), o_b(kRows * kDim * 4), o(kRows * kDim * 4);
  const Memory lse_a(kRows * 4), lse_b(kRows * 4), lse(kRows * 4), lse_all(kRows * 4);
  const auto sums = [](const Memory& m) {
    return Tensor{m.data(), DType::f32, {1, kHeads, kQueries, kDim}};
  };
  const auto rows = [](const Memory& m) {
    return Tensor{m.data(), DType::f32, {1, kHeads, kQueries}};
  };
  const Context cuda = Context::cuda();
  ASSERT_TRUE(attention(cuda, whole.q(), part(whole.k(), 0, kLeft), part(whole.v(), 0, kLeft),
                        sums(o_a), {.lse = rows(lse_a)})
                  .ok());
  ASSERT_TRUE(attention(cuda, whole.q(), part(whole.k(), kLeft, kKeys - kLeft),
                        part(whole.v(), kLeft, kKeys - kLeft), sums(o_b), {.lse = rows(lse_b)})
                  .ok());
  const Status merged =
      merge_attention(cuda, sums(o_a), rows(lse_a), sums(o_b), rows(lse_b), sums(o), rows(lse));
  ASSERT_TRUE(merged.ok()) << merged.message();
  ASSERT_TRUE(whole.run(cuda, {.lse = rows(lse_all)}).ok());
  const Bits expected = whole.result();
  const std::vector<float> values = o.values<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(values[i], to_float(BF16{expected[i]}), 0.02) << i;
  }
  const std::vector<float> lse_expected = lse_all.values<float>();
  const std::vector<float> lse_values = lse.values<float>();
  for (std::size_t i = 0; i < lse_values.size(); ++i) {
    ASSERT_NEAR(lse_values[i], lse_expected[i], 1e-4) << i;
  }
}

// From the last key to the first, every 100 keys, scores rise: by what a float holds and by what it
// does not, f16 or none. A row rises, stays, falls, or rises twice as fast.
TEST_F(AttentionGpuTest, ScoresRiseByAnything) {
  constexpr std::int64_t kHeads = 2, kQueries = 300, kKeys = 700;
  constexpr std::int64_t kRows = kHeads * kQueries;
  const auto number = [](DType dtype, float x) {
    return dtype == DType::bf16 ? to_bf16(x).bits : to_f16(x).bits;
  };
  const auto check = [&](DType dtype, std::int64_t dim, float rise, bool causal, bool ragged) {
    std::mt19937 random(7);
    std::normal_distribution<float> distribution;
    const auto make = [&](std::int64_t tokens, float size, auto&& first) {
      Bits bits;
      for (std::int64_t i = 0; i < kHeads * tokens; ++i) {
        for (std::int64_t c = 0; c < dim; ++c) {
          const float x = size * distribution(random);
          bits.push_back(number(dtype, c == 0 ? first(i % tokens, x) : x));
        }
      }
      return bits;
    };
    Bits q = make(kQueries, 0.3F, [](std::int64_t row, float) { return float(row % 4 - 1); });
    Bits k = make(kKeys, 0.3F, [&](std::int64_t key, float) {
      return std::isinf(rise) ? (key == 250 ? rise : 1.F) : rise * float((kKeys - 1 - key) / 100);
    });
    Bits v = make(kKeys, 1, [](std::int64_t, float x) { return x; });
    std::vector<float> o(kRows * dim), lse(kRows);
    const auto tensor = [&](void* data, DType of, std::int64_t tokens) {
      return Tensor{data, of, {1, kHeads, tokens, dim}};
    };
    const auto rows = [&](void* data) { return Tensor{data, DType::f32, {1, kHeads, kQueries}}; };
    AttentionOptions options{.mask = {.causal = causal}, .lse = rows(lse.data())};
    options.scale = 1;
    std::vector<std::int32_t> lengths = {kKeys - 50};
    if (ragged) options.mask.lengths = Tensor{lengths.data(), DType::i32, {1}};
    ASSERT_TRUE(attention(Context::cpu(), tensor(q.data(), dtype, kQueries),
                          tensor(k.data(), dtype, kKeys), tensor(v.data(), dtype, kKeys),
                          tensor(o.data(), DType::f32, kQueries), options)
                    .ok());
    const Memory there_q(q), there_k(k), there_v(v), there_o(q.size() * 2),
        there_lse(lse.size() * 4), there_lengths(lengths);
    there_o.poison();
    if (ragged) options.mask.lengths = Tensor{there_lengths.data(), DType::i32, {1}};
    options.lse = rows(there_lse.data());
    options.variant = "gpu_hopper";
    const Status status =
        attention(Context::cuda(), tensor(there_q.data(), dtype, kQueries),
                  tensor(there_k.data(), dtype, kKeys), tensor(there_v.data(), dtype, kKeys),
                  tensor(there_o.data(), dtype, kQueries), options);
    ASSERT_TRUE(status.ok()) << status.message();
    const auto near = [](float x, float expected, float least) {
      return std::isnan(expected)
                 ? std::isnan(x)
                 : x == expected || std::abs(x - expected) <= least + 0.01F * std::abs(expected);
    };
    const Bits bits = there_o.values<std::uint16_t>();
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const float x = dtype == DType::bf16 ? to_float(BF16{bits[i]}) : to_float(F16{bits[i]});
      ASSERT_TRUE(near(x, o[i], 0.02F)) << x << " for " << o[i] << " at " << i;
    }
    const std::vector<float> values = there_lse.values<float>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_TRUE(near(values[i], lse[i], 1e-3F)) << values[i] << " for " << lse[i] << " at " << i;
    }
  };
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const std::int64_t dim : {64, 96, 128, 192, 256}) {
      for (const float rise : {0.5F, 5.F, 15.F, 40.F, 150.F, INFINITY}) {
        for (const int how : {0, 1, 2, 3}) {
          const bool causal = how % 2 == 1;
          const bool ragged = how >= 2 && dim <= 192;
          SCOPED_TRACE(testing::Message()
                       << (dtype == DType::bf16 ? "bf16" : "f16") << " dim " << dim << " rise "
                       << rise << " causal " << causal << " ragged " << ragged);
          check(dtype, dim, rise, causal, ragged);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// A query of inf: keys of 0 have NaN for a score and all others +inf, which must not hide it.
TEST_F(AttentionGpuTest, AnInfinityHidesNoNaN) {
  constexpr std::int64_t kKeys = 400, kDim = 64;
  for (const std::int64_t queries : {1, 4, 300}) {
    for (const std::int64_t zero : {std::int64_t{0}, std::int64_t{200}, kKeys - 1, kKeys}) {
      for (const std::string_view variant : {"gpu_decode", "gpu_flash", "gpu_hopper", "gpu_simt"}) {
        if (variant == "gpu_decode" && queries > 16) continue;
        std::vector<float> ones(kKeys * kDim, 1), first(queries * kDim, 1);
        if (zero < kKeys) std::fill_n(ones.begin() + zero * kDim, kDim, 0.F);
        first[0] = INFINITY;
        const auto narrow = [](const std::vector<float>& from) {
          Bits bits;
          for (const float x : from) bits.push_back(to_bf16(x).bits);
          return bits;
        };
        const Memory q(narrow(first)), k(narrow(ones)), o(first.size() * 2),
            lse(static_cast<std::size_t>(queries) * sizeof(float));
        const auto tensor = [](const Memory& m, std::int64_t tokens) {
          return Tensor{m.data(), DType::bf16, {1, 1, tokens, kDim}};
        };
        AttentionOptions options{.lse = Tensor{lse.data(), DType::f32, {1, 1, queries}}};
        options.variant = variant;
        const Status status = attention(Context::cuda(), tensor(q, queries), tensor(k, kKeys),
                                        tensor(k, kKeys), tensor(o, queries), options);
        ASSERT_TRUE(status.ok()) << status.message();
        const std::vector<float> found = lse.values<float>();
        SCOPED_TRACE(testing::Message() << variant << ", " << queries << " queries, 0 at " << zero);
        EXPECT_EQ(std::isnan(found[0]), zero < kKeys) << found[0];
        EXPECT_EQ(std::isinf(found[0]), zero == kKeys) << found[0];
        for (std::size_t i = 1; i < found.size(); ++i) ASSERT_TRUE(std::isfinite(found[i])) << i;
      }
    }
  }
}

// Two sequences side by side: the last tile of the first has queries of the second, whose scores
// rise, or are none.
TEST_F(AttentionGpuTest, AnotherSequenceChangesNoBits) {
  constexpr std::int64_t kHeads = 2, kOwn = 90, kTokens = 400, kDim = 128;
  const Memory offsets(std::vector<std::int32_t>{0, kOwn, kTokens});
  const Memory kv_offsets(std::vector<std::int32_t>{0, 300, kTokens});
  const Tensor places{offsets.data(), DType::i32, {3}};
  const Tensor kv_places{kv_offsets.data(), DType::i32, {3}};
  const Memory k(normal(kHeads * kTokens * kDim, 2)), v(normal(kHeads * kTokens * kDim, 3));
  const auto run = [&](float other) {
    Bits bits = normal(kHeads * kTokens * kDim, 1);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      if (static_cast<std::int64_t>(i) / kDim % kTokens >= kOwn) bits[i] = to_bf16(other).bits;
    }
    const Memory q(bits), o(bits.size() * 2);
    const auto tensor = [&](const Memory& m) {
      return Tensor{m.data(), DType::bf16, {kHeads, kTokens, kDim}};
    };
    AttentionOptions options{.q_offsets = places, .kv_offsets = kv_places, .variant = "gpu_hopper"};
    options.scale = 1;  // and so far between maxima
    const Status status =
        attention(Context::cuda(), tensor(q), tensor(k), tensor(v), tensor(o), options);
    EXPECT_TRUE(status.ok()) << status.message();
    Bits own;
    const Bits all = o.values<std::uint16_t>();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (static_cast<std::int64_t>(i) / kDim % kTokens < kOwn) own.push_back(all[i]);
    }
    return own;
  };
  const Bits tame = run(0);
  EXPECT_EQ(run(30), tame);
  EXPECT_EQ(run(NAN), tame);
}

TEST_F(AttentionGpuTest, APageThatIsNotThereIsNaNForThoseWhoSeeIt) {
  constexpr std::int64_t kPages = 4, kSize = 16, kDim = 64;
  const Memory q(normal(2 * kDim, 1)), k(normal(kPages * kSize * kDim, 2)),
      v(normal(kPages * kSize * kDim, 3)), o(2 * kDim * 2);
  const Memory table(
      std::vector<std::int32_t>{0, 3, 1, 99});  // the second sequence's last is not there
  const Memory lengths(std::vector<std::int32_t>{32, 32});
  const Tensor keys{k.data(), DType::bf16, {kPages, 1, kSize, kDim}};
  const Tensor values{v.data(), DType::bf16, {kPages, 1, kSize, kDim}};
  const AttentionOptions options{.mask = {.lengths = Tensor{lengths.data(), DType::i32, {2}}},
                                 .pages = Tensor{table.data(), DType::i32, {2, 2}},
                                 .check_pages = true};
  o.poison();
  const Status status =
      attention(Context::cuda(), Tensor{q.data(), DType::bf16, {2, 1, 1, kDim}}, keys, values,
                Tensor{o.data(), DType::bf16, {2, 1, 1, kDim}}, options);
  ASSERT_TRUE(status.ok()) << status.message();
  const Bits bits = o.values<std::uint16_t>();
  for (std::size_t c = 0; c < kDim; ++c) {
    EXPECT_TRUE(std::isfinite(to_float(BF16{bits[c]}))) << c;
    EXPECT_TRUE(std::isnan(to_float(BF16{bits[kDim + c]}))) << c;
  }
}

}  // namespace
}  // namespace onepass

#endif
