// What a call must give, and how far from it a result may lie.
//
// The bound is a number of ulps of the computing type, from one table, plus what no implementation
// of the formula in that type can avoid: rounding to the output's dtype, and the rounding of z and
// of z − m, which grows with their size (an error of e in an exponent is a relative error of e).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "cli/ops/call.hpp"

namespace onepass::cli {

struct Expected {
  double value;      // as it is, also where the result's type has no number so large
  double tolerance;  // absolute
  double most = std::numeric_limits<double>::infinity();  // largest number of the result
  bool open = false;                                      // anything passes
};

struct Expectation {
  std::vector<Expected> out;                             // C order of the output
  std::vector<Expected> lse;                             // empty unless the call writes one
  std::vector<Expected> loss;                            // the same, beside a gradient
  std::map<array::Id, std::vector<Expected>> gradients;  // of kGradients, those that are written
};

Expectation expect(const Call& call);

// The case without what changes nothing of its Expectation: cases that agree here
// have the same one.
Case what_is_expected(Case c);

// Takes what element `index` of the output, of the lse, of the loss beside a gradient, or of a
// gradient beside the first must be. Without `loss` that is left out: reduced, it takes all rows.
struct Sink {
  std::function<void(std::int64_t index, Expected)> out;
  std::function<void(std::int64_t index, Expected)> lse;
  std::function<void(std::int64_t index, Expected)> loss = {};
  std::function<void(array::Id, std::int64_t index, Expected)> gradient = {};
};

// Each driver's, of some rows. A loss that all rows are reduced to is given whole. Rows of
// attention are queries in the order of the case's shape: batch, head, query.
void expect_softmax(const Call& call, std::span<const std::int64_t> rows, const Sink& sink);
void expect_loss(const Call& call, std::span<const std::int64_t> rows, const Sink& sink);
void expect_select(const Call& call, std::span<const std::int64_t> rows, const Sink& sink);
void expect_attention(const Call& call, std::span<const std::int64_t> rows, const Sink& sink);
// Of some rows only, a few keys' gradients and none of the mask.
void expect_attention_backward(const Call& call, std::span<const std::int64_t> rows,
                               const Sink& sink);

// Ulps of the computing type that an op may be off by, beyond what its conditioning explains.
double ulps(Op op);

// How far `got` is from what was expected, in tolerances: at most 1 passes. NaN and inf must match;
// inf is also right where the value may be past the largest number.
double distance(double got, const Expected& expected);

}  // namespace onepass::cli
