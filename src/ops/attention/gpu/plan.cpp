#include "ops/attention/gpu/plan.hpp"

#include "core/reasons.hpp"
#include "ops/attention/gpu/flash/plan.hpp"
#include "ops/attention/gpu/hopper/plan.hpp"

namespace onepass::attention_launch {

Plan SimtLaunch::plan() const {
  return {
      .threads = threads, .blocks = blocks, .details = text_of("shared=", shared_bytes)};
}

Plan FlashLaunch::plan() const {
  return {.threads = threads,
          .blocks = blocks,
          .split = parts,
          .scratch_bytes = scratch_bytes,
          .details = text_of("cluster=", cluster, " part_keys=", part_keys, " tile_keys=", tile_keys,
                             " shared=", shared_bytes, word(" unaligned", !aligned))};
}

Plan HopperLaunch::plan() const {
  return {.threads = tile.threads(),
          .blocks = blocks,
          .details = text_of("tile=", tile.rows(), "x", tile.keys, word(" paired", paired))};
}

}  // namespace onepass::attention_launch
