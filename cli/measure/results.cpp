#include "cli/measure/results.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "cli/files/files.hpp"
#include "cli/measure/json.hpp"
#include "dispatch/variant.hpp"
#include "onepass_build.hpp"

namespace onepass::cli {
namespace {

// The names of the fields, once, in the order of the file, for reading and writing both.
template <class E, class Visit>
void each_field(E& environment,
                Visit&& visit) requires std::is_same_v<std::remove_const_t<E>, Environment> {
  visit("device", environment.device);
  visit("cpu", environment.cpu);
  visit("isa", environment.isa);
  visit("threads", environment.threads);
  visit("sm", environment.sm);
  visit("driver", environment.driver);
  visit("cuda", environment.cuda);
  visit("commit", environment.commit);
  visit("dirty", environment.dirty);
  visit("date", environment.date);
}

template <class R, class Visit>
void each_field(R& row, Visit&& visit) requires std::is_same_v<std::remove_const_t<R>, Row> {
  visit("op", row.op);
  visit("variant", row.variant);
  visit("role", row.role);
  visit("chosen", row.chosen);
  visit("problem", row.problem);
  visit("dtype", row.dtype);
  visit("shape", row.shape);
  visit("threads", row.threads);
  visit("median_us", row.median_us);
  visit("p10_us", row.p10_us);
  visit("p90_us", row.p90_us);
  visit("bytes", row.bytes);
  visit("gbps", row.gbps);
  visit("percent_of_copy", row.percent_of_copy);
  visit("verified", row.verified);
}

// The fields that a row need not have.
constexpr const char* kTflops = "tflops";
constexpr const char* kRounds = "rounds_us";

template <class Fields>
Json object_of(const Fields& fields) {
  Json out = Json::object();
  each_field(fields, [&](const char* key, const auto& value) {
    if constexpr (std::is_same_v<decltype(value), const double&>) {
      out[key] = rounded(value);  // and null when it is not finite
    } else {
      out[key] = value;
    }
  });
  if constexpr (std::is_same_v<Fields, Row>) {
    if (fields.tflops > 0) out[kTflops] = rounded(fields.tflops);
    for (const double us : fields.rounds_us) out[kRounds].push_back(rounded(us));
  }
  return out;
}

// Reads fields of one object; keeps the first thing that is wrong.
class Reader {
 public:
  // An empty place is the whole text.
  template <class T>
  void field(const Json& object, const std::string& place, std::string_view key, T& out) {
    const std::string name = place.empty() ? std::string(key) : fmt::format("{}.{}", place, key);
    const auto found = object.find(key);
    if (found == object.end()) {
      wrong(fmt::format("{} is missing", name));
    } else {
      value(*found, name, out);
    }
  }

  template <class Fields>
  void fields(const Json& object, const std::string& place, Fields& out) {
    if (!object.is_object()) return expected(object, place, "an object");
    each_field(out, [&](const char* key, auto& member) { field(object, place, key, member); });
    if constexpr (std::is_same_v<Fields, Row>) {
      if (object.contains(kTflops)) field(object, place, kTflops, out.tflops);
      if (object.contains(kRounds)) field(object, place, kRounds, out.rounds_us);
    }
  }

