#include "cli/measure/json.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

namespace onepass::cli {
namespace {

// Moves all lines but the first to where their key stands.
std::string indented(std::string text) {
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 3) {
    text.insert(at + 1, "  ");
  }
  return text;
}

}  // namespace

// Through decimal text, so that the file shows 12.34 and not the double nearest to a product.
double rounded(double value) {
  return std::isfinite(value) ? std::strtod(fmt::format("{:.4g}", value).c_str(), nullptr) : value;
}

std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string results_text(const Json& head, const std::vector<Json>& rows) {
  std::string out = "{\n";
  for (const auto& [key, value] : head.items()) {
    out += fmt::format("  \"{}\": {},\n", key, indented(dump(value, 2)));
  }
  out += "  \"rows\": [";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    out += i == 0 ? "\n    " : ",\n    ";
    out += dump(rows[i], -1);
  }
  return out + (rows.empty() ? "]\n}\n" : "\n  ]\n}\n");
}

}  // namespace onepass::cli
