// What a variant was decided to run with: a type for each family of kernels. A kernel's
// launcher takes its own.
#pragma once

#include <variant>

#include "ops/attention/cpu/backward_plan.hpp"
#include "ops/attention/cpu/plan.hpp"
#include "ops/attention/gpu/backward/hopper/plan.hpp"
#include "ops/attention/gpu/backward/plan.hpp"
#include "ops/attention/gpu/flash/plan.hpp"
#include "ops/attention/gpu/hopper/plan.hpp"
#include "ops/attention/gpu/plan.hpp"
#include "ops/loss/gpu/plan.hpp"
#include "ops/select/gpu/plan.hpp"
#include "ops/select/gpu/stream_plan.hpp"
#include "rows/cpu/plan.hpp"
#include "rows/gpu/plan.hpp"
#ifdef ONEPASS_HAS_WALK
#include "ops/attention/walk/plan.hpp"
#include "ops/select/walk/plan.hpp"
#include "ops/softmax/walk/plan.hpp"
#endif

namespace onepass {

using Launch =
    std::variant<CpuLaunch, gpu_rows::GroupLaunch, gpu_rows::BlockLaunch, gpu_rows::GridLaunch,
                 gpu_rows::WeightedLaunch, gpu_select::SelectLaunch, gpu_select::StreamLaunch,
                 gpu_select::LanesLaunch, gpu_select::SortLaunch, CpuAttentionLaunch,
                 CpuAttentionBackwardLaunch, gpu_attention::SimtLaunch, gpu_attention::FlashLaunch,
                 gpu_attention::HopperLaunch, gpu_attention::BackwardSimtLaunch,
                 gpu_attention::BackwardFlashLaunch, gpu_attention::BackwardHopperLaunch
#ifdef ONEPASS_HAS_WALK
                 ,
                 ops::softmax::WalkLaunch, ops::select::WalkLaunch, ops::attention::WalkLaunch
#endif
                 >;

// Of a variant of alternatives, those of Launch.
template <class... Some>
Launch widened(const std::variant<Some...>& some) {
  return std::visit([](const auto& launch) -> Launch { return launch; }, some);
}

// What a launch asks for of the workspace, or per worker.
inline std::size_t scratch_bytes(const Launch& launch) {
  return std::visit(
      [](const auto& each) -> std::size_t {
        if constexpr (requires { each.scratch_bytes; }) return each.scratch_bytes;
        return 0;
      },
      launch);
}

// Bytes that it moves beside inputs and outputs, where it says so.
inline double extra_bytes(const Launch& launch) {
  return std::visit(
      [](const auto& each) -> double {
        if constexpr (requires { each.extra_bytes; }) return each.extra_bytes;
        return 0;
      },
      launch);
}

// Whether it reads x from memory once.
inline bool resident(const Launch& launch) {
  return std::visit(
      [](const auto& each) {
        if constexpr (requires { each.resident; }) return each.resident;
        return true;
      },
      launch);
}

}  // namespace onepass
