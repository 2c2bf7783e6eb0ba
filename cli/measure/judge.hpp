// Judging: is a problem faster or slower than before, or can its times not tell?
//
// An observation is the logarithm of a time before over the time after that was taken beside it, so
// what both share (a clock that falls, a busy machine) cancels. Many observations make one estimate
// with an interval that holds the truth in 99 of 100 cases; a verdict is given only where all of
// the interval is on one side of the threshold. Pure: no clock, no files.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace onepass::cli {

enum class Speed : std::uint8_t { faster, slower, same, unsure };

std::string_view name(Speed speed);  // "FASTER"

// The time of one problem in one process.
struct Timing {
  double median_us = 0;
  std::vector<double> rounds_us;  // may be empty: a file of an older program
};

// One problem. before[i] and after[i] were taken one after the other, each in its own process.
struct Timings {
  std::vector<Timing> before, after;  // of one length
};

// What a device does to times that is no change of the program.
struct Noise {
  double threshold;       // relative: less than this is no change
  double process;         // relative: standard deviation from process to process
  double clock_us;        // how far off the clock may be, for …
  double clock_until_us;  // … times shorter than this
};

// A device's own: a GPU's times repeat better, its clock is coarser. `process` is what a machine
// with nothing else to do shows at least.
Noise noise_of(bool on_gpu);

struct Judgement {
  double before_us = 0, after_us = 0;  // medians over the processes
  double ratio = 0;          // before / after, above 1 is faster: the observations' median
  double low = 0, high = 0;  // the interval, around their mean; NaN: too few for one
  int observations = 0;
  Speed speed = Speed::unsure;
};

// From this many pairs of processes on, each process counts as one observation: its median. With
// fewer, the rounds within the processes do, and noise.process is added, which they cannot show.
inline constexpr int kFewestPairs = 3;

// One judgement a problem. All at once, because problems tell each other how noisy the machine is.
std::vector<Judgement> judge(const std::vector<Timings>& problems, const Noise& noise);

}  // namespace onepass::cli
