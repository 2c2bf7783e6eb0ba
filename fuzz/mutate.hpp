// Inputs for a fuzzer that does not look at coverage: from nothing, or by changing others.
#pragma once

#include <string>
#include <vector>

#include "cli/problem/fill.hpp"
#include "fuzz/target.hpp"

namespace onepass::fuzz {

class Mutator {
 public:
  Mutator(const Target& target, std::vector<std::string> known, std::uint64_t seed);

  std::string next();

 private:
  std::size_t below(std::size_t count) { return count == 0 ? 0 : random_.bits() % count; }
  std::string from_nothing();
  void change(std::string& input);

  std::vector<std::string> known_, words_;
  cli::Random random_;
};

}  // namespace onepass::fuzz
