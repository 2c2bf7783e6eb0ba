// onepass topk | sample: what is chosen from the rows of the user's own arrays.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.hpp"
#include "cli/commands/file_call.hpp"
#include "cli/files/table.hpp"
#include "core/number.hpp"

namespace onepass::cli {
namespace {

// What both commands read, and how they answer: in files, or else as a table.
struct Flags : FileCall {
  bool json = false;

  double value(array::Id id, std::int64_t i) const {
    return read<double>(arrays[id].data.data(), arrays[id].dtype, i);
  }
  std::int64_t integer(array::Id id, std::int64_t i) const {
    return static_cast<std::int64_t>(value(id, i));
  }
};

Status read_rows(Flags& flags) {
  if (Status status = flags.read_x(); !status.ok()) return status;
  if (!flags.problem.shape.empty()) return {};
  return {Code::invalid_argument, fmt::format("{}: a scalar has no row", flags.paths[array::x])};
}

void print(const Flags& flags, const Table& table, const nlohmann::ordered_json& all) {
  fmt::print("{}{}", flags.json ? all.dump(2) : table.text(), flags.json ? "\n" : "");
}

Status run_topk(Flags& flags) {
  if (Status status = read_rows(flags); !status.ok()) return status;
  Case& c = flags.problem;
  if (c.k < 1 || c.k > c.cols()) {
    return {Code::invalid_argument,
            fmt::format("k: {} is not between 1 and the {} elements of a row", c.k, c.cols())};
  }
  c.out = c.in == DType::f64 ? DType::f64 : DType::f32;
  if (Status status = flags.run(); !status.ok()) return status;
  if (!flags.paths[array::y].empty() || !flags.paths[array::indices].empty()) return {};
  Table table({{"row", Align::right},
               {"place", Align::right},
               {"token", Align::right},
               {std::string(name(c.values)), Align::right}});
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (std::int64_t r = 0; r < c.rows(); ++r) {
    nlohmann::ordered_json tokens, weights;
    for (std::int64_t i = 0; i < c.k; ++i) {
      const double value = flags.value(array::y, r * c.k + i);
      const std::int64_t token = flags.integer(array::indices, r * c.k + i);
      table.add({fmt::format("{}", r), fmt::format("{}", i + 1), fmt::format("{}", token),
                 fmt::format("{:.6g}", value)});
      tokens.push_back(token);
      weights.push_back(value);
    }
    all.push_back({{"row", r}, {"tokens", tokens}, {"values", weights}});
  }
  print(flags, table, all);
  return {};
}

Status run_sample(Flags& flags) {
  if (Status status = read_rows(flags); !status.ok()) return status;
  if (Status status = flags.run(); !status.ok()) return status;
  if (!flags.paths[array::y].empty()) return {};
  Table table({{"row", Align::right}, {"token", Align::right}, {"logprob", Align::right}});
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (std::int64_t r = 0; r < flags.problem.rows(); ++r) {
    const bool valid = flags.integer(array::valid, r) != 0;
    const std::int64_t token = flags.integer(array::y, r);
    const double logprob = flags.value(array::logprob, r);
    table.add({fmt::format("{}", r), valid ? fmt::format("{}", token) : "none",
               fmt::format("{:.6g}", logprob)});
    all.push_back({{"row", r}, {"token", token}, {"logprob", logprob}, {"valid", valid}});
  }
  print(flags, table, all);
  return {};
}

std::shared_ptr<Flags> add_common(Command& command, const Case& usual) {
  const auto flags = std::make_shared<Flags>();
  flags->problem = usual;
  command.option("in", flags->paths[array::x], "the logits, [V] or [..., V]").required();
  for (const auto* key : {"scale", "temperature", "softcap", "index"}) {
    command.problem_option(key, flags->problem);
  }
  command.flag("--bf16", flags->bf16, "read u2 arrays as the bits of bf16");
  command.flag("--json", flags->json, "print JSON instead of a table");
  for (const auto* key : {"threads", "variant"}) command.problem_option(key, flags->problem);
  return flags;
}

}  // namespace

void add_select(CommandLine& line) {
  Command topk = line.command("topk", "find the largest elements of each row of an .npy array");
  topk.footer(
      "Without --to-values or --to-indices the answer is printed.\n"
      "Example: onepass topk logits.npy --k 50 --temperature 0.7 --to-indices tokens.npy");
  const auto top = add_common(topk, {.op = Op::topk, .k = 10});
  for (const auto* key : {"k", "values", "unsorted"}) topk.problem_option(key, top->problem);
  topk.option("--to-values", top->paths[array::y], "write the values to this file");
  topk.option("--to-indices", top->paths[array::indices], "write the indices to this file");
  topk.option("--lse", top->paths[array::lse], "also write the logsumexp of each row to this file");
  topk.run([top] { return report(run_topk(*top)); });

  Command drawn = line.command("sample", "draw a token from each row of an .npy array of logits");
  drawn.footer(
      "Without --to-tokens the tokens are printed.\n"
      "Example: onepass sample logits.npy --temperature 0.7 --top-k 50 --top-p 0.9 --seed 7");
  const auto draw = add_common(drawn, {.op = Op::sample, .seed = 0});
  for (const auto* key : {"top_k", "top_p", "min_p", "seed"}) {
    drawn.problem_option(key, draw->problem);
  }
  drawn.problem_option("draw", draw->problem, "--offset");
  drawn.option("--to-tokens", draw->paths[array::y], "write the tokens to this file");
  drawn.option("--logprob", draw->paths[array::logprob],
               "write the log-probabilities of the tokens to this file");
  drawn.run([draw] { return report(run_sample(*draw)); });
}

}  // namespace onepass::cli
