// Passes an error, which is a value, on to the caller.
#pragma once

#include "onepass/status.hpp"

// Returns a failure to the caller.
#define ONEPASS_TRY(expression)                                               \
  do {                                                                        \
    if (::onepass::Status status = (expression); !status.ok()) return status; \
  } while (false)
