// onepass softmax | log-softmax | logsumexp: the ops on the user's own arrays.

#include <fmt/format.h>

#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/commands/file_call.hpp"

namespace onepass::cli {
namespace {

struct Flags : FileCall {
  std::string dtype;
};

Status apply(Flags& flags) {
  if (Status status = flags.read_x(); !status.ok()) return status;
  if (!flags.dtype.empty()) {
    if (Status status = parse_dtype(flags.dtype, flags.problem.out); !status.ok()) return status;
  }
  return flags.run();
}

void add_one(CommandLine& line, Op op, const std::string& command_name, const std::string& what) {
  Command command = line.command(command_name, what);
  command.footer(fmt::format(
      "Arrays are .npy (v1, v2), C order, f2, f4 or f8; bf16 travels as u2 with --bf16.\n"
      "Example: onepass {} logits.npy out.npy --axis -1 --temperature 0.7",
      command_name));
  const auto flags = std::make_shared<Flags>();
  Case& problem = flags->problem;
  problem.op = op;
  command.option("in", flags->paths[array::x], "the input array").required();
  command.option("out", flags->paths[array::y], "where the result goes").required();
  for (const auto* key : {"axis", "scale", "temperature", "softcap"}) {
    command.problem_option(key, problem);
  }
  command.option("--mask", flags->paths[array::additive],
                 "add the values of this .npy, broadcast to x");
  command.problem_option("causal", problem);
  command.option("--dtype", flags->dtype,
                 "write the output in f32, f16, bf16 or f64; x's if left out");
  if (op != Op::logsumexp) {
    command.option("--lse", flags->paths[array::lse],
                   "also write the logsumexp of each row to this file");
  }
  command.flag("--bf16", flags->bf16, "read u2 arrays as the bits of bf16");
  for (const auto* key : {"threads", "variant"}) command.problem_option(key, problem);
  command.run([flags] { return report(apply(*flags)); });
}

}  // namespace

void add_softmax(CommandLine& line) {
  add_one(line, Op::softmax, "softmax", "write the softmax of an .npy array");
  add_one(line, Op::log_softmax, "log-softmax", "write the log-softmax of an .npy array");
  add_one(line, Op::logsumexp, "logsumexp", "write the logsumexp of an .npy array");
}

}  // namespace onepass::cli
