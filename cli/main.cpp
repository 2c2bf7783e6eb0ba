// onepass: verify, measure and explain softmax kernels, or run them on your own arrays.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <exception>

#include "cli/commands.hpp"
#include "onepass_build.hpp"

int main(int argc, char** argv) {
  using namespace onepass::cli;
  CLI::App app{"onepass: softmax and what is built on it, each input byte read from memory once."};
  app.set_version_flag("--version",
                       fmt::format("onepass {} ({}, {})", onepass::build::kVersion,
                                   onepass::build::kCommit, onepass::build::kCompiler));
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done; 1 a verification failed, or compare found something slower;\n"
      "            2 bad flags, arguments or input; 3 this machine, build or file system could\n"
      "            not do it.\n"
      "'onepass SUBCOMMAND --help' shows an example of each.");
  std::signal(SIGXFSZ, SIG_IGN);  // past a file-size limit, a write fails and says so
  int exit = kDone;
  try {
    add_list(app, exit);
    add_verify(app, exit);
    add_bench(app, exit);
    add_compare(app, exit);
    add_explain(app, exit);
    add_tune(app, exit);
    add_profile(app, exit);
    add_apply(app, exit);
    add_choose(app, exit);
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "onepass: {}\n", error.what());
    return kCannot;
  }
  return exit;
}
