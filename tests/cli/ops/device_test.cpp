// Problems that belong to a GPU, on a machine with or without one.
// Not under sanitizers: starts the program, which the subset does not build.
#include <gtest/gtest.h>

#include "cli/measure/verify.hpp"
#include "cli/ops/call.hpp"
#include "cli/problem/case.hpp"
#include "dispatch/variant.hpp"
#include "ops/softmax/check.hpp"
#include "rows/describe.hpp"
#include "rows/gpu/plan.hpp"
#include "runtime/gpu.hpp"
#include "tests/support/problem.hpp"
#include "tests/support/program.hpp"

namespace onepass::cli {
namespace {

TEST(DeviceTest, AVariantBringsItsDevice) {
  Case c;
  ASSERT_TRUE(parse_case("softmax 4x8 f16 variant=online", c).ok());
  EXPECT_EQ(c.device, Device::cuda);
  EXPECT_EQ(to_string(c), "softmax 4x8 f16 variant=online device=cuda");
  ASSERT_TRUE(parse_case("softmax 4x8 variant=cpu_row", c).ok());
  EXPECT_EQ(c.device, Device::cpu);
  ASSERT_TRUE(parse_case("softmax 4x8 device=cuda out_offset=3", c).ok());
  EXPECT_EQ(c.device, Device::cuda);
  EXPECT_EQ(to_string(c), "softmax 4x8 f32 out_offset=3 device=cuda");
  EXPECT_FALSE(parse_case("softmax 4x8 device=abacus", c).ok());
}

TEST(DeviceTest, RowsAtOneStride) {
  const auto even = [](const char* text) {
    Case c;
    EXPECT_TRUE(parse_case(text, c).ok());
    return problem_of(c).even_rows;
  };
  EXPECT_TRUE(even("softmax 8 f32"));
  EXPECT_TRUE(even("softmax 4x8 f32 pad=3"));
  EXPECT_TRUE(even("softmax 2x3x4x8 f32"));
  EXPECT_TRUE(even("softmax 3x5 f32 axis=0"));
  EXPECT_FALSE(even("softmax 2x3x5 f32 axis=1"));
}

// What an op sees of a problem's tensors, which must be what the problem says without them.
Problem described(const char* text) {
  Case c;
  EXPECT_TRUE(parse_case(text, c).ok());
  Call call;
  EXPECT_TRUE(call.make(c).ok());
  RowArgs args;
  EXPECT_TRUE(check_softmax(c.op, call.in().tensor(), call.out().tensor(),
                            {.axis = static_cast<int>(c.axis_index())}, args)
                  .ok());
  const Problem seen = describe(args);
  EXPECT_EQ(seen.aligned_rows, problem_of(c).aligned_rows) << text;
  EXPECT_EQ(seen.packed_rows, problem_of(c).packed_rows) << text;
  return seen;
}

// A kernel that believes in a boundary that is not there would leave out the end of the row.
TEST(DeviceTest, RowsThatBeginAtABoundary) {
  const auto aligned = [](const char* text) { return described(text).aligned_rows; };
  EXPECT_TRUE(aligned("softmax 5x8 f32"));
  EXPECT_TRUE(aligned("softmax 1x7 f32"));
  EXPECT_TRUE(aligned("softmax 3x8 f16 offset=8"));
  EXPECT_TRUE(aligned("softmax 3x5 f32 pad=3"));
  EXPECT_TRUE(aligned("softmax 2x3x4 f32"));
  EXPECT_FALSE(aligned("softmax 5x7 f32"));
  EXPECT_FALSE(aligned("softmax 5x12 f16"));
  EXPECT_FALSE(aligned("softmax 5x8 f32 offset=1"));
  EXPECT_FALSE(aligned("softmax 1x8 bf16 offset=4"));
  EXPECT_FALSE(aligned("softmax 3x8 f32 pad=1"));
}

// Elements of the output that lie apart say nothing of where the input's rows begin.
TEST(DeviceTest, ADenseInputBesideAStridedOutput) {
  alignas(16) float memory[1024] = {};
  const auto packs = [&](std::int64_t x_stride, std::int64_t y_stride) {
    constexpr std::int64_t rows = 3, cols = 6;
    RowArgs args;
    const Status status = check_softmax(
        Op::softmax, {memory, DType::f32, {rows, cols}, {cols * x_stride, x_stride}},
        Tensor(memory + 512, DType::f32, {rows, cols}, {cols * y_stride, y_stride}), {}, args);
    EXPECT_TRUE(status.ok()) << status.message();
    return gpu_rows::packs(describe(args));
  };
  EXPECT_EQ(packs(1, 2), 2);  // a row may begin with the last element of 16 bytes
  EXPECT_EQ(packs(2, 1), 1);
  EXPECT_EQ(packs(2, 2), 1);
}

TEST(DeviceTest, RowsThatBeginAndEndAtOne) {
  const auto packed = [](const char* text) { return described(text).packed_rows; };
  EXPECT_TRUE(packed("softmax 5x8 f32"));
  EXPECT_TRUE(packed("log_softmax 2x3x16 bf16 pad=8"));
  EXPECT_TRUE(packed("softmax 5x16 f16:f32"));
  EXPECT_FALSE(packed("softmax 5x12 f16:f32"));
  EXPECT_FALSE(packed("softmax 5x10 f32 pad=2"));
  EXPECT_FALSE(packed("softmax 5x8 f32 offset=0 out_offset=1"));
  EXPECT_FALSE(packed("softmax 5x8 f32 offset=1 out_offset=0"));
  EXPECT_FALSE(packed("softmax 5x8x3 f32 axis=1"));
}

TEST(DeviceTest, WithoutAGpuTheErrorSaysSo) {
  const Status status = gpu::available();
  if (status.ok()) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_NE(status.message().find("cuda: "), std::string::npos);
  float x[4] = {1, 2, 3, 4};
  float y[4] = {9, 9, 9, 9};
  const Status ran = softmax(Context::cuda(), {x, DType::f32, {1, 4}},
                             Tensor{y, DType::f32, {1, 4}}, {.variant = "online"});
  EXPECT_EQ(ran.code(), Code::unsupported);
  EXPECT_EQ(ran.message(), status.message());
  EXPECT_EQ(y[0], 9);
  Case c;
  ASSERT_TRUE(parse_case("softmax 4x8 device=cuda", c).ok());
  EXPECT_EQ(Call().make(c).code(), Code::unsupported);
  const std::vector<Case> expanded = expand(c, false);
  ASSERT_EQ(expanded.size(), 1U);
  EXPECT_EQ(verify(expanded[0]).kind, Verdict::Kind::failed);
}

TEST(DeviceTest, WithoutAGpuVerifyLeavesItsVariantsOut) {
  if (gpu::available().ok()) GTEST_SKIP() << "there is a GPU";
  Case c;
  ASSERT_TRUE(parse_case("softmax 4x8", c).ok());
  for (const Case& each : expand(c, true)) EXPECT_EQ(each.device, Device::cpu) << to_string(each);
}

using DeviceProgramTest = ProgramTest;

TEST_F(DeviceProgramTest, ListShowsTheWalkEverywhere) {
  const Outcome outcome = run({"list"});
  EXPECT_EQ(outcome.exit, kDone);
  for (const Variant& v : variants(Op::softmax)) {
    EXPECT_NE(outcome.out.find(std::string(v.name)), std::string::npos) << v.name;
  }
  EXPECT_NE(outcome.out.find("cudnn_accurate"), std::string::npos);
}

TEST_F(DeviceProgramTest, ExplainPlansForAGpuThatIsNotHere) {
  const Outcome outcome =
      run({"explain", "softmax", "4x1048576", "f16", "variant=split_k", "--machine", "h200"});
  EXPECT_EQ(outcome.exit, kDone) << outcome.err;
  EXPECT_NE(outcome.out.find("132 SMs"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("blocks="), std::string::npos) << outcome.out;
  const Outcome beyond =
      run({"explain", "softmax", "4x8193", "f16", "variant=register_packed", "--machine", "h200"});
  EXPECT_EQ(beyond.exit, kCannot);
  EXPECT_NE(beyond.err.find("8192"), std::string::npos) << beyond.err;
  // As the library would on that machine: there a greedy row has one candidate, on a CPU it
  // has a usual number.
  const Outcome greedy =
      run({"explain", "sample", "1024x128256", "f32", "temperature=0", "--machine", "h200"});
  EXPECT_NE(greedy.out.find("gpu_stream"), std::string::npos) << greedy.out;
  const Outcome on_cpu =
      run({"explain", "softmax", "4x8", "variant=online", "--machine", "avx2-8"});
  EXPECT_EQ(on_cpu.exit, kCannot);
  EXPECT_NE(on_cpu.err.find("it runs on a GPU"), std::string::npos) << on_cpu.err;
}

TEST_F(DeviceProgramTest, BenchOfTwoDevicesIsTwoTables) {
  const std::string two = path("two.txt");
  std::ofstream(two) << "softmax 2x4 f32\nsoftmax 2x4 f32 device=cuda\n";
  const Outcome outcome = run({"bench", "--workload", two});
  EXPECT_EQ(outcome.exit, kUsage);
  EXPECT_NE(outcome.err.find("device: "), std::string::npos) << outcome.err;
}

TEST_F(DeviceProgramTest, BenchWithoutAGpu) {
  if (gpu::available().ok()) GTEST_SKIP() << "there is a GPU";
  const Outcome outcome =
      run({"bench", "softmax", "--rows", "2", "--cols", "4", "--device", "cuda"});
  EXPECT_EQ(outcome.exit, kCannot);
  EXPECT_NE(outcome.err.find("cuda: "), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace onepass::cli
