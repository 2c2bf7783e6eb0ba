// onepass softmax | log-softmax | logsumexp: the ops on the user's own arrays.

#include <fmt/format.h>

#include <array>
#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/files/npy.hpp"
#include "cli/ops/driver.hpp"
#include "cli/problem/case.hpp"

namespace onepass::cli {
namespace {

struct Flags {
  std::string in, out, lse, mask, dtype;
  bool bf16 = false;
  Case options;
};

Status apply(const Flags& flags) {
  Array x;
  if (Status status = read_npy(flags.in, flags.bf16, x); !status.ok()) return status;
  const Case& c = flags.options;
  DType dtype = x.dtype;
  if (!flags.dtype.empty()) {
    if (Status status = parse_dtype(flags.dtype, dtype); !status.ok()) return status;
  }
  const auto rank = static_cast<int>(x.shape.size());
  std::vector<std::int64_t> row_shape = x.shape;
  const int axis = c.axis < 0 ? c.axis + rank : c.axis;
  if (axis >= 0 && axis < rank) row_shape.erase(row_shape.begin() + axis);

  Tensors tensors;
  tensors[array::x] = x.view();
  Array mask;
  if (!flags.mask.empty()) {
    if (Status status = read_npy(flags.mask, flags.bf16, mask); !status.ok()) return status;
    tensors[array::additive] = mask.view();
  }
  Array lse;
  const DType wide = x.dtype == DType::f64 ? DType::f64 : DType::f32;
  if (!flags.lse.empty()) {
    if (Status status = Array::make(wide, row_shape, lse); !status.ok()) return status;
    tensors[array::lse] = lse.view();
  }
  Array y;
  const std::vector<std::int64_t>& out_shape = c.op == Op::logsumexp ? row_shape : x.shape;
  if (Status status = Array::make(dtype, out_shape, y); !status.ok()) return status;
  tensors[array::y] = y.view();

  const Status status =
      driver_of(c.op).run(Context::cpu(c.threads), c, tensors, c.variant, nullptr);
  if (!status.ok()) return status;
  if (!flags.lse.empty()) {
    if (Status wrote = write_npy(flags.lse, wide, row_shape, lse.bytes()); !wrote.ok())
      return wrote;
  }
  return write_npy(flags.out, dtype, out_shape, y.bytes());
}

void add_one(CommandLine& line, Op op, const std::string& command_name, const std::string& what) {
  Command command = line.command(command_name, what);
  command.footer(fmt::format(
      "Arrays are .npy (v1, v2), C order, f2, f4 or f8; bf16 travels as u2 with --bf16.\n"
      "Example: onepass {} logits.npy out.npy --axis -1 --temperature 0.7",
      command_name));
  const auto flags = std::make_shared<Flags>();
  Case& options = flags->options;
  options.op = op;
  command.option("in", flags->in, "the input array").required();
  command.option("out", flags->out, "where the result goes").required();
  command.option("--axis", options.axis, "the axis, −1 is the last");
  command.option("--scale", options.scale, "multiplies x, before the softcap");
  command.option("--temperature", options.temperature, "divides, after the softcap");
  command.option("--softcap", options.softcap, "cap·tanh(v/cap); 0: none");
  command.option("--mask", flags->mask, "an .npy of values to add, broadcast to x");
  command.flag("--causal", options.causal, "hide keys past each query's own");
  command.option("--dtype", flags->dtype, "of the output: f32, f16, bf16, f64; x's if left out");
  if (op != Op::logsumexp) {
    command.option("--lse", flags->lse, "also write the logsumexp of each row there");
  }
  command.flag("--bf16", flags->bf16, "u2 arrays hold bf16 bits");
  command.option("--threads", options.threads, "0: all").non_negative();
  command.option("--variant", options.variant, "force one; see onepass list");
  command.run([flags] { return report(apply(*flags)); });
}

}  // namespace

void add_softmax(CommandLine& line) {
  add_one(line, Op::softmax, "softmax", "softmax of an .npy array");
  add_one(line, Op::log_softmax, "log-softmax", "log-softmax of an .npy array");
  add_one(line, Op::logsumexp, "logsumexp", "logsumexp of an .npy array");
}

}  // namespace onepass::cli
