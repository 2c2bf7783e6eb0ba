// What ships on the GPU under load: threads and streams, graphs, repeats, huge tensors. The same
// call gives the same bits, always.

#ifdef ONEPASS_HAS_CUDA

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>
#include <vector>

#include "cli/gpu/apparatus.hpp"
#include "onepass/ops.hpp"
#include "tests/support/array.hpp"
#include "tests/support/graph.hpp"

namespace onepass {
namespace {

struct Shape {
  std::int64_t rows, cols;
};

// One of each kernel: lanes, a block, clusters, the grid.
constexpr Shape kShapes[] = {{1000, 129}, {300, 4097}, {3, 50257}, {2, 3000001}};

// Uniform logits on the GPU, and room for the result.
class Softmax {
 public:
  explicit Softmax(Shape shape) : shape_(shape) {
    std::mt19937 random(7);
    std::uniform_real_distribution<float> uniform(-8, 8);
    std::vector<float> x(elements());
    for (float& value : x) value = uniform(random);
    if (!x_.allocate(bytes()).ok() || !y_.allocate(bytes()).ok() ||
        !gpu::upload(x_.data(), x.data(), bytes()).ok()) {
      throw std::runtime_error("no memory on the GPU");
    }
  }

  Status run(const Context& context, const SoftmaxOptions& options = {}, std::int64_t first = 0,
             std::int64_t rows = 0) const {
    const auto skipped = static_cast<std::size_t>(first * shape_.cols) * sizeof(float);
    const std::int64_t count = rows == 0 ? shape_.rows : rows;
    return softmax(context, {x_.data() + skipped, DType::f32, {count, shape_.cols}},
                   Tensor{y_.data() + skipped, DType::f32, {count, shape_.cols}}, options);
  }

  std::vector<float> result() const {
    std::vector<float> y(elements());
    EXPECT_TRUE(gpu::synchronize().ok());
    EXPECT_TRUE(gpu::download(y.data(), y_.data(), bytes()).ok());
    return y;
  }

  void poison() const { EXPECT_TRUE(gpu::fill(y_.data(), 0xFF, bytes()).ok()); }

 private:
  std::size_t elements() const { return static_cast<std::size_t>(shape_.rows * shape_.cols); }
  std::size_t bytes() const { return elements() * sizeof(float); }

  Shape shape_;
  gpu::Buffer x_, y_;
};

class RowsGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const Status status = gpu::available(); !status.ok()) GTEST_SKIP() << status.message();
  }
};

TEST_F(RowsGpuTest, AThousandRepeatsAreTheSameBits) {
  for (const Shape shape : kShapes) {
    const Softmax op(shape);
    Plan plan;
    ASSERT_TRUE(op.run(Context::cuda(), {.plan = &plan}).ok());
    const std::vector<float> first = op.result();
    for (int batch = 0; batch < 4; ++batch) {
      op.poison();
      for (int i = 0; i < 250; ++i) ASSERT_TRUE(op.run(Context::cuda()).ok());
      ASSERT_EQ(op.result(), first) << to_string(plan);
    }
  }
}

TEST_F(RowsGpuTest, RowsBetweenBoundariesAreWrittenWholeWhereOutputsAreStrided) {
  constexpr std::int64_t rows = 6;
  for (const std::int64_t cols : {5, 13, 29, 1001, 20001}) {
    std::vector<float> x(static_cast<std::size_t>(rows * cols));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7);
    std::vector<float> expected(2 * x.size()), got(2 * x.size());
    const std::int64_t strides[] = {2 * cols, 2};
    const std::int64_t shape[] = {rows, cols};
    ASSERT_TRUE(softmax(Context::cpu(), {x.data(), DType::f32, {rows, cols}},
                        Tensor(expected.data(), DType::f32, shape, strides))
                    .ok());
    gpu::Buffer in, out;
    ASSERT_TRUE(in.allocate(x.size() * sizeof(float)).ok());
    ASSERT_TRUE(out.allocate(got.size() * sizeof(float)).ok());
    ASSERT_TRUE(gpu::upload(in.data(), x.data(), x.size() * sizeof(float)).ok());
    ASSERT_TRUE(gpu::fill(out.data(), 0xFF, got.size() * sizeof(float)).ok());
    ASSERT_TRUE(softmax(Context::cuda(), {in.data(), DType::f32, {rows, cols}},
                        Tensor(out.data(), DType::f32, shape, strides))
                    .ok());
    ASSERT_TRUE(gpu::synchronize().ok());
    ASSERT_TRUE(gpu::download(got.data(), out.data(), got.size() * sizeof(float)).ok());
    for (std::size_t i = 0; i < got.size(); i += 2) {
      ASSERT_NEAR(got[i], expected[i], 1e-6) << cols << " columns, element " << i / 2;
    }
  }
}

