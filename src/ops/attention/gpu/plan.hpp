// What the launches of attention on a GPU have in common, and that of the kernel for any GPU.
#pragma once

#include <string>

#include "core/integers.hpp"
#include "core/machine.hpp"
#include "core/problem.hpp"
#include "ops/attention/sight.hpp"

namespace onepass {
struct Plan;
}

namespace onepass::gpu_attention {

inline constexpr std::int64_t kFewRows = 16;  // of a kv head, that one warp has

// What a launch cannot have.
template <class Launch>
std::string refuse_size(const AttentionFacts& a, const Launch& launch, const Machine& m) {
  if (a.queries * a.group() > kMost32 || a.keys > kMost32) {
    return "its rows and keys are counted with 31 bits";
  }
  if (launch.blocks > kMost32) return "it would be " + std::to_string(launch.blocks) + " blocks";
  if (launch.shared_bytes > static_cast<std::size_t>(m.gpu.block_shared)) {
    return "it needs " + std::to_string(launch.shared_bytes) + " bytes of shared memory per block";
  }
  return {};
}

inline std::string refuse_any(const Problem& p, const Machine& m) {
  if (m.device() != Device::cuda) return "it runs on a GPU";
  if (p.in == DType::f64 || p.out == DType::f64) return "it takes and gives f32, f16 and bf16";
  if (!p.attention.one_dim()) return "its values have the dim of its keys";
  return {};
}

inline std::string refuse_tensor_cores(const Problem& p, const Machine& m) {
  if (std::string no = refuse_any(p, m); !no.empty()) return no;
  if (m.gpu.sm < 80) return "it needs sm_80";
  if (p.in != DType::f16 && p.in != DType::bf16) return "it takes f16 and bf16";
  return {};
}

// ---- simt: a warp per row -----------------------------------------------------------------------

struct SimtLaunch {
  std::int64_t blocks = 0;
  int threads = 0;
  std::size_t shared_bytes = 0;

  Plan plan() const;
  bool operator==(const SimtLaunch&) const = default;
};

inline SimtLaunch simt(const Problem& p, const Machine&) {
  const AttentionFacts& a = p.attention;
  return {.blocks = ceil_div(a.queries * a.group(), 8) * a.kv_heads * a.batch,
          .threads = 256,
          .shared_bytes = static_cast<std::size_t>(72 * (a.dim + 1) * 4)};
}

inline std::string refuse_simt(const Problem& p, const Machine& m) {
  if (std::string no = refuse_any(p, m); !no.empty()) return no;
  return refuse_size(p.attention, simt(p, m), m);
}

}  // namespace onepass::gpu_attention
