#include "cli/commands/file_call.hpp"

#include "cli/ops/driver.hpp"

namespace onepass::cli {

Status FileCall::read_x() {
  Array& x = arrays[array::x];
  if (Status status = read_npy(paths[array::x], bf16, x); !status.ok()) return status;
  problem.shape = x.shape;
  problem.in = problem.out = x.dtype;
  return {};
}

Status FileCall::run() {
  problem.additive = !paths[array::additive].empty();
  problem.lse = !paths[array::lse].empty();
  const Driver& driver = driver_of(problem.op);
  const std::vector<ArraySpec> specs = driver.arrays(problem);
  Tensors tensors;
  for (const ArraySpec& spec : specs) {
    Array& array = arrays[spec.id];
    Status status;
    if (spec.access == Access::output) {
      status = Array::make(spec.dtype, spec.shape, array);
    } else if (paths[spec.id].empty()) {
      continue;  // an option has one value for all rows
    } else if (spec.id != array::x) {
      status = read_npy(paths[spec.id], bf16, array);
    }
    if (!status.ok()) return status;
    tensors[spec.id] = array.view();
  }
  const Context context = Context::cpu(problem.threads);
  Status status = driver.run(context, problem, tensors, problem.variant, nullptr);
  for (auto at = specs.rbegin(); at != specs.rend(); ++at) {
    const ArraySpec& spec = *at;
    const std::string& path = paths[spec.id];
    if (!status.ok()) return status;
    if (spec.access != Access::output || path.empty()) continue;
    status = write_npy(path, spec.dtype, spec.shape, arrays[spec.id].bytes());
  }
  return status;
}

}  // namespace onepass::cli
