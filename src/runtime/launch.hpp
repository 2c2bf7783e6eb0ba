// What a launcher needs of the runtime: the last launch's outcome as a Status.
#pragma once

#include <cstddef>
#include <string_view>

#include "onepass/status.hpp"

namespace onepass {

// How the launch just made went. An error of an earlier kernel that has come to light meanwhile is
// told as such.
Status launch_status(std::string_view variant);

// A cudaError_t: whether the current GPU can run what was compiled.
int probe_kernel();

// Lets a kernel have more shared memory than every kernel may, beside what it declares.
Status allow_shared(const void* kernel, std::size_t bytes);

}  // namespace onepass
