// The options of a problem line. Each is a row of one table, which reads it, prints it and says
// what it does. The subcommands on files offer some of them as flags.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/problem/case.hpp"

namespace onepass::cli {

struct OptionRow {
  std::string_view key;  // what stands before the '='; of a flag the whole word
  bool is_flag = false;
  bool (*read)(std::string_view value, Case& c) = nullptr;  // false: no such value
  // The value as text, any text of a flag that is set. Empty: as usual, and not printed.
  std::string (*text)(const Case& c, const Case& usual) = nullptr;
  // Unusual values, a space between them: tests and fuzzers start here.
  std::string_view examples = {};
  std::string_view help = {};
  std::string (*form)() = nullptr;  // of a value, as help shows it; null for a flag
  bool Case::*per_row = nullptr;    // `row` in place of a value: one per row, drawn at random
};

// In the order of a printed line.
std::span<const OptionRow> options();
const OptionRow* find_option(std::string_view key);  // null: there is none

// The case without its options: its op, shape and dtypes with the usual value of everything else.
Case usual_case(const Case& c);

}  // namespace onepass::cli
