#include "ops/attention/gpu/flash/plan.hpp"

#include "core/reasons.hpp"
#include "onepass/plan.hpp"

namespace onepass::gpu_attention {

Plan FlashLaunch::plan() const {
  return {.threads = threads,
          .blocks = blocks,
          .split = parts,
          .scratch_bytes = scratch_bytes,
          .details = text_of("cluster=", cluster, " part_keys=", part_keys, " tile_keys=",
                             tile_keys, " shared=", shared_bytes, word(" unaligned", !aligned))};
}

}  // namespace onepass::gpu_attention
