#include "cli/measure/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "cli/gpu/apparatus.hpp"
#include "cli/measure/peers.hpp"
#include "cli/ops/call.hpp"
#include "cli/ops/expect.hpp"
#include "dispatch/choose.hpp"
#include "dispatch/variant.hpp"
#include "rows/gpu/policy.hpp"
#include "runtime/workers.hpp"

namespace onepass::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Candidate {
  std::string name;
  Role role;
  bool chosen = false;
  bool verified = false;
  std::vector<std::function<void()>> run;  // one for each set of buffers
  std::vector<double> samples = {};        // µs
  std::vector<double> rounds = {};         // the median of each run's samples, µs
};

void throw_unless_ok(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Buffers enough that a call finds nothing of its data in the caches, within reason.
std::size_t sets_needed(const Problem& problem, const Machine& machine) {
  constexpr double most = 512.0 * (1 << 20);
  const double wanted = std::min(2.0 * static_cast<double>(machine.l3 + machine.l2), most);
  const double each = std::max(least_bytes(problem), 1.0);
  return static_cast<std::size_t>(std::clamp(std::ceil(wanted / each), 1.0, 4096.0));
}

// A few whole rows of what a call must give (all, where they are reduced): a timing of wrong
// results is worth nothing. Found once for all candidates, before any runs: in place, the
// input is gone after.
class Sample {
 public:
  explicit Sample(const Call& call) {
    // Of rows of millions every so manieth element, at an odd distance, so that all lanes are seen.
    const std::int64_t apart = (call.spec().cols() >> 20) | 1;
    const Sink sink{.out =
                        [this, apart](std::int64_t i, Expected e) {
                          if (i % apart == 0) out_.emplace_back(i, e);
                        },
                    .lse = [this](std::int64_t i, Expected e) { lse_.emplace_back(i, e); },
                    .gradient = [this](array::Id id, std::int64_t i,
                                       Expected e) { gradients_[id].emplace_back(i, e); }};
    call.driver().expect(call, some_rows(call), sink);
  }

  bool matches(const Call& call) const {
    const auto wrong_row = call.driver().wrong_row;
    for (const std::int64_t r : some_rows(call)) {
      if (wrong_row != nullptr && !wrong_row(call, r).empty()) return false;
    }
    return all_close(call.out(), out_) && all_close(call[array::lse], lse_) &&
           std::ranges::all_of(gradients_, [&call](const auto& each) {
             return all_close(call[each.first], each.second);
           });
  }

 private:
  using Expectations = std::vector<std::pair<std::int64_t, Expected>>;

  static std::vector<std::int64_t> some_rows(const Call& call) {
    const std::int64_t rows = call.spec().rows();
    const std::set<std::int64_t> some = {0, rows / 2, rows - 1};
    return {some.begin(), some.end()};
  }

  static bool all_close(const GuardedArray& got, const Expectations& list) {
    return std::all_of(list.begin(), list.end(), [&got](const auto& each) {
      return distance(got.get(each.first), each.second) <= 1;
    });
  }

  Expectations out_, lse_;
  std::map<array::Id, Expectations> gradients_;
};

class Measurement {
 public:
  Measurement(const Case& c, const Protocol& protocol)
      : case_(c), protocol_(protocol), chosen_(c.variant) {}

  Status prepare(const Selection& selection) {
    if (Status status = machine_of(case_, machine_); !status.ok()) return status;
    if (Status status = describe(case_, problem_); !status.ok()) return status;
    if (case_.device == Device::cuda) {
      if (Status status = head_start_.allocate(kHeadStartBytes); !status.ok()) return status;
    }
    calls_.resize(sets_needed(problem_, machine_));
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      calls_[i] = std::make_unique<Call>();
      const Status status = i == 0 ? calls_[0]->make(case_) : calls_[i]->make_like(*calls_[0]);
      if (!status.ok()) return status;
    }
    if (chosen_.empty()) {  // what the library would run, if anything
      Explanation told;
      const Status status = calls_[0]->run(context_of(case_).explaining(told), "");
      if (!status.ok() && status.code() != Code::unsupported) return status;
      chosen_ = told.plan.variant;
    }
    if (selection.variants == "launches") {
      for (const std::string& launch : launch_names(problem_, machine_)) {
        if (Status status = add(launch, true); !status.ok()) return status;
      }
      return add("copy", true);
    }
    if (selection.variants == "no_clusters") {  // what a GPU like this one without them would run
      Machine without = machine_;
      without.gpu.sm = 80;
      const gpu_rows::Config config = gpu_rows::derived_config(problem_, without);
      if (Status status = add(gpu_rows::name_of(config), true); !status.ok()) return status;
      return add("copy", true);
    }
    if (selection.variants != "all" && selection.variants != "auto") {
      for (const std::string& wanted : split_names(selection.variants)) {
        if (Status status = add(wanted, true); !status.ok()) return status;
      }
      return {};
    }
    for (const Variant& v : variants(case_.op)) {
      if (selection.variants == "auto" && v.name != chosen_) continue;
      if (!v.refuses(problem_, machine_).empty()) continue;
      if (Status status = add(std::string(v.name), false); !status.ok()) return status;
    }
    for (const Peer& p : peers()) {
      if (Status status = add(std::string(p.name), false); !status.ok()) return status;
    }
    return {};
  }

  void run(const std::function<void(const std::string&)>& tell) {
    throw_unless_ok(calls_[0]->reset());
    const Sample sample(*calls_[0]);
    for (Candidate& c : candidates_) {
      tell(fmt::format("{} {}: warm-up", to_string(case_), c.name));
      throw_unless_ok(calls_[0]->reset());
      const Clock::time_point begin = Clock::now();
      c.run[0]();
      throw_unless_ok(calls_[0]->fetch());
      const double first = seconds_since(begin);
      c.verified = c.name != "copy" && sample.matches(*calls_[0]);
      for (int i = 0; i < protocol_.warmup && first < protocol_.seconds; ++i) {
        c.run[next_++ % c.run.size()]();
      }
    }
    for (int r = 0; r < protocol_.runs; ++r) {
      for (Candidate& c : candidates_) {
        if (used_up(c)) continue;
        tell(fmt::format("{} {}: run {}/{}", to_string(case_), c.name, r + 1, protocol_.runs));
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(protocol_.rest_ms));
        const auto earlier = static_cast<std::ptrdiff_t>(c.samples.size());
        case_.device == Device::cuda ? one_gpu_run(c) : one_run(c);
        std::vector<double> round(c.samples.begin() + earlier, c.samples.end());
        std::sort(round.begin(), round.end());
        c.rounds.push_back(quantile(round, 0.5));
      }
    }
  }

  std::vector<Row> rows() {
    std::vector<Row> rows;
    double copy_us = 0;
    for (Candidate& c : candidates_) {
      std::sort(c.samples.begin(), c.samples.end());
      if (c.name == "copy") copy_us = quantile(c.samples, 0.5);
    }
    const double bytes = least_bytes(problem_);
    const auto count = driver_of(case_.op).flops;
    const double flops = count == nullptr ? 0 : count(case_);
    for (const Candidate& c : candidates_) {
      const double median = quantile(c.samples, 0.5);
      rows.push_back({.op = std::string(name(case_.op)),
                      .variant = c.name,
                      .role = std::string(name(c.role)),
                      .chosen = c.chosen,
                      .problem = to_string(case_),
                      .dtype = std::string(name(case_.in)),
                      .shape = case_.shape,
                      .threads = machine_.threads,
                      .median_us = median,
                      .p10_us = quantile(c.samples, 0.1),
                      .p90_us = quantile(c.samples, 0.9),
                      .bytes = static_cast<std::int64_t>(bytes),
                      .gbps = bytes / median / 1e3,
                      .percent_of_copy = copy_us / median * 100,
                      .tflops = c.name == "copy" ? 0 : flops / median / 1e6,
                      .verified = c.verified,
                      .rounds_us = c.rounds});
    }
    return rows;
  }

 private:
  static double quantile(const std::vector<double>& sorted, double q) {
    const double at = q * static_cast<double>(sorted.size() - 1);
    return sorted[static_cast<std::size_t>(std::lround(at))];
  }

  void one_run(Candidate& c) {
    set_max_threads(machine_.threads);
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < protocol_.iters; ++i) {
      auto& call = c.run[next_++ % c.run.size()];
      const Clock::time_point start = Clock::now();
      call();
      const Clock::time_point stop = Clock::now();
      c.samples.push_back(std::chrono::duration<double, std::micro>(stop - start).count());
      if (seconds_since(begin) > protocol_.seconds) break;
    }
  }

  // The GPU keeps the time. It is kept busy first, so that the host can queue a whole batch ahead
  // of it, and no call waits to be launched.
  void one_gpu_run(Candidate& c) {
    const Clock::time_point begin = Clock::now();
    for (int done = 0; done < protocol_.iters && seconds_since(begin) < protocol_.seconds;) {
      // A first call by itself tells how many go into the time.
      const int batch = done == 0 && c.samples.empty() ? 1 : batch_of(c, protocol_.iters - done);
      gpu::Stopwatch watch(2 * static_cast<std::size_t>(batch));
      for (int i = 0; i < 4; ++i) {
        throw_unless_ok(gpu::fill(head_start_.data(), i, head_start_.size()));
      }
      for (int i = 0; i < batch; ++i) {
        watch.mark(2 * static_cast<std::size_t>(i));
        c.run[next_++ % c.run.size()]();
        watch.mark(2 * static_cast<std::size_t>(i) + 1);
      }
      throw_unless_ok(gpu::synchronize());
      for (int i = 0; i < batch; ++i) {
        const auto at = 2 * static_cast<std::size_t>(i);
        c.samples.push_back(watch.microseconds(at, at + 1));
      }
      done += batch;
    }
  }

  // A call that takes longer than all runs together may is timed once.
  bool used_up(const Candidate& c) const {
    double us = 0;
    for (const double sample : c.samples) us += sample;
    return us * 1e-6 > protocol_.seconds * protocol_.runs;
  }

  int batch_of(const Candidate& c, int most) const {
    const double each = std::max(c.samples.back() * 1e-6, 1e-9);
    return static_cast<int>(std::clamp(protocol_.seconds / each, 1.0, static_cast<double>(most)));
  }

  Status add(const std::string& wanted, bool must_run) {
    if (const Peer* peer = find_peer(wanted)) {
      Candidate candidate{.name = wanted, .role = Role::peer, .run = {}};
      for (const auto& call : calls_) {
        const Status status =
            peer->computes(case_.op, case_.device)
                ? peer->prepare(*call, machine_.threads, candidate.run.emplace_back())
                : Status{Code::unsupported,
                         fmt::format("{}: does not compute {} on {}", wanted, name(case_.op),
                                     case_.device == Device::cuda ? "a GPU" : "a CPU")};
        if (status.code() == Code::unsupported && !must_run) return {};
        if (!status.ok()) return status;
      }
      candidates_.push_back(std::move(candidate));
      return {};
    }
    Decision decision;
    if (Status status = plan_variant(wanted, problem_, machine_, decision); !status.ok()) {
      return status;
    }
    Candidate candidate{
        .name = wanted, .role = decision.runs->role, .chosen = wanted == chosen_, .run = {}};
    // The chosen one as the dispatcher launches it, not as its name alone would.
    const bool as_chosen = candidate.chosen && case_.variant.empty();
    for (const auto& call : calls_) {
      candidate.run.emplace_back([this, name = as_chosen ? std::string() : wanted, &call = *call] {
        throw_unless_ok(call.run(context_of(case_), name));
      });
    }
    candidates_.push_back(std::move(candidate));
    return {};
  }

  Case case_;
  Protocol protocol_;
  Machine machine_{};
  Problem problem_{};
  std::string chosen_;
  std::vector<std::unique_ptr<Call>> calls_;
  std::vector<Candidate> candidates_;
  std::size_t next_ = 0;
  static constexpr std::size_t kHeadStartBytes = 256 << 20;
  gpu::Buffer head_start_;
};

}  // namespace

std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return parts;
}

Status measure(const Case& c, const Protocol& protocol, const Selection& selection,
               const std::function<void(const std::string&)>& tell, std::vector<Row>& rows) {
  const auto flops = driver_of(c.op).flops;
  if (c.rows() == 0 || c.cols() == 0 || (flops != nullptr && flops(c) == 0)) {
    return {Code::invalid_argument, fmt::format("problem: '{}' has nothing to time", to_string(c))};
  }
  const int threads_before = max_threads();
  Measurement measurement(c, protocol);
  Status status = measurement.prepare(selection);
  if (status.ok()) {
    measurement.run(tell);
    for (Row& row : measurement.rows()) rows.push_back(std::move(row));
  }
  set_max_threads(threads_before);
  return status;
}

}  // namespace onepass::cli
