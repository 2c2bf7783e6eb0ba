#include "ops/attention/gpu/hopper/plan.hpp"

#include "core/reasons.hpp"
#include "onepass/plan.hpp"

namespace onepass::gpu_attention {

Plan HopperLaunch::plan() const {
  return {.threads = tile.threads(),
          .blocks = blocks,
          .details = text_of("tile=", tile.rows(), "x", tile.keys, word(" paired", paired))};
}

}  // namespace onepass::gpu_attention
