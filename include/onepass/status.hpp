// Status: what every op returns. Errors are values that name the argument and what it held.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace onepass {

enum class Code : std::uint8_t {
  ok,
  invalid_argument,  // no variant, build or machine could run this call
  unsupported,       // a valid call that this variant, build or machine cannot run
  out_of_memory,
  internal,
};

constexpr std::string_view name(Code code) {
  switch (code) {
    case Code::ok: return "ok";
    case Code::invalid_argument: return "invalid argument";
    case Code::unsupported: return "unsupported";
    case Code::out_of_memory: return "out of memory";
    case Code::internal: return "internal error";
  }
  return "unknown";
}

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::ok; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::ok;
  std::string message_;
};

}  // namespace onepass
