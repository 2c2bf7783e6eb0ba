#include "ops/select/walk/plan.hpp"

#include "onepass/plan.hpp"

namespace onepass::ops::select {

Plan WalkLaunch::plan() const {
  return {.threads = threads,
          .blocks = blocks,
          .scratch_bytes = scratch_bytes,
          .details = resident ? "resident" : "reread"};
}

}  // namespace onepass::ops::select
