#include "ops/select/gpu/plan.hpp"
#include "ops/select/gpu/stream_plan.hpp"

#include "core/reasons.hpp"
#include "onepass/plan.hpp"

namespace onepass::gpu_select {

Plan SelectLaunch::plan() const {
  return {.threads = threads,
          .blocks = blocks,
          .split = parts,
          .scratch_bytes = scratch_bytes,
          .details = text_of("packs=", packs, " stages=", stages, " segment=", segment,
                             " shared=", shared_bytes, word(" general", general))};
}

Plan StreamLaunch::plan() const {
  return {.threads = threads,
          .blocks = blocks,
          .split = cluster,
          .details = text_of("warps=", warps(), " shared=", shared_bytes)};
}

Plan LanesLaunch::plan() const {
  return {.threads = threads, .blocks = blocks, .details = text_of("row_threads=", row_threads)};
}

Plan SortLaunch::plan() const {
  return {.threads = threads,
          .blocks = blocks,
          .scratch_bytes = scratch_bytes,
          .details = text_of("keys=", keys, word(" general", general))};
}

}  // namespace onepass::gpu_select
