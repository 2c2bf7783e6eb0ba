// Numbers as the words of a problem line and of the command line say them.
#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>

namespace onepass::cli {

// The whole text, which may begin with a plus, or false.
template <class Number>
bool parse_number(std::string_view text, Number& out, int base = 10) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const char* const end = text.data() + text.size();
  std::from_chars_result read{};
  if constexpr (std::is_integral_v<Number>) {
    read = std::from_chars(text.data(), end, out, base);
  } else {
    read = std::from_chars(text.data(), end, out);
  }
  return read.ec == std::errc() && read.ptr == end;
}

// 64 bits: a decimal number from −2^63 to 2^64 − 1, or 0x and hexadecimal digits.
inline bool parse_bits(std::string_view text, std::uint64_t& out) {
  const bool negative = text.starts_with('-');
  const bool hexadecimal = text.starts_with("0x");
  text.remove_prefix(hexadecimal ? 2 : negative ? 1 : 0);
  std::uint64_t size = 0;
  if (!parse_number(text, size, hexadecimal ? 16 : 10)) return false;
  if (negative && size > std::uint64_t{1} << 63) return false;
  out = negative ? 0 - size : size;
  return true;
}

}  // namespace onepass::cli
