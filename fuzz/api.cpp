// The target `api`: one call of one op. In order, it must give what the oracle says; with one thing
// wrong it must be refused, and nothing written.

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "cli/measure/verify.hpp"
#include "cli/ops/attention.hpp"
#include "cli/ops/expect.hpp"
#include "core/number.hpp"
#include "dispatch/choose.hpp"
#include "fuzz/arguments.hpp"
#include "fuzz/decode.hpp"
#include "fuzz/targets.hpp"
#include "runtime/gpu.hpp"

namespace onepass::fuzz {
namespace {

void require(const Status& status, std::string_view what) {
  if (!status.ok()) finding(fmt::format("{}: {}: {}", what, name(status.code()), status.message()));
}

// Raw bits in the place of some elements: infinities, NaNs and zeros of either sign, subnormals.
void poke(Bytes& bytes, cli::Call& call) {
  namespace array = cli::array;
  const array::Id of = call.spec().op != Op::attention_backward
                           ? array::x
                           : bytes.pick({array::x, array::k, array::v, array::d_o});
  cli::GuardedArray& x = call[of];
  for (std::int64_t left = bytes.below(4); left > 0 && x.size() > 0; --left) {
    const std::int64_t at = bytes.below(x.size());
    const double value = bytes.pick({-std::numeric_limits<double>::infinity(), -0.0, 0x1p-149, 1.0,
                                     std::numeric_limits<double>::quiet_NaN(),
                                     std::numeric_limits<double>::infinity(), 100.0});
    x.set(at, value);
  }
}

// The lse of the forward belongs to the logits, which laying them out may have changed. So does its
// o.
bool renew_forward(cli::Call& call) {
  const cli::Case& c = call.spec();
  if (c.op == Op::attention_backward) {
    cli::give_forward(call);
    return true;
  }
  if (c.op != Op::cross_entropy_backward || !c.lse || c.loss) return false;
  for (std::int64_t r = 0; r < c.rows(); ++r) {
    oracle::Row x;
    for (std::int64_t i = 0; i < c.cols(); ++i) x.push_back(call.in().get(call.index(r, i)));
    call[cli::array::lse].set(r, oracle::logsumexp(oracle::logits(x, call.transform(r))));
  }
  return true;
}

Context decode_context(Bytes& bytes, const cli::Case& c) {
  Context context = cli::context_of(c);
  return bytes.one_in(4) ? context.trusting() : context;
}

// Products of extremes with what is poked in are past the range. A GPU's tensor cores multiply what
// is hidden (docs/numerics.md).
bool takes_poking(const cli::Case& c) {
  const Op op = c.op;
  if (attends(op) && c.fill == "extremes") return false;
  if (op == Op::attention_backward) return device == Device::cpu;
  return op != Op::softmax_backward && op != Op::log_softmax_backward &&
         op != Op::cross_entropy_backward;
}

// The gradient of a mask that was broadcast: the sum over those that share an element.
void sum_shared(const Argument* gradient, std::vector<cli::Expected>& expected) {
  if (gradient == nullptr || gradient->in_order) return;
  std::map<std::int64_t, cli::Expected> sums;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::int64_t at = gradient->place(static_cast<std::int64_t>(i));
    const auto [sum, first] = sums.try_emplace(at, expected[i]);
    if (first) continue;
    sum->second.value += expected[i].value;
    sum->second.tolerance += expected[i].tolerance;
    sum->second.open = sum->second.open || expected[i].open;
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] = sums.at(gradient->place(static_cast<std::int64_t>(i)));
  }
}

// An op tells what it would do, and touches nothing.
void explain(const Context& context, const cli::Case& c, Arguments& arguments, Explanation& told) {
  require(submit(context.explaining(told), c, arguments, nullptr), "explaining");
  require(fetch(arguments), "fetching");
  if (std::string what = changed(arguments, Outcome::refused); !what.empty())
    finding("explaining: " + what);
}

}  // namespace

void fuzz_api(Input input) {
  Bytes bytes(input);
  if (bytes.one_in(16)) return bytes.one_in(2) ? fuzz_merge_backward(bytes) : fuzz_merge(bytes);
  const cli::Case c = decode_case(bytes);
  cli::Call call;
  require(call.make(c), "making the call");
  if (takes_poking(c) && bytes.one_in(4)) poke(bytes, call);
  Arguments arguments;
  require(lay(bytes, call, arguments), "laying out the call");
  require(prepare(arguments), "preparing the call");
  if (renew_forward(call)) require(prepare(arguments), "preparing the call");
  Context context = decode_context(bytes, c);
  std::string wrong = bytes.one_in(3) ? spoil(bytes, call, arguments) : "";
  if (!wrong.empty() && device == Device::cuda) {
    for (Argument& a : arguments.all) require(a.array.upload(), "uploading");
  }
  meaning([&] {
    return fmt::format("onepass verify {}\n{}{}", cli::to_string(c), to_string(arguments),
                       wrong.empty() ? "" : "  wrong: " + wrong + "\n");
  });
  Plan plan;
  if (!wrong.empty()) {
    const Status status = submit(context, c, arguments, &plan);
    if (status.ok()) finding("accepted, although " + wrong);
    if (status.message().empty()) finding("refused without a word");
    require(fetch(arguments), "fetching");
    if (std::string what = changed(arguments, Outcome::refused_spoilt); !what.empty())
      finding(what);
    return;
  }
  cli::Expectation expected = cli::expect(call);
  sum_shared(arguments.find("d_additive"), expected.gradients[cli::array::d_additive]);
  gpu::Buffer workspace;
  if (bytes.one_in(8)) {
    Explanation told;
    const Status known = submit(context, c, arguments, nullptr);
    if (known.ok()) {
      require(prepare(arguments), "preparing the call");
      explain(context, c, arguments, told);
      if (device == Device::cuda) {
        require(workspace.allocate(std::max<std::size_t>(told.plan.scratch_bytes, 16)),
                "a workspace");
        context = context.with_workspace(workspace.data(), told.plan.scratch_bytes);
      }
    }
  }
  const Status status = submit(context, c, arguments, &plan);
  if (Status fetched = fetch(arguments); !fetched.ok())
    finding("after the call: " + fetched.message());
  if (!status.ok()) {
    // A variant by name need not run everything, nor a GPU what its kernels are not made for.
    const bool named = !c.variant.empty() || device == Device::cuda;
    // Which launches there are depends on whether options are of a row's own, which lay() decides.
    const bool launch =
        c.variant.find(':') != std::string::npos && status.message().starts_with("variant: ");
    const bool may = (status.code() == Code::unsupported && named) || launch;
    if (!may) finding(fmt::format("refused: {}: {}", name(status.code()), status.message()));
    if (std::string what = changed(arguments, Outcome::refused); !what.empty()) finding(what);
    return;
  }
  if (std::string what = changed(arguments, Outcome::ran); !what.empty()) {
    finding(fmt::format("{} ({})", what, onepass::to_string(plan)));
  }
  settle(arguments);
  double worst = 0;
  if (std::string what = cli::wrong_answer(call, expected, worst); !what.empty()) {
    finding(fmt::format("{} ({})", what, onepass::to_string(plan)));
  }
}

}  // namespace onepass::fuzz
