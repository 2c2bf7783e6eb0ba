// What the parts of the keys found of a row, as one: a block a row. Always in the order of the parts, whoever was
// done first.

#include <cuda_runtime.h>

#include "core/dependent.cuh"
#include "core/state.hpp"
#include "merge/block.cuh"
#include "ops/attention/logit.hpp"
#include "ops/attention/parts.hpp"
#include "runtime/launch.hpp"

namespace onepass::ops::attention {
namespace {

constexpr int kThreads = 256;

// The token of q that a row's number stands for.
struct Token {
  std::int64_t batch, head, query;
};

__device__ inline Token token_of(const AttentionArgs& a, std::int64_t row) {
  return {row / a.queries / a.heads, row / a.queries % a.heads, row % a.queries};
}

__device__ inline void add(float4& sum, const float4& more, float by) {
  sum.x += by * more.x;
  sum.y += by * more.y;
  sum.z += by * more.z;
  sum.w += by * more.w;
}

// Threads in groups of as many as a row has fours: each group sums every so-manieth part.
__global__ __launch_bounds__(kThreads) void join(const __grid_constant__ AttentionArgs a,
                                                 const Parts parts) {
  __shared__ BlockFold<Merge<float>>::Scratch scratch;
  __shared__ float4 sums[kThreads];
  const auto thread = static_cast<int>(threadIdx.x);
  const std::int64_t row = blockIdx.x;
  const Token token = token_of(a, row);
  await_previous();
  if (a.q_offsets && token.query >= a.q_offsets[a.batch]) return;  // of no sequence

  State<float> mine = identity<float>();
  for (int i = thread; i < parts.count; i += kThreads) {
    const float lse = parts.lse[parts.place(i, row)];
    mine = merge(mine, leaf(lse));
  }
  const State<float> keys = BlockFold<Merge<float>>(scratch).all(mine);
  const State<float> all = a.sinks ? merge(keys, first_state(a, token.head)) : keys;

  const int fours = a.dim / 4;
  const int groups = kThreads / fours;
  const int group = thread / fours;
  const int column = thread % fours;
  float4 sum{0, 0, 0, 0};
#pragma unroll 8
  for (int i = group; i < parts.count && group < groups; i += groups) {
    const std::int64_t place = parts.place(i, row);
    const float lse = parts.lse[place];
    const float4 mean = reinterpret_cast<const float4*>(parts.means + place * a.dim)[column];
    if (lse != minus_infinity<float>()) add(sum, mean, weight(all, lse));  // else it saw nothing
  }
  sums[thread] = sum;
  __syncthreads();
  if (group == 0) {
    for (int g = 1; g < groups; ++g) add(sum, sums[g * fours + column], 1);
    const std::int64_t at = a.o.offset(token.batch, token.head, token.query) + 4 * column;
    write(a.o.data, a.o.dtype, at, sum.x);
    write(a.o.data, a.o.dtype, at + 1, sum.y);
    write(a.o.data, a.o.dtype, at + 2, sum.z);
    write(a.o.data, a.o.dtype, at + 3, sum.w);
  }
  if (a.lse && thread == 0) {
    write(a.lse.data, a.lse.dtype, a.lse.offset(token.batch, token.head, token.query),
          logsumexp(all));
  }
}

// Its blocks may come while the parts are still at work: on a GPU that has no such launches it comes after them.
cudaLaunchAttribute early() {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  return attribute;
}

bool has_early_launches() {
  int device = 0;
  int major = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  return major >= 9;
}

}  // namespace

Status join_parts(const AttentionArgs& a, const Parts& parts) {
  cudaLaunchAttribute attribute = early();
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(parts.rows);
  config.blockDim = kThreads;
  config.stream = static_cast<cudaStream_t>(a.stream);
  config.attrs = &attribute;
  config.numAttrs = has_early_launches() ? 1 : 0;
  cudaLaunchKernelEx(&config, join, a, parts);
  return launch_status("join");
}

}  // namespace onepass::ops::attention