  void value(const Json& json, const std::string& name, std::string& out) {
    if (!json.is_string()) return expected(json, name, "a string");
    out = json.get<std::string>();
  }
  void value(const Json& json, const std::string& name, bool& out) {
    if (!json.is_boolean()) return expected(json, name, "true or false");
    out = json.get<bool>();
  }
  void value(const Json& json, const std::string& name, double& out) {
    if (json.is_null()) {
      out = std::numeric_limits<double>::quiet_NaN();
    } else if (json.is_number()) {
      out = json.get<double>();
    } else {
      expected(json, name, "a number or null");
    }
  }
  template <class Integer>
    requires std::is_integral_v<Integer>
  void value(const Json& json, const std::string& name, Integer& out) {
    const auto most = static_cast<std::uint64_t>(std::numeric_limits<Integer>::max());
    if (!json.is_number_unsigned() || json.get<std::uint64_t>() > most) {
      return expected(json, name, fmt::format("an integer from 0 to {}", most));
    }
    out = json.get<Integer>();
  }
  void value(const Json& json, const std::string& name, std::vector<std::int64_t>& out) {
    each_of(json, name, "an array of integers", out);
  }
  void value(const Json& json, const std::string& name, std::vector<double>& out) {
    each_of(json, name, "an array of numbers", out);
  }
  void value(const Json& json, const std::string& name, std::map<std::string, double>& out) {
    if (!json.is_object()) return expected(json, name, "an object");
    for (const auto& [key, number] : json.items()) {
      value(number, fmt::format("{}.{}", name, key), out[key]);
    }
  }
  void value(const Json& json, const std::string& name, Environment& out) {
    fields(json, name, out);
  }
  void value(const Json& json, const std::string& name, std::vector<Row>& out) {
    if (!json.is_array()) return expected(json, name, "an array");
    for (std::size_t i = 0; i < json.size(); ++i) {
      Row& row = out.emplace_back();
      fields(json[i], fmt::format("{}[{}]", name, i), row);
      row.variant = name_today(row.variant);
    }
  }

  void wrong(std::string what) {
    if (status_.ok()) status_ = {Code::invalid_argument, std::move(what)};
  }
  void expected(const Json& json, const std::string& name, std::string_view wanted) {
    constexpr std::size_t kLongest = 40;
    std::string is = dump(json, -1);
    if (is.size() > kLongest) is = fmt::format("{} of {} bytes", json.type_name(), is.size());
    wrong(fmt::format("{} is {}, expected {}", name, is, wanted));
  }
  const Status& status() const { return status_; }

 private:
  template <class Number>
  void each_of(const Json& json, const std::string& name, std::string_view wanted,
               std::vector<Number>& out) {
    if (!json.is_array()) return expected(json, name, wanted);
    for (std::size_t i = 0; i < json.size(); ++i) {
      value(json[i], fmt::format("{}[{}]", name, i), out.emplace_back());
    }
  }

  Status status_;
};

// The value of the first "key : value" line.
std::optional<std::string_view> cpuinfo_value(std::string_view cpuinfo, std::string_view key) {
  constexpr std::string_view kBlanks = " \t\r";
  while (!cpuinfo.empty()) {
    const std::string_view line = cpuinfo.substr(0, cpuinfo.find('\n'));
    cpuinfo.remove_prefix(std::min(line.size() + 1, cpuinfo.size()));
    const std::size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string_view::npos) continue;
    if (line.find_first_not_of(kBlanks, key.size()) != colon) continue;  // a longer key
    const std::size_t begin = line.find_first_not_of(kBlanks, colon + 1);
    if (begin == std::string_view::npos) continue;
    return line.substr(begin, line.find_last_not_of(kBlanks) - begin + 1);
  }
  return std::nullopt;
}

struct ArmPart {
  unsigned implementer;
  unsigned part;
  std::string_view name;
};

constexpr ArmPart kArmParts[] = {
    {0x41, 0xd03, "Cortex-A53"},   {0x41, 0xd05, "Cortex-A55"},   {0x41, 0xd07, "Cortex-A57"},
    {0x41, 0xd08, "Cortex-A72"},   {0x41, 0xd0b, "Cortex-A76"},   {0x41, 0xd0c, "Neoverse-N1"},
    {0x41, 0xd40, "Neoverse-V1"},  {0x41, 0xd49, "Neoverse-N2"},  {0x41, 0xd4f, "Neoverse-V2"},
    {0x41, 0xd84, "Neoverse-V3"},  {0x41, 0xd8e, "Neoverse-N3"},  {0x46, 0x001, "A64FX"},
    {0x48, 0xd01, "Kunpeng-920"},  {0x61, 0x022, "Apple M1"},     {0x61, 0x023, "Apple M1"},
    {0x61, 0x024, "Apple M1 Pro"}, {0x61, 0x025, "Apple M1 Pro"}, {0x61, 0x028, "Apple M1 Max"},
    {0x61, 0x029, "Apple M1 Max"}, {0x61, 0x032, "Apple M2"},     {0x61, 0x033, "Apple M2"},
    {0x61, 0x034, "Apple M2 Pro"}, {0x61, 0x035, "Apple M2 Pro"}, {0x61, 0x038, "Apple M2 Max"},
    {0x61, 0x039, "Apple M2 Max"}, {0xc0, 0xac3, "Ampere-1"},     {0xc0, 0xac4, "Ampere-1A"},
};

}  // namespace

