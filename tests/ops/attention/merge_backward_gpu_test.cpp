// merge_attention_backward on the GPU beside the CPU's.

#ifdef ONEPASS_HAS_CUDA

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "onepass/onepass.hpp"
#include "tests/support/copies.hpp"

namespace onepass {
namespace {

using namespace test;

// Rows that a few lanes, and more than a warp, have; results that weigh nothing.
TEST(MergeAttentionBackwardGpuTest, GradientsAreThoseOfTheCpu) {
  if (const Status status = gpu::available(); !status.ok()) GTEST_SKIP() << status.message();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (const std::int64_t dim : {8, 64, 200}) {
      SCOPED_TRACE(testing::Message() << name(dtype) << " " << dim);
      constexpr std::int64_t kRows = 37;
      std::vector<Values> in, out;
      for (const unsigned seed : {1U, 2U, 3U}) in.push_back(random(dtype, {kRows, dim}, seed));
      for (const unsigned seed : {4U, 5U, 6U}) in.push_back(random(DType::f32, {kRows}, seed));
      in[3].set(7, -kInf);
      in[3].set(9, -kInf);
      in[4].set(9, -kInf);
      in[4].set(11, -kInf);
      for (int i = 0; i < 2; ++i) out.emplace_back(dtype, std::vector<std::int64_t>{kRows, dim});
      for (int i = 0; i < 2; ++i) out.emplace_back(DType::f32, std::vector<std::int64_t>{kRows});
      std::vector<Values> found = out;
      const auto run = [&](const Context& context, std::vector<Values>& to, auto place) {
        return merge_attention_backward(context, place(in[0]), place(in[3]), place(in[1]),
                                        place(in[4]), place(in[2]), place(in[5]), place(to[0]),
                                        place(to[2]), place(to[1]), place(to[3]));
      };
      ASSERT_TRUE(run(Context::cpu(), out, [](Values& x) { return x.tensor(); }).ok());
      Copies copies;
      const Status status = run(Context::cuda(), found, [&](Values& x) { return copies(x); });
      ASSERT_TRUE(status.ok()) << status.message();
      copies.bring_back();
      const double step = dtype == DType::bf16 ? 1e-2 : 1e-6;
      for (std::size_t i = 0; i < out.size(); ++i) {
        const double relative = i < 2 ? step : 1e-5;
        for (std::int64_t j = 0; j < out[i].size(); ++j) {
          const double expected = out[i].get(j);
          ASSERT_NEAR(found[i].get(j), expected, 1e-6 + relative * std::abs(expected))
              << i << " " << j;
        }
      }
    }
  }
}

}  // namespace
}  // namespace onepass

#endif
