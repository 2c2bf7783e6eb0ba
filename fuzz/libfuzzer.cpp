// The targets for clang's libFuzzer: ONEPASS_FUZZ_TARGET in the environment says which.
#include <cstdio>
#include <cstdlib>

#include "fuzz/target.hpp"

namespace {
const onepass::fuzz::Target* chosen = nullptr;
}

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* name = std::getenv("ONEPASS_FUZZ_TARGET");
  chosen = onepass::fuzz::find_target(name == nullptr ? "" : name);
  if (chosen != nullptr) return 0;
  std::fprintf(stderr, "ONEPASS_FUZZ_TARGET is '%s', not one of:", name == nullptr ? "" : name);
  for (const auto& target : onepass::fuzz::targets())
    std::fprintf(stderr, " %s", target.name.data());
  std::fprintf(stderr, "\n");
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  chosen->run({data, size});
  onepass::fuzz::meaning({});
  return 0;
}
