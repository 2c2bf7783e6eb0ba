// One call of one variant on the GPU: what `onepass profile` asks of the machine.
#pragma once

#include <string>
#include <vector>

#include "cli/measure/results.hpp"
#include "cli/problem/case.hpp"
#include "onepass/status.hpp"

namespace onepass::cli {

// The variants to profile on the case, in the order of the registry, the peers last. "all": every
// one that runs on the GPU and does not refuse the case; or names, a,b,c, where a name that does
// not exist or cannot run is an error. An error, too, when there is no GPU.
Status variants_to_profile(const Case& c, const std::string& selection,
                           std::vector<std::string>& names);

// Runs the variant (or peer) twice: once to warm up, then between cudaProfilerStart and
// cudaProfilerStop.
Status run_profiled(const Case& c, const std::string& variant);

// This machine with its GPU, as `bench` writes it.
Environment gpu_environment();

}  // namespace onepass::cli
