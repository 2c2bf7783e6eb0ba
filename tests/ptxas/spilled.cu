// The other thing that it must catch: more values at once than 32 registers hold.
__global__ void __launch_bounds__(1024, 2) spilled(float* data) {
  float x[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) x[i] = data[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 64; ++i) data[i * 1024 + threadIdx.x] = x[63 - i] * x[i / 2];
}
