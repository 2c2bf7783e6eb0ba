#include "cli/profile/ncu.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <system_error>

namespace onepass::cli {
namespace {

constexpr Metric kMetrics[] = {
    {"gpu__time_duration.sum", &Counters::duration_us, Joined::sum},
    {"dram__throughput.avg.pct_of_peak_sustained_elapsed", &Counters::dram_percent,
     Joined::mean_over_time},
    {"lts__throughput.avg.pct_of_peak_sustained_elapsed", &Counters::l2_percent,
     Joined::mean_over_time},
    {"l1tex__throughput.avg.pct_of_peak_sustained_elapsed", &Counters::l1_percent,
     Joined::mean_over_time},
    {"sm__throughput.avg.pct_of_peak_sustained_elapsed", &Counters::sm_percent,
     Joined::mean_over_time},
    {"sm__warps_active.avg.pct_of_peak_sustained_active", &Counters::occupancy_percent,
     Joined::mean_over_time},
    {"launch__registers_per_thread", &Counters::registers, Joined::largest},
    {"dram__bytes_read.sum", &Counters::dram_read_bytes, Joined::sum},
    {"dram__bytes_write.sum", &Counters::dram_write_bytes, Joined::sum},
};

// What one of a unit is in ours: microseconds, bytes, percent. ncu's K, M and G are powers of
// 1000; its versions do not agree on the names.
struct Unit {
  std::string_view name;
  double factor;
};

constexpr Unit kUnits[] = {
    {"ns", 1e-3},     {"nsecond", 1e-3}, {"us", 1},
    {"usecond", 1},   {"µs", 1},         {"ms", 1e3},
    {"msecond", 1e3}, {"s", 1e6},        {"second", 1e6},
    {"byte", 1},      {"B", 1},          {"Kbyte", 1e3},
    {"KB", 1e3},      {"Mbyte", 1e6},    {"MB", 1e6},
    {"Gbyte", 1e9},   {"GB", 1e9},       {"Tbyte", 1e12},
    {"TB", 1e12},     {"%", 1},          {"register/thread", 1},
    {"register", 1},
};

std::optional<double> factor_of(std::string_view unit, const Metric& metric) {
  // ncu's base units: the only one that is not ours is its nanosecond.
  if (unit.empty()) return metric.field == &Counters::duration_us ? 1e-3 : 1;
  for (const Unit& known : kUnits) {
    if (known.name == unit) return known.factor;
  }
  return std::nullopt;
}

using Fields = std::vector<std::string>;

// One line of CSV; nothing when a quote stays open or something follows one.
std::optional<Fields> split(std::string_view line) {
  Fields fields(1);
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == ',') {
      fields.emplace_back();
    } else if (line[i] == '"' && fields.back().empty()) {
      while (true) {
        const std::size_t quote = line.find('"', i + 1);
        if (quote == std::string_view::npos) return std::nullopt;
        fields.back() += line.substr(i + 1, quote - i - 1);
        i = quote;
        if (i + 1 >= line.size() || line[i + 1] != '"') break;
        fields.back() += '"';  // written twice
        ++i;
      }
      if (i + 1 < line.size() && line[i + 1] != ',') return std::nullopt;
    } else {
      fields.back() += line[i];
    }
  }
  return fields;
}

// "1,234.5"; NaN for "n/a", "no data" and whatever else is no number.
double number(std::string_view text) {
  std::string digits;
  for (const char c : text) {
    if (c != ',' && c != ' ') digits += c;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  return whole && std::isfinite(value) ? value : Counters::kNotCounted;
}

bool is_index(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// Where each metric stands in a line, and what its numbers are to be multiplied by.
class Layout {
 public:
  bool known() const { return width_ > 0; }

  static bool is_header(const Fields& fields) {
    return fields[0] == "ID" && std::ranges::find(fields, "Kernel Name") != fields.end();
  }

  Status read_header(const Fields& fields) {
    width_ = fields.size();
    places_.clear();
    for (const Metric& metric : kMetrics) {
      const auto found = std::ranges::find(fields, metric.name);
      if (found == fields.end()) continue;
      places_.push_back({&metric, static_cast<std::size_t>(found - fields.begin()),
                         factor_of("", metric).value()});
    }
    if (!places_.empty()) return {};
    return {Code::unsupported, "ncu: its CSV has none of the counters that were asked for"};
  }

  Status read_units(const Fields& fields) {
    for (Place& place : places_) {
      if (place.column >= fields.size()) continue;
      const std::string& unit = fields[place.column];
      const std::optional<double> factor = factor_of(unit, *place.metric);
      if (!factor) {
        return {Code::unsupported,
                fmt::format("ncu: {} is in '{}', an unknown unit", place.metric->name, unit)};
      }
      place.factor = *factor;
    }
    return {};
  }

  Status read_launch(const Fields& fields, Counters& out) const {
    if (fields.size() < width_) {
      return {Code::unsupported, fmt::format("ncu: launch {} has {} values for {} columns",
                                             fields[0], fields.size(), width_)};
    }
    out.launches = 1;
    for (const Place& place : places_) {
      out.*place.metric->field = number(fields[place.column]) * place.factor;
    }
    return {};
  }

 private:
  struct Place {
    const Metric* metric;
    std::size_t column;
    double factor;
  };

  std::size_t width_ = 0;
  std::vector<Place> places_;
};

// Calls visit(line) with each line, its end cut off.
template <class Visit>
void each_line(std::string_view text, Visit&& visit) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    visit(line);
  }
}

