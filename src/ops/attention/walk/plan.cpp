#include "ops/attention/walk/plan.hpp"

#include "core/reasons.hpp"
#include "onepass/plan.hpp"

namespace onepass::ops::attention {

Plan WalkLaunch::plan() const {
  return {.threads = threads,
          .blocks = blocks,
          .scratch_bytes = scratch_bytes,
          .details = text_of("shared=", shared_bytes)};
}

}  // namespace onepass::ops::attention
