// What a launcher needs of the runtime: the last launch's outcome as a Status.
#pragma once

#include <cstddef>
#include <string_view>

#include "onepass/status.hpp"

namespace onepass {

// A cudaError_t as a Status: what could not be done, in words.
Status cuda_status(int error, std::string_view doing);

// How the launch just made went. An error of an earlier kernel that has come to light meanwhile is
// told as such.
Status launch_status(std::string_view variant);

// A cudaError_t: whether the current GPU can run what was compiled, and for which GPUs that was: a
// newer one gets the newest of what came as PTX.
int probe_kernel(int& sm);

// Lets a kernel have more shared memory than every kernel may, beside what it declares. What one
// thread was given another does not take away.
Status allow_shared(const void* kernel, std::size_t bytes);

}  // namespace onepass
