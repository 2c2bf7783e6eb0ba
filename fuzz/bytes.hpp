// Bytes of a fuzzer as decisions. What follows the last byte is zero, and 0 is always the plainest
// choice: short inputs are simple calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <span>

namespace onepass::fuzz {

class Bytes {
 public:
  explicit Bytes(std::span<const std::uint8_t> all) : left_(all) {}

  std::uint8_t byte() {
    if (left_.empty()) return 0;
    const std::uint8_t first = left_.front();
    left_ = left_.subspan(1);
    return first;
  }

  std::uint64_t bits(int bytes) {
    std::uint64_t all = 0;
    for (int i = 0; i < bytes; ++i) all = all << 8 | byte();
    return all;
  }

  // 0 … count − 1, of as few bytes as that takes.
  std::int64_t below(std::int64_t count) {
    if (count <= 1) return 0;
    const int bytes = count <= 1 << 8 ? 1 : count <= 1 << 16 ? 2 : 4;
    return static_cast<std::int64_t>(bits(bytes) % static_cast<std::uint64_t>(count));
  }

  std::int64_t from(std::int64_t least, std::int64_t most) {
    return least + below(most - least + 1);
  }

  bool one_in(int count) { return byte() % count == count - 1; }

  template <class T>
  T pick(std::initializer_list<T> list) {
    return pick(std::span(list.begin(), list.size()));
  }
  template <class List>
  auto pick(const List& list) {
    return *(std::begin(list) + below(static_cast<std::int64_t>(std::size(list))));
  }

 private:
  std::span<const std::uint8_t> left_;
};

}  // namespace onepass::fuzz
