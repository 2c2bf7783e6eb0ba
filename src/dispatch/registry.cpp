// The explicit list of everything that can run. Not static registrars: a static library drops them.

#include <array>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/nearest.hpp"
#include "dispatch/variant.hpp"
#include "ops/attention/cpu/variants.hpp"
#include "ops/attention/gpu/backward/hopper/policy.hpp"
#include "ops/attention/gpu/backward/hopper/variants.hpp"
#include "ops/attention/gpu/backward/variants.hpp"
#include "ops/attention/gpu/flash/variants.hpp"
#include "ops/attention/gpu/hopper/policy.hpp"
#include "ops/attention/gpu/hopper/variants.hpp"
#include "ops/attention/gpu/variants.hpp"
#include "ops/loss/cpu/variants.hpp"
#include "ops/loss/gpu/policy.hpp"
#include "ops/loss/gpu/variants.hpp"
#include "ops/select/cpu/limits.hpp"
#include "ops/select/cpu/plan.hpp"
#include "ops/select/cpu/variants.hpp"
#include "ops/select/gpu/policy.hpp"
#include "ops/select/gpu/variants.hpp"
#include "ops/softmax/cpu/policy.hpp"
#include "ops/softmax/cpu/variants.hpp"
#include "ops/softmax/gpu/variants.hpp"
#include "rows/gpu/best.hpp"
#ifdef ONEPASS_HAS_WALK
#include "ops/attention/walk/variants.hpp"
#include "ops/select/walk/variants.hpp"
#include "ops/softmax/walk/variants.hpp"
#endif

namespace onepass {
namespace ops {
namespace {

constexpr Ops kSoftmax = only(Op::softmax);
constexpr Ops kLogSoftmax = only(Op::log_softmax);
constexpr Ops kForward = kSoftmax | kLogSoftmax | only(Op::logsumexp);
constexpr Ops kBackward = only(Op::softmax_backward) | only(Op::log_softmax_backward);
constexpr Ops kCrossEntropy = only(Op::cross_entropy) | only(Op::cross_entropy_backward);

constexpr Ops kSelect = only(Op::topk) | only(Op::sample);

// A GPU's variant is listed in every build; where there is no CUDA, it cannot run.
#ifdef ONEPASS_HAS_CUDA
constexpr bool kHasCuda = true;
#else
constexpr bool kHasCuda = false;
#endif

// Runs a function that takes the arguments of a call and a launch of its own type.
template <class Args, class Own, Status (*Function)(const Args&, const Own&)>
Status run_own(const Args& args, const Launch& launch) {
  return Function(args, std::get<Own>(launch));
}

template <auto Function>
struct RunnerOf;
template <class Own, Status (*Function)(const RowArgs&, const Own&)>
struct RunnerOf<Function> {
  static constexpr Run kRun{.rows = run_own<RowArgs, Own, Function>};
};
template <class Own, Status (*Function)(const AttentionArgs&, const Own&)>
struct RunnerOf<Function> {
  static constexpr Run kRun{.attention = run_own<AttentionArgs, Own, Function>};
};

template <class Own, Status (*Function)(const AttentionBackwardArgs&, const Own&)>
struct RunnerOf<Function> {
  static constexpr Run kRun{.attention_backward = run_own<AttentionBackwardArgs, Own, Function>};
};

template <auto Function>
constexpr Run runner() {
  return RunnerOf<Function>::kRun;
}
template <auto Function>
constexpr Run on_cpu = runner<Function>();
template <auto Function>
constexpr Run gpu_runner() {
  if constexpr (kHasCuda) return runner<Function>();
  return {};
}
template <auto Function>
constexpr Run on_gpu = gpu_runner<Function>();

// Plans with a function that returns a launch of its own type, or one of several.
template <auto Function>
Launch planned_by(const Problem& p, const Machine& m, Reasons* reasons) {
  const auto launch = [&] {
    if constexpr (std::is_invocable_v<decltype(Function), const Problem&, const Machine&,
                                      Reasons*>) {
      return Function(p, m, reasons);
    } else {
      return Function(p, m);
    }
  }();
  if constexpr (requires { Launch(launch); }) {
    return launch;
  } else {
    return widened(launch);
  }
}
template <auto Function>
constexpr auto plan = planned_by<Function>;

// Yields unless a family's policy, which says why, decides for this one.
template <auto Policy, auto Own>
bool yields_unless(const Problem& p, const Machine& m, Reasons* why) {
  return Policy(p, m, why) != Own;
}
template <auto Policy, auto Own>
constexpr auto best_if = yields_unless<Policy, Own>;

constexpr Variant kVariants[] = {
#ifdef ONEPASS_HAS_WALK
#include "ops/attention/walk/variants.def"
#include "ops/select/walk/variants.def"
#include "ops/softmax/walk/variants.def"
#endif
#include "ops/attention/variants.def"
#include "ops/loss/variants.def"
#include "ops/select/variants.def"
#include "ops/softmax/variants.def"
};

}  // namespace
}  // namespace ops

std::span<const Variant> variants(Op op) {
  static const auto by_op = [] {
    std::array<std::vector<Variant>, kAllOps.size()> lists;
    for (const Device device : {Device::cpu, Device::cuda}) {
      for (const Variant& v : ops::kVariants) {
        for (const Op each : kAllOps) {
          const bool runs = v.device == device && (v.ops & only(each)) != 0;
          if (runs) lists[static_cast<std::size_t>(each)].push_back(v);
        }
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

std::string_view name_today(std::string_view variant) {
  constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {
      {"flash_mma", "gpu_flash"}, {"hopper", "gpu_hopper"}, {"simt", "gpu_simt"}};
  for (const auto& [once, today] : kRenamed) {
    if (variant == once) return today;
  }
  return variant;
}

Status no_such_variant(Op op, std::string_view wanted) {
  std::string text =
      "variant: " + std::string(name(op)) + " has no '" + std::string(wanted) + "'; it has";
  std::vector<std::string_view> names;
  for (const Variant& v : variants(op)) names.push_back(v.name);
  for (const std::string_view each : names) text += " " + std::string(each);
  const std::string_view today = name_today(wanted);
  const bool renamed = today != wanted && find_variant(op, today) != nullptr;
  return {Code::invalid_argument, text + (renamed ? " (it is called " + std::string(today) + " now)"
                                                  : did_you_mean(wanted, names))};
}

}  // namespace onepass
