// What only a GPU can show: errors that leave it usable, streams, graphs, threads, determinism.
// That the variants compute the right thing is `onepass verify`'s business, and of
// VariantsGpuTest here.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "cli/gpu/apparatus.hpp"
#include "cli/measure/verify.hpp"
#include "cli/problem/case.hpp"
#include "dispatch/variant.hpp"
#include "onepass/onepass.hpp"

#ifdef ONEPASS_HAS_CUDA
#include <cuda_runtime_api.h>
#endif

namespace onepass {
namespace {

class SoftmaxGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const Status status = gpu::available(); !status.ok()) GTEST_SKIP() << status.message();
    ASSERT_TRUE(x_.allocate(kBytes).ok());
    ASSERT_TRUE(y_.allocate(kBytes).ok());
    std::vector<float> ones(kBytes / sizeof(float), 1.0F);
    ASSERT_TRUE(gpu::upload(x_.data(), ones.data(), kBytes).ok());
  }

  Status run(std::string_view variant, const Context& context = Context::cuda()) {
    return softmax(context, x(), y(), {.variant = variant});
  }
  ConstTensor x() const { return {x_.data(), DType::f32, {kRows, kCols}}; }
  Tensor y() const { return {y_.data(), DType::f32, {kRows, kCols}}; }

  // After whatever went wrong: a call that must work, and does.
  void expect_usable(const Context& context = Context::cuda()) {
    ASSERT_TRUE(gpu::fill(y_.data(), 0xFF, kBytes).ok());
    const Status status = run("online", context);
    EXPECT_TRUE(status.ok()) << status.message();
    const Status done = gpu::synchronize();
    EXPECT_TRUE(done.ok()) << done.message();
    float last = 0;
    ASSERT_TRUE(gpu::download(&last, y_.data() + kBytes - sizeof last, sizeof last).ok());
    EXPECT_FLOAT_EQ(last, 1.0F / kCols);
  }

  static constexpr std::int64_t kRows = 64;
  static constexpr std::int64_t kCols = 512;
  static constexpr std::size_t kBytes = kRows * kCols * sizeof(float);
  gpu::Buffer x_, y_;
};

TEST_F(SoftmaxGpuTest, HostMemoryIsRefusedByName) {
  std::vector<float> host(kRows * kCols, 1.0F);
  const Status status = softmax(Context::cuda(), {host.data(), DType::f32, {kRows, kCols}}, y(),
                                {.variant = "online"});
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find("x: address"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("GPU can reach"), std::string::npos) << status.message();
  const Status output = softmax(Context::cuda(), x(), {host.data(), DType::f32, {kRows, kCols}});
  EXPECT_NE(output.message().find("y: address"), std::string::npos) << output.message();
  expect_usable();
}

// Nothing is launched: what would be asked next is refused.
TEST_F(SoftmaxGpuTest, ATrustedPointerIsNotAskedAbout) {
  std::vector<float> host(kRows * kCols, 1.0F);
  const auto refused = [&](const Context& context) {
    return softmax(context.with_workspace(x_.data(), 1), {host.data(), DType::f32, {kRows, kCols}},
                   y(), {.variant = "split_k"})
        .message();
  };
  EXPECT_NE(refused(Context::cuda()).find("x: address"), std::string::npos);
  EXPECT_NE(refused(Context::cuda().trusting()).find("a workspace of 1 bytes"), std::string::npos);
  expect_usable(Context::cuda().trusting());
}

TEST_F(SoftmaxGpuTest, AnElementBetweenElementsIsRefused) {
  const Status status =
      softmax(Context::cuda(), {x_.data() + 2, DType::f32, {kRows, kCols - 1}},
              Tensor{y_.data(), DType::f32, {kRows, kCols - 1}}, {.variant = "online"});
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find("not aligned"), std::string::npos) << status.message();
  expect_usable();
}

TEST_F(SoftmaxGpuTest, VariantsThatCannotRun) {
  EXPECT_EQ(run("cpu_row").code(), Code::unsupported);
  EXPECT_EQ(run("no_such").code(), Code::invalid_argument);
  const std::int64_t cols = 8193;
  const Status longer =
      softmax(Context::cuda(), {x_.data(), DType::f32, {1, cols}},
              Tensor{y_.data(), DType::f32, {1, cols}}, {.variant = "register_packed"});
  EXPECT_EQ(longer.code(), Code::unsupported);
  EXPECT_NE(longer.message().find("8192"), std::string::npos) << longer.message();
  const Status on_cpu = softmax(Context::cpu(), x(), y(), {.variant = "online"});
  EXPECT_EQ(on_cpu.code(), Code::unsupported);
  expect_usable();
}

TEST_F(SoftmaxGpuTest, MemoryThatIsNotToBeHad) {
  gpu::Buffer huge;
  const Status status = huge.allocate(std::size_t{1} << 46);
  EXPECT_EQ(status.code(), Code::out_of_memory);
  EXPECT_NE(status.message().find("70368744177664"), std::string::npos) << status.message();
  expect_usable();
}

TEST_F(SoftmaxGpuTest, AWorkspaceOfTheCallers) {
  Plan plan;
  ASSERT_TRUE(softmax(Context::cuda(), x(), y(), {.variant = "split_k", .plan = &plan}).ok());
  ASSERT_GT(plan.scratch_bytes, 0U);
  gpu::Buffer memory;
  ASSERT_TRUE(memory.allocate(plan.scratch_bytes).ok());
  const Context enough = Context::cuda().with_workspace(memory.data(), memory.size());
  EXPECT_TRUE(run("split_k", enough).ok());
  const Context less = Context::cuda().with_workspace(memory.data(), plan.scratch_bytes - 1);
  const Status status = run("split_k", less);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find(std::to_string(plan.scratch_bytes)), std::string::npos);
  expect_usable();
}

