// Verification of one case: what passes, what is refused or fails, and what a case leaves open.
#include "cli/measure/verify.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/problem/fill.hpp"
#include "dispatch/machines.hpp"
#include "dispatch/variant.hpp"
#include "runtime/host.hpp"
#include "tests/support/problem.hpp"

namespace onepass::cli {
namespace {

TEST(VerifyTest, PassesRefusesAndFails) {
  Case c{.shape = {4, 33}};
  EXPECT_EQ(verify(c).kind, Verdict::Kind::passed);
  EXPECT_FALSE(verify(c).variant.empty());
  EXPECT_LE(verify(c).worst, 1);

  c.variant = "cpu_lanes";
  const Verdict refused = verify(c);
  EXPECT_EQ(refused.kind, Verdict::Kind::refused);
  EXPECT_NE(refused.message.find("cpu_lanes"), std::string::npos) << refused.message;

  c.variant = "cpu_best";
  const Verdict unknown = verify(c);
  EXPECT_EQ(unknown.kind, Verdict::Kind::failed);
  EXPECT_NE(unknown.message.find("cpu_best"), std::string::npos) << unknown.message;

  c.variant.clear();
  c.isa = "MMX";
  const Verdict no_isa = verify(c);
  EXPECT_EQ(no_isa.kind, Verdict::Kind::failed);
  EXPECT_NE(no_isa.message.find("isa: 'MMX' cannot run here"), std::string::npos) << no_isa.message;
}

// The variants of softmax that take a dense row without options.
std::vector<std::string> plain_variants(const Case& c) {
  std::vector<std::string> names;
  for (const Variant& v : variants(c.op)) {
    if (v.refuses(problem_of(c), this_host()).empty()) names.emplace_back(v.name);
  }
  return names;
}

TEST(VerifyTest, TheVariantThatIsAskedForIsTheOneThatRan) {
  const Case c{.shape = {4, 33}};
  ASSERT_GE(plain_variants(c).size(), 4U);
  for (const std::string& isa : runnable_isas()) {
    for (const std::string& variant : plain_variants(c)) {
      const Verdict verdict = verify({.shape = c.shape, .variant = variant, .isa = isa});
      EXPECT_EQ(verdict.kind, Verdict::Kind::passed) << isa << " " << verdict.message;
      EXPECT_EQ(verdict.variant, variant);
    }
  }
}

TEST(VerifyTest, ExpandLeavesNothingOut) {
  const std::size_t isas = runnable_isas().size();
  const Case c{.shape = {4, 33}};
  const std::vector<Case> one_fill = expand(c, false);
  EXPECT_EQ(one_fill.size(), isas * plain_variants(c).size() + 1);  // and the dispatcher's choice
  EXPECT_EQ(expand(c, true).size(), one_fill.size() * fills().size());
  for (const Case& each : one_fill) EXPECT_EQ(each.fill, "random");

  const std::vector<Case> named = expand({.shape = {4, 33}, .variant = "cpu_row"}, false);
  ASSERT_EQ(named.size(), isas);
  for (const Case& each : named) EXPECT_EQ(each.variant, "cpu_row");

  const std::vector<Case> fixed =
      expand({.shape = {4, 33}, .variant = "cpu_row", .isa = runnable_isas()[0]}, false);
  EXPECT_EQ(fixed.size(), 1U);
}

}  // namespace
}  // namespace onepass::cli
