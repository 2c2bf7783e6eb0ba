#include "cli/verify.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "cli/call.hpp"
#include "cli/expect.hpp"
#include "dispatch/choose.hpp"
#include "ops/variant.hpp"
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

bool same_bits(const GuardedArray& a, const GuardedArray& b) {
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double x = a.get(i);
    const double y = b.get(i);
    if (std::memcmp(&x, &y, sizeof x) != 0) return false;
  }
  return true;
}

Verdict failed(std::string message) { return {Verdict::Kind::failed, std::move(message), 0, {}}; }

Verdict run_and_compare(const Case& c) {
  Call call;
  if (Status status = call.make(c); !status.ok()) return failed(status.message());
  const Expectation expectation = expect(call);
  const Context context = Context::cpu(c.threads);
  Verdict verdict;
  GuardedArray first;
  for (int repeat = 0; repeat < 2; ++repeat) {
    call.reset();
    Plan plan;
    const Status status = call.run(context, c.variant, &plan);
    if (status.code() == Code::unsupported)
      return {Verdict::Kind::refused, status.message(), 0, {}};
    if (!status.ok()) return failed(status.message());
    if (!c.variant.empty() && plan.variant != c.variant) {
      return failed(fmt::format("{} ran in place of {}", plan.variant, c.variant));
    }
    verdict.variant = plan.variant;
    std::string wrong = compare("out", call.out(), expectation.out, verdict.worst);
    if (wrong.empty() && !expectation.lse.empty()) {
      wrong = compare("lse", call.lse(), expectation.lse, verdict.worst);
    }
    if (wrong.empty() && !call.out().intact())
      wrong = "out: bytes beside the elements were written";
    if (wrong.empty() && !expectation.lse.empty() && !call.lse().intact()) {
      wrong = "lse: bytes beside the elements were written";
    }
    if (!wrong.empty()) return failed(fmt::format("{} ({})", wrong, to_string(plan)));
    if (repeat == 0) {
      const Tensor& t = call.out().tensor();
      const std::span shape(t.shape.data(), static_cast<std::size_t>(t.rank));
      if (Status made = first.make(t.dtype, shape); !made.ok()) return failed(made.message());
      for (std::int64_t i = 0; i < first.size(); ++i) first.set(i, call.out().get(i));
    } else if (!same_bits(first, call.out())) {
      return failed("two runs of one plan differ in their bits");
    }
  }
  return verdict;
}

}  // namespace

Verdict verify(const Case& c) {
  if (!force_isa(c.isa)) {
    return failed(fmt::format("isa: '{}' cannot run here; these can: {}", c.isa,
                              fmt::join(runnable_isas(), ", ")));
  }
  Verdict verdict = run_and_compare(c);
  force_isa("");
  return verdict;
}

std::vector<Case> expand(const Case& c, bool all_fills) {
  if (find_fill(c.fill) == nullptr) return {c};  // to be refused by name, not left out
  std::vector<Case> with_fill;
  for (const Fill& fill : fills()) {
    Case each = c;
    each.fill = fill.name;
    if (all_fills || each.fill == c.fill) with_fill.push_back(each);
  }
  std::vector<Case> result;
  const Problem problem = problem_of(c);
  for (const Case& filled : with_fill) {
    for (const std::string& isa : runnable_isas()) {
      if (!c.isa.empty() && isa != c.isa) continue;
      for (const Variant& v : variants(c.op)) {
        if (!c.variant.empty() ? v.name != c.variant : !v.refuses(problem).empty()) continue;
        Case each = filled;
        each.isa = isa;
        each.variant = v.name;
        result.push_back(each);
      }
    }
    if (c.variant.empty()) result.push_back(filled);  // and as the dispatcher would have it
  }
  return result;
}

}  // namespace onepass::cli
