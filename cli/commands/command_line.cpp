#include "cli/commands/command_line.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <type_traits>

#include "cli/commands/commands.hpp"
#include "core/nearest.hpp"

namespace onepass::cli {

Option& Option::required() {
  option_->required();
  return *this;
}
namespace {

// As a check of the parser's: what is wrong with a text, or nothing.
template <class Accept>
auto number_that(Accept accept, const std::string& words) {
  return [=](const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const bool whole = end != text.c_str() && *end == 0;
    return whole && accept(value) ? std::string() : fmt::format("{} is not {}", text, words);
  };
}

}  // namespace

Option& Option::positive() {
  option_->check(number_that([](double v) { return v > 0; }, "a positive number"));
  return *this;
}
Option& Option::non_negative() {
  option_->check(number_that([](double v) { return v >= 0; }, "0 or a positive number"));
  return *this;
}
Option& Option::within(double least, double most) {
  option_->check(number_that([=](double v) { return v >= least && v <= most; },
                             fmt::format("between {} and {}", least, most)));
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

namespace {

// The parser itself takes what is beyond 64 bits for the last number that fits, and
// 1e999 for infinity.
template <typename T>
std::string fits(const std::string& text) {
  errno = 0;
  if constexpr (std::is_integral_v<T>) {
    (void)std::strtoll(text.c_str(), nullptr, 0);
    return errno == ERANGE ? fmt::format("{} does not fit into 64 bits", text) : "";
  } else {
    const double value = std::strtod(text.c_str(), nullptr);
    return errno == ERANGE && std::isinf(value) ? fmt::format("{} does not fit a double", text)
                                                : "";
  }
}

}  // namespace

template <typename T>
Option Command::option(const std::string& name, T& value, const std::string& what) {
  CLI::Option* option = app_->add_option(name, value, what);
  if constexpr (std::is_arithmetic_v<T>) option->check(fits<T>);
  return Option(option);
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
void Command::problem_option(std::string_view key, Case& c, std::string name) {
  const OptionRow& row = *find_option(key);
  if (name.empty()) {
    name = fmt::format("--{}", key);
    std::ranges::replace(name, '_', '-');
  }
  const std::string help(row.help);
  if (row.is_flag) {
    app_->add_flag_callback(
        name, [&row, &c] { row.read({}, c); }, help);
    return;
  }
  const auto read = [&row, &c, name](const std::string& text) {
    if (row.read(text, c)) return;
    throw CLI::ValidationError(name, fmt::format("expected {}, got '{}'", row.form(), text));
  };
  app_->add_option_function<std::string>(name, read, help)->type_name(row.form());
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
  } catch (const CLI::RequiredError& error) {
    const std::vector<std::string> words = app_->remaining();
    if (words.empty() || !app_->get_subcommands().empty()) return tell(*app_, error);
    std::vector<std::string> known;
    for (const CLI::App* command : app_->get_subcommands({})) known.push_back(command->get_name());
    fmt::print(stderr, "onepass: there is no {} '{}'{}; the subcommands are {}\n",
               words[0].starts_with('-') ? "option" : "subcommand", words[0],
               did_you_mean(words[0], known), fmt::join(known, ", "));
    return kUsage;
  } catch (const CLI::ExtrasError& error) {
    const CLI::App& command = *app_->get_subcommands().front();
    std::vector<std::string> known;
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
    for (const std::string& word : app_->remaining(true)) {
      if (!word.starts_with("--")) continue;
      fmt::print(stderr, "onepass: {} has no option {}{}; `onepass {} --help` lists them\n",
                 command.get_name(), word, did_you_mean(word, known), command.get_name());
      return kUsage;
    }
    return tell(*app_, error);
  } catch (const CLI::ParseError& error) {
    return tell(*app_, error);
  }
  return exit_;
}

}  // namespace onepass::cli
