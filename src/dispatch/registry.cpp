// The explicit list of everything that can run. Not static registrars: a static library drops them.

#include <array>
#include <vector>

#include "ops/attention/gpu/plan.hpp"
#include "ops/select/gpu/policy.hpp"
#include "ops/loss/gpu/plan.hpp"
#include "ops/attention/walk/plan.hpp"
#include "ops/attention/variants.hpp"
#include "ops/loss/variants.hpp"
#include "ops/select/cpu/limits.hpp"
#include "ops/softmax/cpu/limits.hpp"
#include "ops/softmax/walk/plan.hpp"
#include "ops/softmax/variants.hpp"
#include "ops/select/walk/plan.hpp"
#include "ops/select/variants.hpp"
#include "dispatch/variant.hpp"

namespace onepass {
namespace ops {
namespace {

constexpr Ops kSoftmax = only(Op::softmax);
constexpr Ops kLogSoftmax = only(Op::log_softmax);
constexpr Ops kForward = kSoftmax | kLogSoftmax | only(Op::logsumexp);
constexpr Ops kBackward = only(Op::softmax_backward) | only(Op::log_softmax_backward);
constexpr Ops kCrossEntropy = only(Op::cross_entropy) | only(Op::cross_entropy_backward);

constexpr Ops kChoose = only(Op::topk) | only(Op::sample);

// A GPU's variant is listed in every build; where there is no CUDA, it cannot run.
#ifdef ONEPASS_HAS_CUDA
constexpr bool kHasCuda = true;
#else
constexpr bool kHasCuda = false;
#endif

template <auto Run>
constexpr auto run_if_built() {
  if constexpr (kHasCuda) {
    return Run;
  } else {
    return static_cast<decltype(Run)>(nullptr);
  }
}

template <auto Run>
constexpr auto on_gpu = run_if_built<Run>();

namespace geometry = softmax::geometry;

constexpr Variant kVariants[] = {
#include "ops/attention/variants.def"
#include "ops/loss/variants.def"
#include "ops/softmax/variants.def"
#include "ops/select/variants.def"
};

}  // namespace
}  // namespace ops

std::span<const Variant> variants(Op op) {
  static const auto by_op = [] {
    std::array<std::vector<Variant>, kAllOps.size()> lists;
    for (const Variant& v : ops::kVariants) {
      for (const Op each : kAllOps) {
        if ((v.ops & only(each)) != 0) lists[static_cast<std::size_t>(each)].push_back(v);
      }
    }
    return lists;
  }();
  return by_op[static_cast<std::size_t>(op)];
}

const Variant* find_variant(Op op, std::string_view name) {
  for (const Variant& v : variants(op)) {
    if (v.name == name) return &v;
  }
  return nullptr;
}

Status no_such_variant(Op op, std::string_view wanted) {
  std::string text =
      "variant: " + std::string(name(op)) + " has no '" + std::string(wanted) + "'; it has";
  for (const Variant& v : variants(op)) text += " " + std::string(v.name);
  return {Code::invalid_argument, text};
}

}  // namespace onepass
