// The command line, declared by the subcommands. Only command_line.cpp includes the parser, CLI11,
// which costs a source file eight seconds.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/problem/options.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace onepass::cli {

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option& required();
  Option& positive();
  Option& non_negative();
  Option& within(double least, double most);
  Option& one_of(const std::vector<std::string>& words);
  Option& separated_by_commas();               // a,b as well as a b
  Option& group(const std::string& headline);  // in the help text; the empty one is hidden

 private:
  CLI::Option* option_;
};

class Command {
 public:
  Command(CLI::App* app, int* exit) : app_(app), exit_(exit) {}

  // T: std::string, int, std::int64_t, double, or a vector of strings or ints. `value` holds the
  // default, and has to outlive the parsing.
  template <typename T>
  Option option(const std::string& name, T& value, const std::string& what);
  Option flag(const std::string& name, bool& value, const std::string& what);
  // An option of the problem line: top_p is --top-p, where no other name is given. `c` holds the
  // default, and has to outlive the parsing.
  void problem_option(std::string_view key, Case& c, std::string name = {});
  void footer(const std::string& text);
  void run(std::function<int()> body);  // what to do once all is parsed; returns the exit code

 private:
  CLI::App* app_;
  int* exit_;
};

class CommandLine {
 public:
  CommandLine(const std::string& what, const std::string& version, const std::string& footer);
  ~CommandLine();
  Command command(const std::string& name, const std::string& what);
  int run(int argc, char** argv);  // the exit code, that of the subcommand or kUsage

 private:
  std::unique_ptr<CLI::App> app_;
  int exit_ = 0;
};

}  // namespace onepass::cli