double joined(std::span<const Counters> launches, const Metric& metric) {
  double sum = 0, time = 0, sum_over_time = 0, largest = Counters::kNotCounted;
  for (const Counters& launch : launches) {
    const double value = launch.*metric.field;
    sum += value;
    time += launch.duration_us;
    sum_over_time += value * launch.duration_us;
    largest = std::fmax(largest, value);
  }
  switch (metric.joined) {
    case Joined::sum: return sum;
    case Joined::mean_over_time:
      return time > 0 ? sum_over_time / time : sum / static_cast<double>(launches.size());
    case Joined::largest: return largest;
  }
  return Counters::kNotCounted;
}

// A counter's step, and how much it tells, in points of a percentage.
struct Move {
  double tells = 0;
  std::string words;
};

constexpr double kLeastPoints = 3;  // less is the noise between two runs

Move points_moved(std::string_view what, double before, double after, double weight) {
  const double change = after - before;
  return {std::abs(change) * weight,
          fmt::format("{} {:+.0f} points ({:.0f} -> {:.0f} %)", what, change, before, after)};
}

// Bytes count as the share that they are of all traffic.
Move bytes_moved(std::string_view what, double before, double after, double traffic,
                 double weight) {
  constexpr double kMega = 1e6;
  const double ratio = after / before;
  const std::string step =
      fmt::format("{:.{}f} -> {:.{}f} MB", before / kMega, before < 10 * kMega ? 1 : 0,
                  after / kMega, after < 10 * kMega ? 1 : 0);
  return {100 * std::abs(after - before) / traffic * weight,
          // From or to nearly nothing, a ratio says nothing.
          ratio >= 0.01 && ratio < 100
              ? fmt::format("DRAM bytes {} {:.2f}x ({})", what, ratio, step)
              : fmt::format("DRAM bytes {} {}", what, step)};
}

}  // namespace

std::span<const Metric> ncu_metrics() { return kMetrics; }

std::vector<std::string> ncu_command(const std::string& ncu,
                                     const std::vector<std::string>& program) {
  std::vector<std::string_view> names;
  for (const Metric& metric : kMetrics) names.push_back(metric.name);
  // The clocks stay as they are in every other measurement. The program says itself, by
  // cudaProfilerStart, where the call begins.
  std::vector<std::string> words = {ncu,
                                    "--csv",
                                    "--page",
                                    "raw",
                                    "--print-units",
                                    "base",
                                    "--clock-control",
                                    "none",
                                    "--profile-from-start",
                                    "off",
                                    "--metrics",
                                    fmt::format("{}", fmt::join(names, ","))};
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

Status parse_ncu(std::string_view text, std::vector<Counters>& launches) {
  launches.clear();
  Layout layout;
  Status status;
  each_line(text, [&](std::string_view line) {
    if (!status.ok()) return;
    const std::optional<Fields> fields = split(line);
    if (!fields) {
      // A launch left out would pass for a quicker variant.
      if (layout.known() && line.starts_with('"')) {
        status = {Code::unsupported, fmt::format("ncu: this line of its CSV is torn: {}", line)};
      }
    } else if (Layout::is_header(*fields)) {
      status = layout.read_header(*fields);
    } else if (layout.known() && fields->size() > 1 && fields->front().empty()) {
      status = layout.read_units(*fields);
    } else if (layout.known() && fields->size() > 1 && is_index(fields->front())) {
      status = layout.read_launch(*fields, launches.emplace_back());
    }
  });
  if (!status.ok()) launches.clear();
  return status;
}

Counters joined(std::span<const Counters> launches) {
  Counters out;
  if (launches.empty()) return out;
  for (const Counters& launch : launches) out.launches += launch.launches;
  for (const Metric& metric : kMetrics) out.*metric.field = joined(launches, metric);
  return out;
}

std::string what_moved(const Counters& before, const Counters& after) {
  const double traffic = std::max(before.dram_read_bytes + before.dram_write_bytes,
                                  after.dram_read_bytes + after.dram_write_bytes);
  // Bytes are the cause where they change at all, DRAM % the aim; occupancy is a means and moves
  // for many reasons; registers explain it only when nothing else does.
  const Move moves[] = {
      bytes_moved("read", before.dram_read_bytes, after.dram_read_bytes, traffic, 1.5),
      bytes_moved("written", before.dram_write_bytes, after.dram_write_bytes, traffic, 1.5),
      points_moved("DRAM", before.dram_percent, after.dram_percent, 1.1),
      points_moved("L2", before.l2_percent, after.l2_percent, 1),
      points_moved("L1/TEX", before.l1_percent, after.l1_percent, 1),
      points_moved("SM", before.sm_percent, after.sm_percent, 1),
      points_moved("occupancy", before.occupancy_percent, after.occupancy_percent, 0.7),
      {10 * std::abs(std::log2(after.registers / before.registers)),
       fmt::format("registers {:+.0f} ({:.0f} -> {:.0f})", after.registers - before.registers,
                   before.registers, after.registers)},
  };
  // What is not finite was not counted on one of the sides.
  const Move* most = nullptr;
  for (const Move& move : moves) {
    if (std::isfinite(move.tells) && (most == nullptr || move.tells > most->tells)) most = &move;
  }
  if (most == nullptr) return "not counted";
  return most->tells < kLeastPoints ? "nothing by 3 points" : most->words;
}

std::string ncu_complaint(std::string_view out, std::string_view err) {
  std::vector<std::string> lines;
  const auto look = [&](std::string_view line) {
    const bool complains = line.starts_with("==ERROR==") || line.starts_with("==WARNING==") ||
                           line.starts_with("onepass: ");
    if (complains && std::ranges::find(lines, line) == lines.end()) lines.emplace_back(line);
  };
  each_line(err, look);
  each_line(out, look);
  return fmt::format("{}", fmt::join(lines, "\n"));
}

}  // namespace onepass::cli
