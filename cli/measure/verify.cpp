#include "cli/measure/verify.hpp"
#include "dispatch/machines.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "cli/ops/call.hpp"
#include "cli/ops/expect.hpp"
#include "dispatch/choose.hpp"
#include "dispatch/variant.hpp"
#include "runtime/gpu.hpp"
#include "runtime/host.hpp"

namespace onepass::cli {
namespace {

// The first element that is wrong, in words; empty when none is.
std::string compare(std::string_view what, const GuardedArray& got,
                    const std::vector<Expected>& expected, double& worst) {
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const Expected& e = expected[static_cast<std::size_t>(i)];
    const double d = distance(got.get(i), e);
    worst = std::max(worst, d);
    if (d > 1) {
      return fmt::format("{}[{}] is {:.9g}, expected {:.9g} within {:.3g} ({:.1f} tolerances)",
                         what, i, got.get(i), e.value, e.tolerance, d);
    }
  }
  return {};
}

// What was written, bit for bit: a NaN differs from itself, but not from its copy.
std::vector<double> written_by(const Call& call) {
  std::vector<double> values;
  for (const array::Id id : kAllArrays) {
    const std::int64_t size = call.writes(id) ? call[id].size() : 0;
    for (std::int64_t i = 0; i < size; ++i) values.push_back(call[id].get(i));
  }
  return values;
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

Verdict failed(std::string message) {
  Verdict verdict;
  verdict.kind = Verdict::Kind::failed;
  verdict.message = std::move(message);
  return verdict;
}

Verdict not_run(const Status& status) {
  Verdict verdict = failed(status.message());
  verdict.code = status.code();
  return verdict;
}

}  // namespace

std::string wrong_answer(const Call& call, const Expectation& expectation, double& worst) {
  const std::tuple<std::string_view, const GuardedArray&, const std::vector<Expected>&> outputs[] =
      {{"out", call.out(), expectation.out},
       {"lse", call[array::lse], expectation.lse},
       {"loss", call[array::loss], expectation.loss}};
  const auto wrong_row = call.driver().wrong_row;
  std::string wrong;
  for (const auto& [what, got, expected] : outputs) {
    if (!wrong.empty() || (what != "out" && expected.empty())) continue;
    if (what != "out" || wrong_row == nullptr) wrong = compare(what, got, expected, worst);
    if (wrong.empty() && !got.intact()) {
      wrong = fmt::format("{}: bytes beside the elements were written", what);
    }
  }
  for (const auto& [id, expected] : expectation.gradients) {
    if (wrong.empty()) wrong = compare(array::name(id), call[id], expected, worst);
  }
  for (std::int64_t r = 0; wrong.empty() && wrong_row != nullptr && r < call.spec().rows(); ++r) {
    wrong = wrong_row(call, r);
  }
  for (const array::Id id : kAllArrays) {
    if (wrong.empty() && call.writes(id) && !call[id].intact()) {
      wrong = "bytes beside the elements of an output were written";
    }
  }
  return wrong;
}

Verdict Verifier::run_and_compare(const Case& c) {
  Call call;
  if (Status status = call.make(c); !status.ok()) return not_run(status);
  if (const Case problem = what_is_expected(c); !expected_ || expected_of_ != problem) {
    expected_ = expect(call);
    expected_of_ = problem;
  }
  const Expectation& expectation = *expected_;
  const Context context = context_of(c);
  Verdict verdict;
  std::vector<double> first;
  for (int repeat = 0; repeat < 2; ++repeat) {
    if (Status status = call.reset(); !status.ok()) return not_run(status);
    Plan plan;
    const Status status = call.run(context, c.variant, &plan);
    if (!status.ok()) {
      Verdict refused = not_run(status);
      if (status.code() == Code::unsupported) refused.kind = Verdict::Kind::refused;
      return refused;
    }
    if (Status fetched = call.fetch(); !fetched.ok()) return not_run(fetched);
    if (!c.variant.empty() &&
        plan.variant != std::string_view(c.variant).substr(0, c.variant.find(':'))) {
      return failed(fmt::format("{} ran in place of {}", plan.variant, c.variant));
    }
    verdict.variant = plan.variant;
    const std::string wrong = wrong_answer(call, expectation, verdict.worst);
    if (!wrong.empty()) return failed(fmt::format("{} ({})", wrong, to_string(plan)));
    if (repeat == 0) {
      first = written_by(call);
    } else if (!same_bits(first, written_by(call))) {
      return failed("two runs of one plan differ in their bits");
    }
  }
  return verdict;
}

Verdict Verifier::verify(const Case& c) {
  if (!force_isa(c.isa)) {
    const std::string why = fmt::format("isa: '{}' cannot run here; these can: {}", c.isa,
                                        fmt::join(runnable_isas(), ", "));
    return not_run({Code::unsupported, why});
  }
  Verdict verdict = run_and_compare(c);
  force_isa("");
  return verdict;
}

namespace {

// The case on the CPU: once for each variant and instruction set that it leaves open.
void expand_on_cpu(const Case& c, const Problem& problem, std::vector<Case>& out) {
  const Machine machine = this_host(c.threads);
  for (const Variant& v : variants(c.op)) {
    if (v.device != Device::cpu) continue;
    if (!c.variant.empty() ? v.name != c.variant : !v.refuses(problem, machine).empty()) continue;
    for (const std::string& isa : runnable_isas()) {
      if (!c.isa.empty() && isa != c.isa) continue;
      Case each = c;
      each.isa = isa;
      each.variant = v.name;
      out.push_back(each);
    }
  }
  if (c.variant.empty()) out.push_back(c);  // and as the dispatcher would have it
}

// The same on the GPU, where the machine has one: what ships in every launch that a
// tuning may choose.
void expand_on_gpu(const Case& c, const Problem& problem, std::vector<Case>& out) {
  Machine machine{};
  if (!this_gpu(machine).ok()) {
    if (c.device == Device::cuda) out.push_back(c);  // to be refused by name
    return;
  }
  Case each = c;
  each.device = Device::cuda;
  for (const Variant& v : variants(c.op)) {
    if (v.device != Device::cuda) continue;
    if (!c.variant.empty() ? v.name != c.variant : !v.refuses(problem, machine).empty()) continue;
    each.variant = v.name;
    out.push_back(each);
    if (v.role != Role::ship || !c.variant.empty()) continue;
    for (const std::string& launch : launch_names(problem, machine)) {
      if (launch.substr(0, launch.find(':')) != v.name) continue;
      each.variant = launch;
      out.push_back(each);
    }
  }
}

}  // namespace

std::vector<Case> expand(const Case& c, bool all_fills) {
  if (find_fill(c.fill) == nullptr) return {c};  // to be refused by name, not left out
  std::vector<Case> with_fill;
  for (const Fill& fill : fills()) {
    Case each = c;
    each.fill = fill.name;
    if (all_fills || each.fill == c.fill) with_fill.push_back(each);
  }
  // What names a device, an instruction set or a variant leaves out the other device.
  const bool only_cpu = !c.isa.empty() || c.threads != 0;
  const bool named = !c.variant.empty();
  std::vector<Case> result;
  const auto expand_on = [&](const Case& filled, Device device, auto expand_there) {
    Case there = filled;
    there.device = device;
    Problem problem;
    if (describe(there, problem).ok()) return expand_there(filled, problem, result);
    if (c.device == device) result.push_back(filled);  // to be refused by name
  };
  for (const Case& filled : with_fill) {
    if (c.device == Device::cpu) expand_on(filled, Device::cpu, expand_on_cpu);
    if (c.device == Device::cuda || (!named && !only_cpu)) {
      expand_on(filled, Device::cuda, expand_on_gpu);
    }
  }
  return result;
}

}  // namespace onepass::cli
