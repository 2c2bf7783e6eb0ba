// onepass list: everything that can run, and what stands in the way where it cannot.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/commands/commands.hpp"
#include "cli/files/table.hpp"
#include "cli/measure/peers.hpp"
#include "cli/problem/options.hpp"
#include "dispatch/machines.hpp"
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
  std::string_view where;  // of the op's variants: on a CPU, on a GPU, or beside it
  std::string obstacle;    // empty: it runs here
};

std::vector<Entry> entries() {
  std::vector<Entry> all;
  const Status no_gpu = gpu::available();
  for (const Op op : kAllOps) {
    for (const Variant& v : variants(op)) {
      const bool on_gpu = v.device == Device::cuda;
      all.push_back({op, v.name, v.role, v.needs, v.idea, on_gpu ? "on a GPU" : "on a CPU",
                     on_gpu ? no_gpu.message() : ""});
    }
    for (const Peer& p : peers()) {
      if (p.computes(op, Device::cpu) || p.computes(op, Device::cuda)) {
        all.push_back(
            {op, p.name, Role::peer, p.needs, p.idea, "measured beside it", p.obstacle()});
      }
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

constexpr std::size_t kWidth = 100;  // columns that a line takes at most

// Words in lines that are no wider than that, all but the first indented.
std::string wrapped(const std::string& text, std::size_t indent) {
  std::string all, line;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!line.empty() && display_width(line) + 1 + display_width(word) > kWidth) {
      all += line + "\n";
      line = std::string(indent, ' ') + word;
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
  }
  return all + line + "\n";
}

// A line for a variant; what of its idea does not fit is in the JSON.
std::string line_of(const Entry& e) {
  const std::string text = fmt::format("  {:<24} {:<6} {}", e.variant, name(e.role), e.idea);
  if (display_width(text) <= kWidth) return text;
  std::string_view kept = fit(text, kWidth - 2);
  kept = kept.substr(0, kept.find_last_of(' '));
  return std::string(kept) + " …";
}

// Variants of an op that run in one place, or cannot for one reason, below a headline that says so.
void print_groups(const std::vector<Entry>& all) {
  const Entry* before = nullptr;
  for (const Entry& e : all) {
    const bool same = before != nullptr && before->op == e.op && before->where == e.where &&
                      before->obstacle == e.obstacle;
    if (!same) {
      const std::string why = e.obstacle.empty() ? "" : ", but not here: " + e.obstacle;
      fmt::print("{}{}", before == nullptr ? "" : "\n",
                 wrapped(fmt::format("{} {}{}", name(e.op), e.where, why), 4));
    }
    fmt::print("{}\n", line_of(e));
    before = &e;
  }
}

void print_machine() {
  const Machine machine = this_host();
  fmt::print("\n{}",
             wrapped(fmt::format("This machine: {} threads, instruction sets {}; L2 {} KiB, "
                                 "L3 {} KiB.",
                                 machine.threads, fmt::join(runnable_isas(), ", "),
                                 machine.l2 >> 10, machine.l3 >> 10),
                     4));
  if (Machine gpu{}; this_gpu(gpu).ok()) {
    fmt::print("Its GPU: {}, {}, {} SMs, L2 {} MiB, {} KiB of shared memory per block.\n", gpu.name,
               gpu.isa, gpu.gpu.processors, gpu.l2 >> 20, gpu.gpu.block_shared >> 10);
  }
}

// What a problem line may say beside its op, shape and dtypes.
void print_options(bool as_json) {
  constexpr std::size_t wide = 24;
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const OptionRow& option : options()) {
    std::string value = option.is_flag ? "" : option.form();
    if (option.per_row != nullptr) value += "|row";
    all.push_back({{"option", option.key}, {"value", value}, {"help", option.help}});
    if (as_json) continue;
    const std::string word = fmt::format("{}{}{}", option.key, option.is_flag ? "" : "=", value);
    const bool fits = word.size() <= wide;  // else the help stands in a line of its own
    if (!fits) fmt::print("{}\n", word);
    fmt::print("{:<{}}  {}\n", fits ? word : "", wide, option.help);
  }
  if (as_json) fmt::print("{}\n", all.dump(2));
}

struct Flags {
  std::string op, role;
  bool options = false, json = false;
};

int list(const Flags& flags) {
  if (flags.options) {
    print_options(flags.json);
    return kDone;
  }
  std::vector<Entry> all = entries();
  if (!flags.op.empty()) {
    Op op{};
    if (Status status = parse_op(flags.op, op); !status.ok()) return report(status);
    std::erase_if(all, [op](const Entry& e) { return e.op != op; });
  }
  if (!flags.role.empty()) {
    std::erase_if(all, [&](const Entry& e) { return name(e.role) != flags.role; });
  }
  if (flags.json) {
    fmt::print("{}\n", as_json(all));
    return kDone;
  }
  print_groups(all);
  print_machine();
  return kDone;
}

}  // namespace

void add_list(CommandLine& line) {
  Command command = line.command("list", "list every op and variant, and whether it runs here");
  command.footer("Example: onepass list --op attention --role ship");
  const auto flags = std::make_shared<Flags>();
  command.option("--op", flags->op, "list only the variants of this op");
  command
      .option("--role", flags->role,
              "list only this role: teach (to be read), ship (may be chosen) or peer")
      .one_of({"teach", "ship", "peer"});
  command.flag("--options", flags->options, "list the options of a problem line instead");
  command.flag("--json", flags->json, "print JSON instead of text");
  command.run([flags] { return list(*flags); });
}

int report(const Status& status) {
  if (status.ok()) return kDone;
  fmt::print(stderr, "onepass: {}\n", status.message());
  return status.code() == Code::invalid_argument ? kUsage : kCannot;
}

}  // namespace onepass::cli
