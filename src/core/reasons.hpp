// The reasons for decisions, in words.
#pragma once

#include <iomanip>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace onepass {

// One sentence per decision, for people.
using Reasons = std::vector<std::string>;

template <class... Parts>
std::string text_of(const Parts&... parts) {
  std::ostringstream text;
  text << std::setprecision(15);  // byte counts may be doubles, because they can exceed 64 bits
  (text << ... << parts);
  return text.str();
}

// A word of a plan's text, or nothing if it does not hold.
constexpr std::string_view word(std::string_view text, bool holds) { return holds ? text : ""; }

template <class... Parts>
void say(Reasons* reasons, const Parts&... parts) {
  if (reasons != nullptr) reasons->push_back(text_of(parts...));
}

}  // namespace onepass
