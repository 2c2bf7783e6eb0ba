// Decisions, in words.
#pragma once

#include <iomanip>
#include <sstream>
#include <string>
#include <vector>

namespace onepass {

// One sentence per decision, for people.
using Reasons = std::vector<std::string>;

template <class... Parts>
void say(Reasons* reasons, const Parts&... parts) {
  if (reasons == nullptr) return;
  std::ostringstream text;
  text << std::setprecision(15);  // counts of bytes may be floating, and past 64 bits
  (text << ... << parts);
  reasons->push_back(text.str());
}

}  // namespace onepass
