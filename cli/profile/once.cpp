#include "cli/profile/once.hpp"
#include "dispatch/machines.hpp"

#include <fmt/format.h>

#include "cli/gpu/apparatus.hpp"
#include "cli/measure/measure.hpp"
#include "cli/measure/peers.hpp"
#include "cli/ops/call.hpp"
#include "dispatch/choose.hpp"
#include "dispatch/variant.hpp"

namespace onepass::cli {
namespace {

Status runnable(const Case& c, Call& call, const std::string& variant,
                std::function<Status()>& run) {
  if (const Peer* peer = find_peer(variant)) {
    if (!peer->computes(c.op, Device::cuda)) {
      return {Code::unsupported,
              fmt::format("{}: does not compute {} on a GPU", variant, name(c.op))};
    }
    std::function<void()> prepared;
    if (Status status = peer->prepare(call, 0, prepared); !status.ok()) return status;
    run = [prepared] {
      prepared();
      return Status{};
    };
    return {};
  }
  run = [&call, variant] { return call.run(Context::cuda(), variant); };
  return {};
}

}  // namespace

Status run_profiled(const Case& c, const std::string& variant) {
  Case on_gpu = c;
  on_gpu.device = Device::cuda;
  Call call;
  std::function<Status()> run;
  if (Status status = call.make(on_gpu); !status.ok()) return status;
  if (Status status = runnable(on_gpu, call, variant, run); !status.ok()) return status;
  if (Status status = run(); !status.ok()) return status;  // loads the kernel
  if (Status status = gpu::synchronize(); !status.ok()) return status;
  gpu::profiler_start();
  const Status ran = run();
  const Status done = gpu::synchronize();
  gpu::profiler_stop();
  return ran.ok() ? done : ran;
}

Status variants_to_profile(const Case& c, const std::string& selection,
                           std::vector<std::string>& names) {
  names.clear();
  Machine machine{};
  if (Status status = this_gpu(machine); !status.ok()) return status;
  Problem problem;
  if (Status status = describe(c, problem); !status.ok()) return status;
  if (selection == "all") {
    for (const Variant& v : variants(c.op)) {
      if (v.refuses(problem, machine).empty()) names.emplace_back(v.name);
    }
    for (const Peer& p : peers()) {
      if (p.name != "copy" && p.computes(c.op, Device::cuda) && p.obstacle().empty()) {
        names.emplace_back(p.name);
      }
    }
    return {};
  }
  for (const std::string& name : split_names(selection)) {
    Decision decision;
    if (find_peer(name) == nullptr) {
      if (Status status = plan_variant(name, problem, machine, decision); !status.ok())
        return status;
    }
    names.push_back(name);
  }
  return {};
}

Environment gpu_environment() {
  Environment environment = detect_environment("", 0);
  Machine machine{};
  if (!this_gpu(machine).ok()) return environment;
  environment.device = machine.name;
  environment.sm = machine.gpu.sm;
  environment.driver = gpu::versions().driver;
  environment.cuda = gpu::versions().cuda;
  return environment;
}

}  // namespace onepass::cli
