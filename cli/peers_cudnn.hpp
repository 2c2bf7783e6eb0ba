// cuDNN's softmax, through its own API. Where cuDNN was not found, it says so.
#pragma once

#include <functional>
#include <string>

#include "cli/call.hpp"

namespace onepass::cli {

bool cudnn_computes(Op op, Device device);
std::string cudnn_obstacle();
Status prepare_cudnn_accurate(const Call& call, int threads, std::function<void()>& run);
Status prepare_cudnn_fast(const Call& call, int threads, std::function<void()>& run);

}  // namespace onepass::cli
