// The options of a problem line. Each is a row of one table, which reads it and prints it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/problem/case.hpp"

namespace onepass::cli {

struct OptionRow {
  std::string_view key;  // what stands before the '='; of a flag the whole word
  bool is_flag;
  bool (*read)(std::string_view value, Case& c);  // false: no such value
  // The value as text, any text of a flag that is set. Empty: as usual, and not printed.
  std::string (*text)(const Case& c, const Case& usual);
  std::string_view examples;  // unusual values, a space between them: tests and fuzzers start here
};

// In the order of a printed line.
std::span<const OptionRow> options();

// The case without its options: its op, shape and dtypes with the usual value of everything else.
Case usual_case(const Case& c);

}  // namespace onepass::cli
