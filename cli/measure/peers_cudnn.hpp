// cuDNN's softmax and attention, through its own APIs. Where cuDNN was not found, they say so.
#pragma once

#include <functional>
#include <string>

#include "cli/ops/call.hpp"

struct cudnnContext;

namespace onepass::cli {

bool cudnn_computes(Op op, Device device);
std::string cudnn_obstacle();
Status prepare_cudnn_accurate(const Call& call, int threads, std::function<void()>& run);
Status prepare_cudnn_fast(const Call& call, int threads, std::function<void()>& run);

// What a cudnnHandle_t points to: one for the program's life, as making it takes a
// tenth of a second.
Status cudnn_handle(cudnnContext*& out);

// Attention needs the headers of cuDNN's frontend, too.
bool cudnn_attends(Op op, Device device);
std::string cudnn_sdpa_obstacle();
Status prepare_cudnn_sdpa(const Call& call, int threads, std::function<void()>& run);

}  // namespace onepass::cli
