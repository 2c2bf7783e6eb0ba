// Nsight Compute, as far as it is text: its command line, its CSV, and what its counters say.
// Nothing here runs it.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onepass/status.hpp"

namespace onepass::cli {

// One call of a variant. What was not counted is NaN.
struct Counters {
  static constexpr double kNotCounted = std::numeric_limits<double>::quiet_NaN();

  int launches = 0;
  double duration_us = kNotCounted;
  // Of what the part could do over the whole duration.
  double dram_percent = kNotCounted;
  double l2_percent = kNotCounted;
  double l1_percent = kNotCounted;
  double sm_percent = kNotCounted;
  // Warps on an SM, of those it has room for, while it had any.
  double occupancy_percent = kNotCounted;
  double registers = kNotCounted;  // a thread
  double dram_read_bytes = kNotCounted;
  double dram_write_bytes = kNotCounted;
};

// How the counters of several launches become those of the call they belong to.
enum class Joined : std::uint8_t { sum, mean_over_time, largest };

struct Metric {
  std::string_view name;  // ncu's
  double Counters::*field;
  Joined joined;
};

std::span<const Metric> ncu_metrics();

// ncu and its options, then the program and its arguments.
std::vector<std::string> ncu_command(const std::string& ncu,
                                     const std::vector<std::string>& program);

// The launches in what ncu printed with these options, one each. Whatever the program or ncu say
// outside of the CSV is passed over. Text without a CSV has no launches, which is no error.
Status parse_ncu(std::string_view text, std::vector<Counters>& launches);

// The launches of one call as one.
Counters joined(std::span<const Counters> launches);

// Which counter tells most about the step from one variant to the next, in words:
// "DRAM +31 points (22 -> 53 %)", "DRAM bytes read 0.52x (201 -> 105 MB)".
std::string what_moved(const Counters& before, const Counters& after);

// The lines by which ncu says what went wrong, and those of the program below it that look like
// an error; joined by line breaks.
std::string ncu_complaint(std::string_view out, std::string_view err);

}  // namespace onepass::cli
