#include "ops/softmax/walk/plan.hpp"

#include "core/reasons.hpp"
#include "onepass/plan.hpp"

namespace onepass::ops::softmax {

Plan WalkLaunch::plan() const {
  return {
      .threads = threads,
      .blocks = blocks,
      .split = split,
      .scratch_bytes = scratch_bytes,
      .details = text_of("packs=", packs, " shared=", shared_bytes, word(" reread", !resident))};
}

}  // namespace onepass::ops::softmax
