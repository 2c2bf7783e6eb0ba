#include "ops/loss/gpu/plan.hpp"

#include "core/reasons.hpp"
#include "onepass/plan.hpp"

namespace onepass::gpu_rows {

Plan WeightedLaunch::plan() const {
  return {.threads = threads,
          .blocks = blocks,
          .details = text_of("row_threads=", row_threads, " shared=", shared_bytes,
                             word(" reread", !resident))};
}

}  // namespace onepass::gpu_rows
