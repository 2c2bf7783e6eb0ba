#include "cli/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "cli/call.hpp"
#include "cli/expect.hpp"
#include "cli/peers.hpp"
#include "dispatch/choose.hpp"
#include "ops/variant.hpp"
#include "runtime/host.hpp"
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
};

// Buffers enough that a call finds nothing of its data in the caches, within reason.
std::size_t sets_needed(const Problem& problem, const Machine& machine) {
  constexpr double most = 512.0 * (1 << 20);
  const double wanted = std::min(2.0 * static_cast<double>(machine.l3 + machine.l2), most);
  const double each = std::max(least_bytes(problem), 1.0);
  return static_cast<std::size_t>(std::clamp(std::ceil(wanted / each), 1.0, 4096.0));
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return parts;
}

// Runs once and compares a few whole rows with the oracle (all, where they are reduced): a timing of
// wrong results is worth nothing. What to expect is found first: in place, the input is gone after.
bool is_right(const Call& call, const std::function<void()>& run) {
  using Expectations = std::vector<std::pair<std::int64_t, Expected>>;
  Expectations out;
  Expectations lse;
  const auto into = [](Expectations& list) {
    return [&list](std::int64_t i, Expected e) { list.emplace_back(i, e); };
  };
  const Case& spec = call.spec();
  if (spec.op == Op::cross_entropy && spec.reduction != Reduction::none) {
    out.emplace_back(0, expect(call).out[0]);
  } else {
    const Sink sink{.out = into(out), .lse = into(lse)};
    for (const std::int64_t r : {std::int64_t{0}, spec.rows() / 2, spec.rows() - 1}) {
      expect_row(call, r, sink);
    }
  }
  run();
  const auto close = [](const GuardedArray& got, const Expectations& list) {
    return std::all_of(list.begin(), list.end(), [&got](const auto& each) {
      return distance(got.get(each.first), each.second) <= 1;
    });
  };
  return close(call.out(), out) && close(call.lse(), lse);
}

class Measurement {
 public:
  Measurement(const Case& c, const Protocol& protocol)
      : case_(c),
        protocol_(protocol),
        machine_(host(c.threads)),
        problem_(problem_of(c)),
        chosen_(c.variant.empty() ? choose(problem_, machine_).variant : c.variant) {}

  Status prepare(const Selection& selection) {
    calls_.resize(sets_needed(problem_, machine_));
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      calls_[i] = std::make_unique<Call>();
      Case each = case_;
      each.seed += i;
      if (Status status = calls_[i]->make(each); !status.ok()) return status;
      calls_[i]->reset();
    }
    if (selection.variants != "all" && selection.variants != "auto") {
      for (const std::string& wanted : split(selection.variants)) {
        if (Status status = add(wanted, true); !status.ok()) return status;
      }
      return {};
    }
    for (const Variant& v : variants(case_.op)) {
      if (selection.variants == "auto" && v.name != chosen_) continue;
      if (!v.refuses(problem_).empty()) continue;
      if (Status status = add(std::string(v.name), false); !status.ok()) return status;
    }
    for (const Peer& p : peers()) {
      if (Status status = add(std::string(p.name), false); !status.ok()) return status;
    }
    return {};
  }

  void run(const std::function<void(const std::string&)>& tell) {
    for (Candidate& c : candidates_) {
      tell(fmt::format("{} {}: warm-up", to_string(case_), c.name));
      calls_[0]->reset();
      c.verified = c.name != "copy" && is_right(*calls_[0], c.run[0]);
      for (int i = 0; i < protocol_.warmup; ++i) c.run[next_++ % c.run.size()]();
    }
    for (int r = 0; r < protocol_.runs; ++r) {
      for (Candidate& c : candidates_) {
        tell(fmt::format("{} {}: run {}/{}", to_string(case_), c.name, r + 1, protocol_.runs));
        one_run(c);
      }
    }
  }

  std::vector<Row> rows() {
    std::vector<Row> rows;
    double copy_us = 0;
    for (Candidate& c : candidates_) {
      std::sort(c.samples.begin(), c.samples.end());
      if (c.name == "copy") copy_us = quantile(c, 0.5);
    }
    const double bytes = least_bytes(problem_);
    for (const Candidate& c : candidates_) {
      const double median = quantile(c, 0.5);
      rows.push_back({.op = std::string(name(case_.op)),
                      .variant = c.name,
                      .role = std::string(name(c.role)),
                      .chosen = c.chosen,
                      .problem = to_string(case_),
                      .dtype = std::string(name(case_.in)),
                      .shape = case_.shape,
                      .threads = machine_.threads,
                      .median_us = median,
                      .p10_us = quantile(c, 0.1),
                      .p90_us = quantile(c, 0.9),
                      .bytes = static_cast<std::int64_t>(bytes),
                      .gbps = bytes / median / 1e3,
                      .percent_of_copy = copy_us / median * 100,
                      .verified = c.verified});
    }
    return rows;
  }

 private:
  static double quantile(const Candidate& c, double q) {
    const double at = q * static_cast<double>(c.samples.size() - 1);
    return c.samples[static_cast<std::size_t>(std::lround(at))];
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
      if (std::chrono::duration<double>(stop - begin).count() > protocol_.seconds) break;
    }
  }

  Status add(const std::string& wanted, bool must_run) {
    if (const Peer* peer = find_peer(wanted)) {
      Candidate candidate{.name = wanted, .role = Role::peer, .run = {}};
      for (const auto& call : calls_) {
        const Status status =
            peer->computes(case_.op)
                ? peer->prepare(*call, machine_.threads, candidate.run.emplace_back())
                : Status{Code::unsupported,
                         fmt::format("{}: does not compute {}", wanted, name(case_.op))};
        if (status.code() == Code::unsupported && !must_run) return {};
        if (!status.ok()) return status;
      }
      candidates_.push_back(std::move(candidate));
      return {};
    }
    Plan plan;
    if (Status status = plan_variant(wanted, problem_, machine_, plan); !status.ok()) return status;
    Candidate candidate{.name = wanted,
                        .role = find_variant(case_.op, wanted)->role,
                        .chosen = wanted == chosen_,
                        .run = {}};
    for (const auto& call : calls_) {
      candidate.run.emplace_back([this, plan, &call = *call] {
        const Status status = call.run(Context::cpu(case_.threads), plan.variant);
        if (!status.ok()) throw std::runtime_error(status.message());
      });
    }
    candidates_.push_back(std::move(candidate));
    return {};
  }

  Case case_;
  Protocol protocol_;
  Machine machine_;
  Problem problem_;
  std::string chosen_;
  std::vector<std::unique_ptr<Call>> calls_;
  std::vector<Candidate> candidates_;
  std::size_t next_ = 0;
};

}  // namespace

Status measure(const Case& c, const Protocol& protocol, const Selection& selection,
               const std::function<void(const std::string&)>& tell, std::vector<Row>& rows) {
  if (c.rows() == 0 || c.cols() == 0) {
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
