// The subcommands. Each adds itself to the command line and returns one of the codes below.
#pragma once

#include "cli/commands/command_line.hpp"
#include "onepass/status.hpp"

namespace onepass::cli {

enum Exit : int {
  kDone = 0,
  kFailed = 1,  // a verification failed, or compare found something slower
  kUsage = 2,   // bad flags, arguments or input files
  kCannot = 3,  // this machine, build or file system could not do it
};

void add_list(CommandLine& line);
void add_verify(CommandLine& line);
void add_bench(CommandLine& line);
void add_compare(CommandLine& line);
void add_explain(CommandLine& line);
void add_tune(CommandLine& line);
void add_profile(CommandLine& line);
void add_softmax(CommandLine& line);  // softmax, log-softmax, logsumexp
void add_select(CommandLine& line);   // topk, sample

// Prints an error on stderr. Returns its exit code; kDone if there is none.
int report(const Status& status);

}  // namespace onepass::cli
