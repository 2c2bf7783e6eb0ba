// onepass list: everything that can run, and what stands in the way where it cannot.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "dispatch/machines.hpp"
#include "cli/commands.hpp"
#include "cli/peers.hpp"
#include "cli/table.hpp"
#include "dispatch/variant.hpp"
#include "runtime/gpu.hpp"
#include "runtime/host.hpp"

namespace onepass::cli {
namespace {

struct Entry {
  Op op;
  std::string_view variant;
  Role role;
  std::string_view needs, idea;
  std::string obstacle;  // empty: it runs here
};

std::vector<Entry> entries() {
  std::vector<Entry> all;
  const Status no_gpu = gpu::available();
  for (const Op op : kAllOps) {
    for (const Variant& v : variants(op)) {
      const std::string obstacle = v.device == Device::cuda ? no_gpu.message() : "";
      all.push_back({op, v.name, v.role, v.needs, v.idea, obstacle});
    }
    for (const Peer& p : peers()) {
      if (p.computes(op, Device::cpu) || p.computes(op, Device::cuda))
        all.push_back({op, p.name, Role::peer, p.needs, p.idea, p.obstacle()});
    }
  }
  return all;
}

std::string as_json(const std::vector<Entry>& all) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Entry& e : all) {
    rows.push_back({{"op", name(e.op)},
                    {"variant", e.variant},
                    {"role", name(e.role)},
                    {"needs", e.needs},
                    {"runs_here", e.obstacle.empty()},
                    {"why_not", e.obstacle},
                    {"idea", e.idea}});
  }
  return rows.dump(2);
}

}  // namespace

void add_list(CommandLine& line) {
  Command command = line.command("list", "every op and variant, and whether it runs here");
  command.footer("Example: onepass list --json");
  const auto json = std::make_shared<bool>(false);
  command.flag("--json", *json, "print JSON instead of a table");
  command.run([json] {
    const std::vector<Entry> all = entries();
    if (*json) {
      fmt::print("{}\n", as_json(all));
      return kDone;
    }
    Table table({{"op"}, {"variant"}, {"role"}, {"runs here"}, {"needs"}, {"idea"}});
    for (const Entry& e : all) {
      table.add({std::string(name(e.op)), std::string(e.variant), std::string(name(e.role)),
                 e.obstacle.empty() ? "yes" : "no: " + e.obstacle, std::string(e.needs),
                 std::string(e.idea)});
    }
    const Machine machine = this_host();
    fmt::print("{}\nThis machine: {} threads, instruction sets {}; L2 {} KiB, L3 {} KiB.\n",
               table.text(), machine.threads, fmt::join(runnable_isas(), ", "), machine.l2 >> 10,
               machine.l3 >> 10);
    if (Machine gpu{}; this_gpu(gpu).ok()) {
      fmt::print("Its GPU: {}, {}, {} SMs, L2 {} MiB, {} KiB of shared memory a block.\n", gpu.name,
                 gpu.isa, gpu.gpu.processors, gpu.l2 >> 20, gpu.gpu.block_shared >> 10);
    }
    return kDone;
  });
}

int report(const Status& status) {
  if (status.ok()) return kDone;
  fmt::print(stderr, "onepass: {}\n", status.message());
  return status.code() == Code::invalid_argument ? kUsage : kCannot;
}

}  // namespace onepass::cli
