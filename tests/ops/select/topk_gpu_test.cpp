// The K largest of rows on the GPU: the same answer always, in graphs and by any launch; rows of
// extremes.

#ifdef ONEPASS_HAS_CUDA

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "onepass/onepass.hpp"
#include "tests/ops/select/select_gpu.hpp"
#include "tests/support/array.hpp"
#include "tests/support/graph.hpp"

namespace onepass {
namespace {

// A topk of its own arrays.
class Topk {
 public:
  Topk(std::int64_t rows, std::int64_t cols, std::int64_t k)
      : Topk(rows, cols, k, normal_logits(rows * cols)) {}
  Topk(std::int64_t rows, std::int64_t cols, std::int64_t k, const std::vector<float>& logits)
      : rows_(rows),
        cols_(cols),
        k_(k),
        x_(logits),
        values_(static_cast<std::size_t>(rows * k)),
        indices_(static_cast<std::size_t>(rows * k)) {}

  Status run(const Context& context, const TopkOptions& options = {}) const {
    return softmax_topk(context, {x_.data(), DType::f32, {rows_, cols_}},
                        Tensor{values_.data(), DType::f32, {rows_, k_}},
                        Tensor{indices_.data(), DType::i32, {rows_, k_}}, options);
  }
  void poison() const {
    values_.poison();
    indices_.poison();
  }
  std::pair<std::vector<float>, std::vector<std::int32_t>> result() const {
    return {values_.values(), indices_.values()};
  }

