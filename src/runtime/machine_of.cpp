#include "runtime/machine_of.hpp"

#include <string>

#include "runtime/gpu.hpp"
#include "runtime/host.hpp"

namespace onepass {

Status machine_of(const Context& context, Machine& machine) {
  if (context.device() == Device::cuda) return gpu::machine(machine);
  if (context.threads() < 0) {
    return {Code::invalid_argument,
            "context: threads " + std::to_string(context.threads()) + " is negative"};
  }
  machine = host(context.threads());
  return {};
}

}  // namespace onepass
