// What can be fuzzed: functions of bytes that return, or end the program with a finding.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onepass/context.hpp"

namespace onepass::fuzz {

using Input = std::span<const std::uint8_t>;

struct Target {
  std::string_view name;
  void (*run)(Input input);
  // Inputs to begin with, made from what the tree has; a fuzzer mutates them.
  std::vector<std::string> (*seeds)(const std::string& source_dir);
  std::string_view dictionary;  // words that its text is made of, separated by blanks
};

std::span<const Target> targets();
const Target* find_target(std::string_view name);

// Where the calls of the target `api` run. Set before the first.
inline Device device = Device::cpu;

// Prints each input as what it means before it is run.
inline bool speaks = false;

// What the input that runs means, for people; printed with a finding.
void meaning(std::function<std::string()> text);
std::string meaning();

// Says what is wrong, and ends the program.
[[noreturn]] void finding(const std::string& what);

}  // namespace onepass::fuzz
