// onepass: verify, measure and explain softmax kernels, or run them on your own arrays.

#include <fmt/format.h>

#include <csignal>
#include <exception>

#include "cli/commands.hpp"
#include "onepass_build.hpp"

int main(int argc, char** argv) {
  using namespace onepass::cli;
  std::signal(SIGXFSZ, SIG_IGN);  // past a file-size limit, a write fails and says so
  try {
    CommandLine line(
        "onepass: softmax and what is built on it, each input byte read from memory once.",
        fmt::format("onepass {} ({}, {})", onepass::build::kVersion, onepass::build::kCommit,
                    onepass::build::kCompiler),
        "Exit codes: 0 done; 1 a verification failed, or compare found something slower;\n"
        "            2 bad flags, arguments or input; 3 this machine, build or file system could\n"
        "            not do it.\n"
        "'onepass SUBCOMMAND --help' shows an example of each.");
    add_list(line);
    add_verify(line);
    add_bench(line);
    add_compare(line);
    add_explain(line);
    add_tune(line);
    add_profile(line);
    add_apply(line);
    add_choose(line);
    return line.run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "onepass: {}\n", error.what());
    return kCannot;
  }
}
