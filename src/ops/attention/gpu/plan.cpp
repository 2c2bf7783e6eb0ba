#include "ops/attention/gpu/plan.hpp"

#include "core/reasons.hpp"
#include "onepass/plan.hpp"

namespace onepass::gpu_attention {

Plan SimtLaunch::plan() const {
  return {.threads = threads, .blocks = blocks, .details = text_of("shared=", shared_bytes)};
}

}  // namespace onepass::gpu_attention
