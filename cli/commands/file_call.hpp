// A call of an op on the user's own arrays, each of which is a file.
#pragma once

#include <array>
#include <string>

#include "cli/files/npy.hpp"
#include "cli/ops/arrays.hpp"
#include "cli/problem/case.hpp"
#include "onepass/status.hpp"

namespace onepass::cli {

struct FileCall {
  Case problem;  // its options; read_x() adds the shape and the dtypes, those of x
  bool bf16 = false;
  std::array<std::string, kArrayNames.size()> paths;  // empty: neither read nor written
  std::array<Array, kArrayNames.size()> arrays;

  Status read_x();
  // Reads the other inputs, calls the op, writes the outputs, y last.
  Status run();
};

}  // namespace onepass::cli