Json json_of(const Environment& environment) { return object_of(environment); }

std::string to_json(const Results& results) {
  Json limits = Json::object();
  for (const auto& [key, value] : results.limits) limits[key] = rounded(value);
  std::vector<Json> rows;
  for (const Row& row : results.rows) rows.push_back(object_of(row));
  return results_text({{"schema", kResultsSchema},
                       {"environment", json_of(results.environment)},
                       {"limits", limits}},
                      rows);
}

Status from_json(std::string_view text, Results& out) {
  // Ours are four deep. Much deeper ones cannot be printed, which an error about them does.
  constexpr int kDeepest = 64;
  bool too_deep = false;
  Json json;
  try {
    json = Json::parse(text, [&too_deep](int depth, Json::parse_event_t, const Json&) {
      too_deep = too_deep || depth > kDeepest;
      return !too_deep;
    });
  } catch (const Json::exception& error) {  // a number can be too large, too
    return {Code::invalid_argument, fmt::format("not JSON: {}", error.what())};
  }
  if (too_deep) {
    return {Code::invalid_argument, fmt::format("JSON more than {} deep is not read", kDeepest)};
  }
  Reader reader;
  Results read;
  if (!json.is_object()) {
    reader.expected(json, "the file", "an object");
    return reader.status();
  }
  int schema = 0;
  reader.field(json, "", "schema", schema);
  if (reader.status().ok() && schema != kResultsSchema) {
    // Nothing else is worth reading: its fields may mean something else.
    reader.wrong(fmt::format("schema is {}, this program reads {}", schema, kResultsSchema));
    return reader.status();
  }
  reader.field(json, "", "environment", read.environment);
  reader.field(json, "", "limits", read.limits);
  reader.field(json, "", "rows", read.rows);
  if (reader.status().ok()) out = std::move(read);
  return reader.status();
}

Status save(const std::string& path, const Results& results) {
  return write_file_atomically(path, to_json(results));
}

Status load(const std::string& path, Results& out) {
  std::string text;
  if (const Status status = read_file(path, text); !status.ok()) return status;
  const Status status = from_json(text, out);
  return status.ok() ? status : file_error(path, status.message());
}

std::string cpu_model(std::string_view cpuinfo) {
  if (const auto model = cpuinfo_value(cpuinfo, "model name")) return std::string(*model);
  const auto implementer = cpuinfo_value(cpuinfo, "CPU implementer");
  const auto part = cpuinfo_value(cpuinfo, "CPU part");
  if (!implementer || !part) return "unknown";
  const auto number = [](std::string_view text) {
    return std::strtoul(std::string(text).c_str(), nullptr, 16);
  };
  for (const ArmPart& known : kArmParts) {
    if (known.implementer == number(*implementer) && known.part == number(*part)) {
      return std::string(known.name);
    }
  }
  return fmt::format("implementer {} part {}", *implementer, *part);
}

Environment detect_environment(std::string isa, int threads) {
  // A file of the kernel's has no size beforehand, so it is read as a stream.
  std::ifstream file("/proc/cpuinfo");
  const std::string cpuinfo{std::istreambuf_iterator<char>(file), {}};
  Environment out;
  out.device = "cpu";
  out.cpu = cpu_model(cpuinfo);
  out.isa = std::move(isa);
  out.threads = threads;
  out.commit = build::kCommit;
  out.dirty = build::kDirty;
  out.date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  return out;
}

}  // namespace onepass::cli
