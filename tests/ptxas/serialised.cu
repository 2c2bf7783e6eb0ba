// What the check of 20_hopper.cu must catch: a product inside of a branch that threads may take
// differently. ptxas would have to say on each path that registers are ready, cannot, and lets
// every product end before the next.
#include "core/cuda/wgmma.cuh"

__global__ void serialised(float* out, std::uint64_t left, std::uint64_t right, const int* steps) {
  float s[64] = {};
  const unsigned weights[4] = {1, 2, 3, 4};
#pragma unroll 1
  for (int i = 0; i < steps[threadIdx.x]; ++i) {
    onepass::wgmma::fence();
    onepass::wgmma::scores<onepass::BF16, true>(s, left, right);
    onepass::wgmma::commit();
    if (i > 0) {
      onepass::wgmma::sums<onepass::BF16>(s, weights, right);
      onepass::wgmma::commit();
    }
  }
  onepass::wgmma::wait<0>();
  for (int i = 0; i < 64; ++i) out[i * 128 + threadIdx.x] = s[i];
}
