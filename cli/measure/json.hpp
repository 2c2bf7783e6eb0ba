// JSON as our result files have it: a row per line, so that a diff shows which rows changed, and
// measurements of four significant digits: more would be noise.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace onepass::cli {

using Json = nlohmann::ordered_json;  // keeps the order of the keys, so files can be compared

struct Environment;

// The environment as every result file has it.
Json json_of(const Environment& environment);

// Four significant digits; what is not finite stays so, and is null in the file.
double rounded(double value);

// A name that is not valid UTF-8 must not cost the measurement.
std::string dump(const Json& json, int indent);

// The whole file: the members of `head`, then "rows".
std::string results_text(const Json& head, const std::vector<Json>& rows);

}  // namespace onepass::cli
