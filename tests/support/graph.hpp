// What a stream captures, replayed.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "onepass/status.hpp"
#include "runtime/gpu.hpp"

namespace onepass::test {

// Captures run() on a stream, forgets its outputs, and replays it; waits for the end.
template <class Run, class Poison>
void replay_in_graph(cudaStream_t stream, int times, Run run, Poison poison) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  const Status status = run();
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  poison();
  ASSERT_TRUE(gpu::synchronize().ok());
  for (int i = 0; i < times; ++i) ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

}  // namespace onepass::test
