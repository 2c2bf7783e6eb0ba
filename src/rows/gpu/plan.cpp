#include "rows/gpu/plan.hpp"

#include "core/reasons.hpp"
#include "onepass/plan.hpp"

namespace onepass::gpu_rows {

Plan GroupLaunch::plan() const {
  return {.threads = threads,
          .blocks = blocks,
          .details = text_of("row_threads=", row_threads, " packs=", packs, word(" whole", whole),
                             word(" general", general))};
}

Plan BlockLaunch::plan() const {
  return {.threads = threads,
          .blocks = blocks,
          .split = cluster,
          .details =
              text_of("packs=", packs, " chunk=", chunk, " shared=", shared_bytes,
                      word(" looped", looped), word(" whole", whole), word(" general", general))};
}

Plan GridLaunch::plan() const {
  return {.threads = threads,
          .blocks = blocks,
          .split = split,
          .scratch_bytes = scratch_bytes,
          .details = text_of("packs=", packs, " chunk=", chunk, " shared=", shared_bytes,
                             word(" looped", looped), word(" reread", !resident),
                             word(" general", general))};
}

}  // namespace onepass::gpu_rows
