#include "cli/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <sstream>

#include "cli/commands.hpp"

namespace onepass::cli {

Option& Option::required() {
  option_->required();
  return *this;
}
Option& Option::positive() {
  option_->check(CLI::PositiveNumber);
  return *this;
}
Option& Option::non_negative() {
  option_->check(CLI::NonNegativeNumber);
  return *this;
}
Option& Option::within(double least, double most) {
  option_->check(CLI::Range(least, most));
  return *this;
}
Option& Option::one_of(const std::vector<std::string>& words) {
  option_->check(CLI::IsMember(words));
  return *this;
}
Option& Option::separated_by_commas() {
  option_->delimiter(',');
  return *this;
}
Option& Option::group(const std::string& headline) {
  option_->group(headline);
  return *this;
}

template <typename T>
Option Command::option(const std::string& name, T& value, const std::string& what) {
  return Option(app_->add_option(name, value, what));
}
template Option Command::option(const std::string&, std::string&, const std::string&);
template Option Command::option(const std::string&, int&, const std::string&);
template Option Command::option(const std::string&, std::int64_t&, const std::string&);
template Option Command::option(const std::string&, double&, const std::string&);
template Option Command::option(const std::string&, std::vector<std::string>&, const std::string&);
template Option Command::option(const std::string&, std::vector<int>&, const std::string&);

Option Command::flag(const std::string& name, bool& value, const std::string& what) {
  return Option(app_->add_flag(name, value, what));
}
void Command::footer(const std::string& text) { app_->footer(text); }
void Command::run(std::function<int()> body) {
  app_->callback([body = std::move(body), exit = exit_] { *exit = body(); });
}

namespace {

// Help, the version, or what is wrong. Not by std::cout, which forgets why it could not write.
int tell(const CLI::App& app, const CLI::ParseError& error) {
  std::ostringstream out, err;
  const int exit = app.exit(error, out, err);
  fmt::print("{}", out.str());
  fmt::print(stderr, "{}", err.str());
  return exit == 0 ? kDone : kUsage;
}

}  // namespace

CommandLine::CommandLine(const std::string& what, const std::string& version,
                         const std::string& footer)
    : app_(std::make_unique<CLI::App>(what)) {
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
  app_->footer(footer);
}
CommandLine::~CommandLine() = default;

Command CommandLine::command(const std::string& name, const std::string& what) {
  return {app_->add_subcommand(name, what), &exit_};
}

int CommandLine::run(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return tell(*app_, error);
  }
  return exit_;
}

}  // namespace onepass::cli
