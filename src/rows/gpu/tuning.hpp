// What was measured on a GPU: the fastest launch at points of a grid over rows and packs per row. A
// problem takes the launch of the nearest point. As text, one point per line, it is what `onepass
// tune` writes and the library reads.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/problem.hpp"
#include "onepass/status.hpp"
#include "rows/gpu/policy.hpp"

namespace onepass {

// Ops that move the same bytes take the same launches.
enum class Family : std::uint8_t {
  map,
  fold,
  pair
};  // 1 read + 1 write; 1 read; 2 reads + 1 write

constexpr Family family_of(Op op) {
  const Traffic t = traffic(op);
  return t.reads > 1 ? Family::pair : t.writes > 0 ? Family::map : Family::fold;
}

class GpuTuning {
 public:
  struct Point {
    Family family;
    int element_bytes;
    std::int64_t packs, rows;
    gpu_rows::Config launch;

    bool operator==(const Point&) const = default;
  };

  GpuTuning() = default;
  GpuTuning(int sm, int processors) : sm_(sm), processors_(processors) {}

  // Says the line that is wrong, and leaves `out` as it was.
  static Status parse(std::string_view text, GpuTuning& out);
  std::string text() const;

  void add(const Point& point);  // behind those of its family and size
  const std::vector<Point>& points() const { return points_; }

  // Empty where the table was measured on such a GPU; otherwise what differs.
  std::string refuses(const Machine& machine) const;

  // The launch of the nearest point that can run the problem.
  std::optional<gpu_rows::Config> find(const Problem& problem, const Machine& machine) const;

  bool operator==(const GpuTuning&) const = default;

 private:
  // Where a point lies, in octaves.
  struct Place {
    double packs, rows;

    double distance(const Place& wanted) const;
    bool operator==(const Place&) const = default;
  };
  static Place place_of(std::int64_t packs, std::int64_t rows);

  int sm_ = 0, processors_ = 0;
  std::vector<Point> points_;  // by family and size: every call looks for the nearest of its own
  std::vector<Place> places_;  // of the points
};

// The tables that come with the library; null where there is none for such a GPU.
const GpuTuning* built_in_tuning(const Machine& machine);

}  // namespace onepass