TEST_F(SoftmaxGpuTest, NothingToDo) {
  const Tensor empty{y_.data(), DType::f32, {0, kCols}};
  EXPECT_TRUE(softmax(Context::cuda(), empty, empty, {.variant = "split_k_single"}).ok());
  const Tensor thin{y_.data(), DType::f32, {kRows, 0}};
  EXPECT_TRUE(softmax(Context::cuda(), thin, thin, {.variant = "naive"}).ok());
  expect_usable();
}

#ifdef ONEPASS_HAS_CUDA

std::vector<std::string_view> gpu_variants() {
  std::vector<std::string_view> names;
  for (const Variant& v : variants(Op::softmax)) {
    if (v.device == Device::cuda) names.push_back(v.name);
  }
  return names;
}

// Captured once, replayed: the same bits as the call itself.
TEST_F(SoftmaxGpuTest, EveryVariantGoesIntoAGraph) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  const Context context = Context::cuda(stream);
  for (const std::string_view variant : gpu_variants()) {
    ASSERT_TRUE(run(variant, context).ok()) << variant;  // its workspace is there from now on
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    std::vector<float> direct(kRows * kCols);
    ASSERT_TRUE(gpu::download(direct.data(), y_.data(), kBytes).ok());
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    const Status status = run(variant, context);
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess) << variant;
    ASSERT_TRUE(status.ok()) << variant << ": " << status.message();
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    ASSERT_TRUE(gpu::fill(y_.data(), 0xFF, kBytes).ok());
    ASSERT_TRUE(gpu::synchronize().ok());
    ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    std::vector<float> replayed(kRows * kCols);
    ASSERT_TRUE(gpu::download(replayed.data(), y_.data(), kBytes).ok());
    EXPECT_EQ(direct, replayed) << variant;
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
  }
  cudaStreamDestroy(stream);
}

TEST_F(SoftmaxGpuTest, WithoutItsWorkspaceACaptureIsRefused) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  const Status status = run("split_k", Context::cuda(stream));
  cudaStreamEndCapture(stream, &graph);
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_NE(status.message().find("captured"), std::string::npos) << status.message();
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  expect_usable();
}

TEST_F(SoftmaxGpuTest, FromAThreadThatWasNeverOnTheGpu) {
  Status status;
  std::thread([&] { status = run(""); }).join();
  EXPECT_TRUE(status.ok()) << status.message();
  expect_usable();
}

// cudaStreamPerThread is one handle for the streams of all threads.
TEST_F(SoftmaxGpuTest, AThreadsOwnStreamHasItsOwnWorkspace) {
  const auto workspace = [](cudaStream_t stream) {
    std::byte* memory = nullptr;
    EXPECT_TRUE(gpu::workspace(stream, 1024, memory).ok());
    return memory;
  };
  std::byte* mine = workspace(cudaStreamPerThread);
  std::byte* shared = workspace(nullptr);
  EXPECT_EQ(workspace(cudaStreamPerThread), mine);
  EXPECT_NE(mine, shared);
  std::thread([&] {
    EXPECT_NE(workspace(cudaStreamPerThread), mine);
    EXPECT_EQ(workspace(nullptr), shared);
  }).join();
}

// Each thread on its own stream, with its own output: nobody gets somebody else's workspace.
TEST_F(SoftmaxGpuTest, FromSeveralThreads) {
  constexpr int kThreads = 4;
  std::vector<gpu::Buffer> outputs(kThreads);
  std::vector<std::string> problems(kThreads);
  for (gpu::Buffer& each : outputs) ASSERT_TRUE(each.allocate(kBytes).ok());
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      cudaStream_t stream = nullptr;
      cudaStreamCreate(&stream);
      const auto at = static_cast<std::size_t>(i);
      const Tensor out{outputs[at].data(), DType::f32, {kRows, kCols}};
      for (int repeat = 0; repeat < 50; ++repeat) {
        for (const std::string_view variant : {"split_k", "split_k_single", "online"}) {
          const Status status = softmax(Context::cuda(stream), x(), out, {.variant = variant});
          if (!status.ok()) problems[at] = status.message();
        }
      }
      if (cudaStreamSynchronize(stream) != cudaSuccess) problems[at] = "synchronize";
      cudaStreamDestroy(stream);
    });
  }
  for (std::thread& each : threads) each.join();
  for (int i = 0; i < kThreads; ++i) {
    const auto at = static_cast<std::size_t>(i);
    EXPECT_EQ(problems[at], "");
    std::vector<float> got(kRows * kCols);
    ASSERT_TRUE(gpu::download(got.data(), outputs[at].data(), kBytes).ok());
    for (const float value : got) ASSERT_FLOAT_EQ(value, 1.0F / kCols);
  }
}

#endif

// Every variant against the oracle, on the committed workload.
TEST(VariantsGpuTest, MatchTheOracle) {
  if (const Status status = gpu::available(); !status.ok()) GTEST_SKIP() << status.message();
  std::vector<cli::Case> cases;
  ASSERT_TRUE(
      cli::read_workload(ONEPASS_SOURCE_DIR "/workloads/test_gpu_softmax.txt", Op::softmax, cases)
          .ok());
  std::size_t checked = 0;
  for (const cli::Case& given : cases) {
    for (const cli::Case& c : cli::expand(given, false)) {
      const cli::Verdict verdict = cli::verify(c);
      EXPECT_EQ(verdict.kind, cli::Verdict::Kind::passed) << cli::to_string(c) << "\n"
                                                          << verdict.message;
      ++checked;
    }
  }
  EXPECT_GT(checked, 400U);
}

}  // namespace
}  // namespace onepass
