#include "cli/ops/expect.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cli/ops/row_bounds.hpp"
#include "dispatch/variant.hpp"

namespace onepass::cli {

bool adds_in_order(const Case& c) {
  const auto all = variants(c.op);
  return std::any_of(all.begin(), all.end(), [&c](const Variant& v) {
    return v.name == c.variant && v.device == Device::cuda && v.role != Role::ship;
  });
}

double ulps(Op op) {
  switch (op) {
    case Op::log_softmax:
    case Op::logsumexp: return 4;
    case Op::softmax_backward:
    case Op::cross_entropy: return 6;
    case Op::softmax:
    case Op::log_softmax_backward:
    case Op::cross_entropy_backward:
    case Op::topk:
    case Op::sample:
    case Op::gate:
    case Op::attention:
    case Op::attention_backward: return 8;
  }
  return 0;
}

Case what_is_expected(Case c) {
  c.isa.clear();
  if (!adds_in_order(c)) c.variant.clear();
  return c;
}

Expectation expect(const Call& call) {
  const auto size = [&call](bool given, array::Id id) {
    return given ? static_cast<std::size_t>(call[id].size()) : 0;
  };
  const auto into = [](std::vector<Expected>& list) {
    return [&list](std::int64_t i, Expected x) { list[static_cast<std::size_t>(i)] = x; };
  };
  Expectation e;
  if (call.driver().wrong_row == nullptr) e.out.resize(static_cast<std::size_t>(call.out().size()));
  e.lse.resize(size(writes_lse(call.spec()), array::lse));
  e.loss.resize(size(call.spec().loss, array::loss));
  std::vector<std::int64_t> rows(static_cast<std::size_t>(call.spec().rows()));
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  for (const array::Id id : kGradients) e.gradients[id].resize(size(call.writes(id), id));
  const auto gradient = [&e](array::Id id, std::int64_t i, Expected x) {
    e.gradients[id][static_cast<std::size_t>(i)] = x;
  };
  call.driver().expect(
      call, rows,
      {.out = into(e.out), .lse = into(e.lse), .loss = into(e.loss), .gradient = gradient});
  return e;
}

double distance(double got, const Expected& expected) {
  if (expected.open) return 0;
  if (std::isnan(expected.value))
    return std::isnan(got) ? 0 : std::numeric_limits<double>::infinity();
  if (std::isinf(expected.value))
    return got == expected.value ? 0 : std::numeric_limits<double>::infinity();
  if (std::isinf(got)) {
    const double furthest = std::copysign(1.0, got) * expected.value + expected.tolerance;
    return furthest > expected.most ? 0 : std::numeric_limits<double>::infinity();
  }
  const double d = std::abs(got - expected.value);
  if (d == 0) return 0;
  return std::isfinite(d) ? d / expected.tolerance : std::numeric_limits<double>::infinity();
}

}  // namespace onepass::cli
