#include "fuzz/mutate.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

namespace onepass::fuzz {
namespace {

constexpr std::size_t kLongest = 1 << 14;

}  // namespace

Mutator::Mutator(const Target& target, std::vector<std::string> known, std::uint64_t seed)
    : known_(std::move(known)), random_(seed * 0xD1342543DE82EF95U + 7) {
  std::istringstream words{std::string(target.dictionary)};
  for (std::string word; words >> word;) words_.push_back(word);
}

std::string Mutator::next() {
  // Decisions are drawn best from bytes that are all alike; text is best when most
  // of it is in order.
  const std::size_t fresh = words_.empty() ? 2 : 16;
  if (known_.empty() || below(fresh) == 0) return from_nothing();
  std::string input = known_[below(known_.size())];
  for (std::size_t left = 1 + below(6); left > 0; --left) change(input);
  if (input.size() > kLongest) input.resize(kLongest);
  return input;
}

std::string Mutator::from_nothing() {
  std::string input(below(below(2) == 0 ? 32 : 256), '\0');
  for (char& each : input) each = static_cast<char>(random_.bits());
  return input;
}

void Mutator::change(std::string& input) {
  const std::size_t at = below(input.size() + 1);
  const std::size_t length = below(std::min<std::size_t>(input.size() - at, 32) + 1);
  switch (below(words_.empty() ? 6 : 8)) {
    case 0:
      if (at < input.size()) input[at] = static_cast<char>(random_.bits());
      break;
    case 1:
      if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
      break;
    case 2: input.insert(at, 1, static_cast<char>(random_.bits())); break;
    case 3: input.erase(at, length); break;
    case 4: {  // seldom very often: nesting
      const std::string piece = input.substr(at, length);
      for (std::size_t times = below(16) == 0 ? 2000 : 1 + below(3); times > 0; --times)
        input.insert(at, piece);
      break;
    }
    case 5: {
      if (known_.empty()) break;
      const std::string& other = known_[below(known_.size())];
      const std::size_t from = below(other.size() + 1);
      input.replace(at, length, other.substr(from, below(64)));
      break;
    }
    case 6: input.insert(at, words_[below(words_.size())]); break;
    default: input.insert(at, " " + words_[below(words_.size())] + " "); break;
  }
}

}  // namespace onepass::fuzz
