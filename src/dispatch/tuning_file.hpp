// The tuning table that a user measured, on disk.
#pragma once

#include <string>

#include "rows/gpu/tuning.hpp"

namespace onepass {

// The user's own: the file that ONEPASS_TUNING names, or tuning.txt in the user's config folder. A
// file that cannot be used is told and otherwise ignored.
Status user_tuning(const Machine& machine, GpuTuning& out, bool& found);
std::string user_tuning_path();

}  // namespace onepass
