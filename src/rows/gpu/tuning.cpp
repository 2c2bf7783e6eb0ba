#include "rows/gpu/tuning.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <sstream>

namespace onepass {
namespace {

constexpr std::string_view kFormat = "onepass-tuning-1";
constexpr std::array<std::string_view, 3> kFamilies = {"map", "fold", "pair"};

constexpr const char* kH200 =
#include "rows/gpu/h200.inc"
    ;

std::optional<Family> family_named(std::string_view name) {
  for (std::size_t i = 0; i < kFamilies.size(); ++i) {
    if (kFamilies[i] == name) return static_cast<Family>(i);
  }
  return std::nullopt;
}

double octaves(std::int64_t n) {
  return std::log2(static_cast<double>(std::max<std::int64_t>(n, 1)));
}

// The number of rows matters half as much as their length, and past kMany not at all.
constexpr std::int64_t kMany = 1024;
constexpr double kFar = 2;

std::pair<Family, int> kind_of(const GpuTuning::Point& point) {
  return {point.family, point.element_bytes};
}

}  // namespace

Status GpuTuning::parse(std::string_view text, GpuTuning& out) {
  GpuTuning tuning;
  std::istringstream lines{std::string(text)};
  int number = 0;
  const auto bad = [&](const std::string& what) {
    return Status{Code::invalid_argument, "tuning: line " + std::to_string(number) + ": " + what};
  };
  bool begun = false;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line);
    std::string first;
    if (!(words >> first) || first[0] == '#') continue;
    std::string rest;
    if (!begun) {
      if (first != kFormat || !(words >> tuning.sm_ >> tuning.processors_) || words >> rest) {
        return bad("'" + line + "' is not '" + std::string(kFormat) + " SM PROCESSORS'");
      }
      begun = true;
      continue;
    }
    const auto family = family_named(first);
    Point point{};
    std::string launch;
    if (!family || !(words >> point.element_bytes >> point.packs >> point.rows >> launch) ||
        words >> rest) {
      return bad("'" + line + "' is not 'map|fold|pair BYTES PACKS ROWS LAUNCH'");
    }
    const auto named = gpu_rows::config_named(launch);
    if (!named) return bad("'" + launch + "' is no launch");
    point.family = *family;
    point.launch = *named;
    tuning.add(point);
  }
  if (!begun)
    return {Code::invalid_argument, "tuning: it does not begin with " + std::string(kFormat)};
  out = std::move(tuning);
  return {};
}

GpuTuning::Place GpuTuning::place_of(std::int64_t packs, std::int64_t rows) {
  return {octaves(packs), 0.5 * octaves(std::min(rows, kMany))};
}

// A launch for longer rows suits shorter ones better than the other way round.
double GpuTuning::Place::distance(const Place& wanted) const {
  const double longer = packs - wanted.packs;
  return (longer >= 0 ? longer : -1.5 * longer) + std::abs(rows - wanted.rows);
}

void GpuTuning::add(const Point& point) {
  const auto at = std::ranges::upper_bound(points_, kind_of(point), {}, kind_of);
  places_.insert(places_.begin() + (at - points_.begin()), place_of(point.packs, point.rows));
  points_.insert(at, point);
}

std::string GpuTuning::text() const {
  std::ostringstream out;
  out << kFormat << ' ' << sm_ << ' ' << processors_ << '\n';
  for (const Point& p : points_) {
    out << kFamilies[static_cast<std::size_t>(p.family)] << ' ' << p.element_bytes << ' ' << p.packs
        << ' ' << p.rows << ' ' << gpu_rows::name_of(p.launch) << '\n';
  }
  return out.str();
}

std::string GpuTuning::refuses(const Machine& machine) const {
  if (sm_ == machine.gpu.sm && processors_ == machine.gpu.processors) return {};
  return "it was measured on an sm_" + std::to_string(sm_) + " with " +
         std::to_string(processors_) + " processors, this is an sm_" +
         std::to_string(machine.gpu.sm) + " with " + std::to_string(machine.gpu.processors);
}

std::optional<gpu_rows::Config> GpuTuning::find(const Problem& p, const Machine& m) const {
  if (gpu_rows::is_general(p)) return std::nullopt;
  const Place wanted = place_of(gpu_rows::packs(p), p.rows);
  const std::pair kind(family_of(p.op), static_cast<int>(size_of(p.in)));
  const auto first = std::ranges::lower_bound(points_, kind, {}, kind_of);
  const auto last = std::ranges::upper_bound(points_, kind, {}, kind_of);
  auto place = places_.begin() + (first - points_.begin());
  const Point* nearest = nullptr;
  double least = 0;  // the distance of the nearest
  for (const Point& point : std::span(first, last)) {
    const double distance = (place++)->distance(wanted);
    const bool nearer = nearest == nullptr ? distance <= kFar : distance < least;
    if (!nearer || !gpu_rows::fits(point.launch, p, m)) continue;
    nearest = &point;
    least = distance;
  }
  if (nearest == nullptr) return std::nullopt;
  return nearest->launch;
}

const GpuTuning* built_in_tuning(const Machine& machine) {
  static const GpuTuning h200 = [] {
    GpuTuning table;
    // A table that cannot be read is an empty one; a test reads it.
    if (!GpuTuning::parse(kH200, table).ok()) table = {};
    return table;
  }();
  return h200.refuses(machine).empty() ? &h200 : nullptr;
}

}  // namespace onepass
