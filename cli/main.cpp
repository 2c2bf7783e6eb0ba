// onepass: verify, measure and explain softmax kernels, or run them on your own arrays.

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <system_error>

#include "cli/commands/commands.hpp"
#include "cli/files/files.hpp"
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
    add_softmax(line);
    add_select(line);
    const int exit = line.run(argc, argv);
    const onepass::Status told = flush_output();
    return told.ok() ? exit : report(told);
  } catch (const std::system_error& error) {
    if (std::ferror(stdout) != 0) return report(output_error(error.code().value()));
    fmt::print(stderr, "onepass: {}\n", error.what());
    return kCannot;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "onepass: there is not enough memory\n");
    return kCannot;
  } catch (const std::exception& error) {
    fmt::print(stderr, "onepass: {}\n", error.what());
    return kCannot;
  }
}