 private:
  std::int64_t rows_, cols_, k_;
  Array<float> x_, values_;
  Array<std::int32_t> indices_;
};

// One of each kernel: lanes, a warp, several, small blocks, large ones, clusters that guess and
// others, the grid, the sort.
const std::vector<std::array<std::int64_t, 3>> kShapes = {
    {1000, 999, 5}, {1000, 3001, 60}, {200, 32000, 128}, {600, 3000, 200}, {200, 32000, 200},
    {3, 50257, 50}, {20, 30000, 100}, {3, 50257, 200},   {1, 5000000, 20}, {2, 9000, 3000}};

TEST_F(SelectGpuTest, RepeatsAreTheSameBits) {
  for (const auto& [rows, cols, k] : kShapes) {
    const Topk op(rows, cols, k);
    ASSERT_TRUE(op.run(Context::cuda()).ok());
    const auto first = op.result();
    for (int batch = 0; batch < 4; ++batch) {
      op.poison();
      for (int i = 0; i < 25; ++i) ASSERT_TRUE(op.run(Context::cuda()).ok());
      EXPECT_EQ(op.result(), first) << rows << "x" << cols;
    }
  }
}

TEST_F(SelectGpuTest, EveryLaunchChoosesTheSame) {
  const Topk op(2, 70001, 40);
  ASSERT_TRUE(op.run(Context::cuda()).ok());
  const auto expected = op.result().second;
  for (const char* variant :
       {"gpu_block", "gpu_cluster", "gpu_grid", "gpu_sort", "gpu_block:1:128", "gpu_cluster:4:256",
        "gpu_cluster:16:512", "gpu_grid:9:256", "gpu_guess", "gpu_guess:16:256", "gpu_stream:1:32",
        "gpu_stream:1:96", "gpu_stream:1:224", "gpu_stream:2:64", "gpu_stream:2:512",
        "gpu_stream:4:256"}) {
    op.poison();
    const Status status = op.run(Context::cuda(), {.variant = variant});
    if (status.code() == Code::unsupported) continue;  // a GPU without clusters
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(op.result().second, expected) << variant;
  }
}

// Of elements alike the first are chosen, whatever their zeros' signs.
TEST_F(SelectGpuTest, MinusZeroIsZero) {
  for (const std::int64_t cols : {31, 200, 1000, 5000, 30011, 200000}) {
    std::vector<float> logits(static_cast<std::size_t>(cols));
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = i % 3 == 0 ? -0.F : 0.F;
    for (const std::int64_t k : {1, 7, 16, 31, 60, 128, 1000, 3000}) {
      if (k > cols) continue;
      const Topk op(1, cols, k, logits);
      ASSERT_TRUE(op.run(Context::cuda()).ok());
      const std::vector<std::int32_t> found = op.result().second;
      for (std::int64_t i = 0; i < k; ++i) ASSERT_EQ(found[i], i) << cols << ", k " << k;
    }
  }
}

// The K largest all of one block, which sends fewer; and more elements alike than a
// block has room for.
TEST_F(SelectGpuTest, AWrongGuessIsNoticed) {
  constexpr std::int64_t cols = 30011;
  std::vector<float> together = normal_logits(cols);
  for (std::int64_t c = 0; c < cols; ++c) {  // 128 elements of each block, in turns
    if (c / 128 % 16 == 5) together[static_cast<std::size_t>(c)] += 20;
  }
  const std::vector<float> alike(cols, 1.0F);
  for (const std::vector<float>& logits : {together, alike}) {
    for (const std::int64_t k : {1, 2, 17, 50, 64, 65, 128}) {
      const Topk op(1, cols, k, logits);
      ASSERT_TRUE(op.run(Context::cuda(), {.variant = "gpu_sort"}).ok());
      const auto expected = op.result().second;
      for (const auto& [variant, most] :
           {std::pair("gpu_guess:16:256", 64), {"gpu_guess:4:256", 128}}) {
        if (k > most) continue;
        op.poison();
        const Status status = op.run(Context::cuda(), {.variant = variant});
        if (status.code() == Code::unsupported) continue;  // a GPU without clusters
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(op.result().second, expected) << variant << " k " << k;
      }
    }
  }
}

// Logits whose z is −inf though they are not, in all of a block's part and at its edge, or
// everywhere; a NaN beside +inf.
TEST_F(SelectGpuTest, ExtremesOfOneBlockAreThoseOfTheRow) {
  constexpr std::int64_t cols = 30011, k = 50;
  constexpr float inf = std::numeric_limits<float>::infinity();
  std::vector<float> masked = normal_logits(cols);
  for (std::int64_t c = 0; c < cols; ++c) {
    if (c / 128 % 16 == 0 || c == cols - 1) {
      masked[static_cast<std::size_t>(c)] = std::numeric_limits<float>::lowest();
    }
  }
  std::vector<float> broken = normal_logits(cols);
  broken[0] = inf;
  broken[5000] = std::nanf("");
  const std::vector<float> none(cols, std::numeric_limits<float>::lowest());
  std::vector<float> lost = normal_logits(cols);  // and no two alike, so that a guess is right
  for (float& x : lost) x = -2.9e38F + 3e36F * x;
  for (const std::vector<float>& logits : {masked, broken, none, lost}) {
    const Topk op(1, cols, k, logits);
    const Array<float> lse(1);
    const auto run = [&](const char* variant) {
      op.poison();
      return op.run(
          Context::cuda(),
          {.temperature = 0.7, .lse = Tensor{lse.data(), DType::f32, {1}}, .variant = variant});
    };
    ASSERT_TRUE(run("gpu_block").ok());
    const auto expected = op.result();
    const float expected_lse = lse.values()[0];
    for (const char* variant : {"gpu_guess:16:256", "gpu_guess:4:256"}) {
      const Status status = run(variant);
      if (status.code() == Code::unsupported) return;  // a GPU without clusters
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(op.result().second, expected.second) << variant;
      for (std::size_t i = 0; i < k; ++i) {
        EXPECT_EQ(std::isnan(op.result().first[i]), std::isnan(expected.first[i])) << variant << i;
      }
      EXPECT_EQ(std::isnan(lse.values()[0]), std::isnan(expected_lse)) << variant;
    }
  }
}

TEST_F(SelectGpuTest, AGraphReplaysTheSameBits) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  const Context context = Context::cuda(stream);
  for (const auto& [rows, cols, k] : kShapes) {
    const Topk op(rows, cols, k);
    ASSERT_TRUE(op.run(context).ok());  // its workspace is there from now on
    const auto first = op.result();
    test::replay_in_graph(
        stream, 50, [&] { return op.run(context); }, [&] { op.poison(); });
    EXPECT_EQ(op.result(), first) << rows << "x" << cols;
  }
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace onepass

#endif  // ONEPASS_HAS_CUDA