// Wherever a row is cut between the two, and whichever comes first.
TEST_F(RowsGpuTest, AnInfinityHidesNoNaN) {
  for (const Shape shape : kShapes) {
    for (const std::int64_t apart : {std::int64_t{1}, shape.cols / 3, shape.cols - 1}) {
      for (const bool nan_first : {false, true}) {
        std::vector<float> row(static_cast<std::size_t>(shape.cols), 1.F);
        row[0] = nan_first ? NAN : INFINITY;
        row[static_cast<std::size_t>(apart)] = nan_first ? INFINITY : NAN;
        const Array<float> x(row), lse(1);
        for (const double scale : {1.0, 2.0}) {  // the usual kernel, and that with every option
          const Status status = logsumexp(Context::cuda(), {x.data(), DType::f32, {1, shape.cols}},
                                          Tensor{lse.data(), DType::f32, {1}}, {.scale = scale});
          ASSERT_TRUE(status.ok()) << status.message();
          EXPECT_TRUE(std::isnan(lse.values()[0])) << shape.cols << ", " << apart << " apart";
        }
      }
    }
  }
}

TEST_F(RowsGpuTest, AGraphReplaysTheSameBits) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  const Context context = Context::cuda(stream);
  for (const Shape shape : kShapes) {
    const Softmax op(shape);
    ASSERT_TRUE(op.run(context).ok());  // its workspace is there from now on
    const std::vector<float> first = op.result();
    test::replay_in_graph(
        stream, 1000, [&] { return op.run(context); }, [&] { op.poison(); });
    EXPECT_EQ(op.result(), first) << shape.rows << "x" << shape.cols;
  }
  cudaStreamDestroy(stream);
}

TEST_F(RowsGpuTest, EightThreadsOnEightStreams) {
  constexpr int kThreads = 8;
  std::vector<std::string> problems(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&problems, i] {
      std::string& problem = problems[static_cast<std::size_t>(i)];
      cudaStream_t stream = nullptr;
      cudaStreamCreate(&stream);
      const Softmax op(kShapes[static_cast<std::size_t>(i) % std::size(kShapes)]);
      if (!op.run(Context::cuda(stream)).ok()) problem = "first run";
      cudaStreamSynchronize(stream);
      const std::vector<float> first = op.result();
      for (int repeat = 0; repeat < 50; ++repeat) {
        if (const Status s = op.run(Context::cuda(stream)); !s.ok()) problem = s.message();
      }
      if (cudaStreamSynchronize(stream) != cudaSuccess) problem = "synchronize";
      if (op.result() != first) problem = "other bits";
      cudaStreamDestroy(stream);
    });
  }
  for (std::thread& each : threads) each.join();
  for (const std::string& problem : problems) EXPECT_EQ(problem, "");
}

TEST_F(RowsGpuTest, BatchInvariantRowsAreTheSameBitsInAnyBatch) {
  for (const Shape shape :
       {Shape{300, 1000}, Shape{200, 50257}, Shape{40, 200001}, Shape{5, 3000001}}) {
    const Softmax op(shape);
    const SoftmaxOptions options{.batch_invariant = true};
    ASSERT_TRUE(op.run(Context::cuda(), options).ok());
    const std::vector<float> together = op.result();
    op.poison();
    for (std::int64_t row = 0; row < shape.rows;) {  // in batches of 1, 2, 3, …
      const std::int64_t rows = std::min(shape.rows - row, row % 7 + 1);
      ASSERT_TRUE(op.run(Context::cuda(), options, row, rows).ok());
      row += rows;
    }
    EXPECT_EQ(op.result(), together) << shape.rows << "x" << shape.cols;
  }
}

// More elements than 31 bits count: equal logits everywhere, so every result is 1 / cols.
TEST_F(RowsGpuTest, MoreThanTwoToThe31Elements) {
  constexpr std::int64_t kRows = 70001;
  constexpr std::int64_t kCols = 32768;
  constexpr std::size_t kBytes = static_cast<std::size_t>(kRows * kCols) * 2;
  static_assert(kRows * kCols > std::int64_t{1} << 31);
  gpu::Buffer x;
  gpu::Buffer y;
  if (!x.allocate(kBytes).ok() || !y.allocate(kBytes).ok()) GTEST_SKIP() << "a small GPU";
  ASSERT_TRUE(gpu::fill(x.data(), 0, kBytes).ok());
  ASSERT_TRUE(gpu::fill(y.data(), 0xFF, kBytes).ok());
  ASSERT_TRUE(softmax(Context::cuda(), {x.data(), DType::f16, {kRows, kCols}},
                      Tensor{y.data(), DType::f16, {kRows, kCols}})
                  .ok());
  ASSERT_TRUE(gpu::synchronize().ok());
  constexpr std::uint16_t kExpected = 0x0200;  // 2^-15, a subnormal f16
  std::vector<std::uint16_t> row(kCols);
  for (const std::int64_t r :
       {std::int64_t{0}, std::int64_t{65535}, std::int64_t{65536}, kRows - 1}) {
    const auto at = static_cast<std::size_t>(r * kCols) * 2;
    ASSERT_TRUE(gpu::download(row.data(), y.data() + at, row.size() * 2).ok());
    for (const std::uint16_t value : row) ASSERT_EQ(value, kExpected) << "row " << r;
  }
}

}  // namespace
}  // namespace onepass

#endif
