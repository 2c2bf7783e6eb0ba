// The subcommands. Each adds itself to the program and sets `exit` to one of the codes below.
#pragma once

#include <CLI/CLI.hpp>

#include "onepass/status.hpp"

namespace onepass::cli {

enum Exit : int {
  kDone = 0,
  kFailed = 1,  // a verification failed, or compare found something slower
  kUsage = 2,   // bad flags, arguments or input files
  kCannot = 3,  // this machine, build or file system could not do it
};

void add_list(CLI::App& app, int& exit);
void add_verify(CLI::App& app, int& exit);
void add_bench(CLI::App& app, int& exit);
void add_compare(CLI::App& app, int& exit);
void add_explain(CLI::App& app, int& exit);
void add_tune(CLI::App& app, int& exit);
void add_profile(CLI::App& app, int& exit);
void add_apply(CLI::App& app, int& exit);   // softmax, log-softmax, logsumexp
void add_choose(CLI::App& app, int& exit);  // topk, sample

// Prints an error on stderr and gives its exit code.
int report(const Status& status);

}  // namespace onepass::cli
