// onepass explain: what the dispatcher would do, and why. Needs no device.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.hpp"
#include "cli/ops/call.hpp"
#include "cli/problem/case.hpp"
#include "dispatch/choose.hpp"
#include "dispatch/machines.hpp"
#include "dispatch/variant.hpp"
#include "onepass/context.hpp"
#include "runtime/gpu.hpp"
#include "runtime/host.hpp"

namespace onepass::cli {
namespace {

Status machine_named(const std::string& wanted, Device device, int threads, Machine& machine) {
  if (wanted == "host") {
    if (device == Device::cuda) return this_gpu(machine);
    machine = this_host(threads);
    return {};
  }
  const Machine* known = find_machine(wanted);
  if (known == nullptr) {
    std::vector<std::string_view> names = {"host"};
    for (const Machine& m : known_machines()) names.push_back(m.name);
    for (const Machine& m : known_gpus()) names.push_back(m.name);
    return {Code::invalid_argument, fmt::format("machine: '{}' is not in the tuning tables: {}",
                                                wanted, fmt::join(names, ", "))};
  }
  machine = *known;
  if (threads > 0) machine.threads = threads;
  return {};
}

struct Flags {
  std::vector<std::string> words;
  std::string machine = "host";
  bool json = false;
};

Status explain(const Flags& flags) {
  Case c;
  if (Status status = parse_case(fmt::format("{}", fmt::join(flags.words, " ")), c); !status.ok()) {
    return status;
  }
  Machine machine{};
  if (Status status = machine_named(flags.machine, c.device, c.threads, machine); !status.ok())
    return status;
  if (flags.machine == "host" && machine.device() == Device::cuda) {
    if (Status status = tuning_status(); !status.ok()) {
      fmt::print(stderr, "onepass: {} (ignored)\n", status.message());
    }
  }
  Case there = c;
  there.device = machine.device();
  Problem problem;
  if (Status status = describe(there, problem); !status.ok()) return status;
  Reasons reasons;
  Decision decision;
  if (c.variant.empty()) {
    decision = choose(problem, machine, &reasons);
    if (!decision) {
      return {Code::unsupported, fmt::format("machine: {}: {}", machine.name, reasons.back())};
    }
  } else if (Status status = plan_variant(c.variant, problem, machine, decision, &reasons);
             !status.ok()) {
    return status;
  }
  const double least = least_bytes(problem);
  const double planned = planned_bytes(problem, decision, machine);
  const std::string plan = to_string(decision.plan());
  if (flags.json) {
    const nlohmann::ordered_json out = {{"problem", to_string(c)}, {"machine", machine.name},
                                        {"isa", machine.isa},      {"plan", plan},
                                        {"reasons", reasons},      {"least_bytes", least},
                                        {"planned_bytes", planned}};
    fmt::print("{}\n", out.dump(2));
    return {};
  }
  fmt::print("problem  {}\n", to_string(c));
  if (machine.device() == Device::cuda) {
    fmt::print("machine  {}: {}, {} SMs, L2 {} MiB, {} KiB of shared memory per block\n",
               machine.name, machine.isa, machine.gpu.processors, machine.l2 >> 20,
               machine.gpu.block_shared >> 10);
  } else {
    fmt::print("machine  {}: {}, {} threads, L1 {} KiB, L2 {} KiB, L3 {} KiB\n", machine.name,
               machine.isa, machine.threads, machine.l1 >> 10, machine.l2 >> 10, machine.l3 >> 10);
  }
  fmt::print("plan     {}\n", plan);
  fmt::print("idea     {}\n", decision.runs->idea);
  for (const std::string& reason : reasons) fmt::print("  because  {}\n", reason);
  fmt::print("bytes    {:.0f} moved, {:.0f} at least: {:.2f}x\n", planned, least,
             least > 0 ? planned / least : 1);
  return {};
}

}  // namespace

void add_explain(CommandLine& line) {
  Command command = line.command(
      "explain", "show the plan for a problem, the reason for each decision, and the bytes moved");
  command.footer(
      "Examples: onepass explain softmax 1x50257 f32\n"
      "          onepass explain cross_entropy 8192x128256 bf16 --machine sapphire-rapids-16");
  const auto flags = std::make_shared<Flags>();
  command.option("problem", flags->words, "OP SHAPE [DTYPE[:OUT]] [OPTION ...]; see list --options")
      .required();
  command.option("--machine", flags->machine,
                 "plan for a machine of the tuning tables; this one (host) if left out");
  command.flag("--json", flags->json, "print JSON instead of text");
  command.run([flags] { return report(explain(*flags)); });
}

}  // namespace onepass::cli
