// Fuzzing without libFuzzer, with any compiler and on a GPU; and what is to be done with a finding.
//
//     onepass_fuzz run [--target api] [--calls N] [--seconds S] [--seed S] [--device cuda]
//     [--findings DIR] onepass_fuzz reproduce [--device cuda] TARGET FILE…
//     onepass_fuzz seeds TARGET DIR
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "cli/files/files.hpp"
#include "cli/problem/sanitizers.hpp"
#include "fuzz/mutate.hpp"
#include "fuzz/target.hpp"
#include "runtime/gpu.hpp"

#ifdef ONEPASS_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif

namespace onepass::fuzz {
namespace {

constexpr int kUsage = 2;
constexpr unsigned kSlowest = 120;  // seconds of an input; more is a hang

// The input that runs, for whoever ends the program.
struct Running {
  std::string target, input, folder;
} running;

void keep_input() {
  if (running.folder.empty()) return;
  const std::string path = fmt::format("{}/{}-{}", running.folder, running.target, ::getpid());
  (void)cli::write_file_atomically(path, running.input);
  fmt::print(stderr, "The input is in {}\nonepass_fuzz reproduce{} {} {}\n", path,
             device == Device::cuda ? " --device cuda" : "", running.target, path);
  std::fflush(stderr);
}

void ended(int signal) {
  fmt::print(stderr, "{}: ended by signal {}\n", running.target, signal);
  if (signal == SIGALRM) fmt::print(stderr, "{}", meaning());  // no finding has said it
  keep_input();
  std::_Exit(1);
}

void watch() {
#ifdef ONEPASS_ADDRESS_SANITIZER
  __sanitizer_set_death_callback(keep_input);
#else
  std::signal(SIGSEGV, ended);
  std::signal(SIGBUS, ended);
#endif
  std::signal(SIGABRT, ended);
  std::signal(SIGFPE, ended);
  std::signal(SIGILL, ended);
  std::signal(SIGALRM, ended);
}

void run_one(const Target& target, std::string input) {
  running.target = target.name;
  running.input = std::move(input);
  ::alarm(kSlowest);
  target.run({reinterpret_cast<const std::uint8_t*>(running.input.data()), running.input.size()});
  ::alarm(0);
  meaning({});
}

// Inputs of the tree, a line of hexadecimal digits each.
std::vector<std::string> corpus(std::string_view target) {
  std::vector<std::string> inputs;
  std::string text;
  const std::string path = fmt::format("{}/fuzz/corpus/{}.txt", ONEPASS_SOURCE_DIR, target);
  if (!cli::read_file(path, text).ok()) return inputs;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string input;
    for (std::size_t i = begin; i + 1 < end && text[begin] != '#'; i += 2) {
      int byte = 0;
      std::from_chars(text.data() + i, text.data() + i + 2, byte, 16);
      input += static_cast<char>(byte);
    }
    if (!input.empty()) inputs.push_back(input);
    begin = end + 1;
  }
  return inputs;
}

std::vector<std::string> known_inputs(const Target& target) {
  std::vector<std::string> known = target.seeds(ONEPASS_SOURCE_DIR);
  const std::vector<std::string> kept = corpus(target.name);
  known.insert(known.end(), kept.begin(), kept.end());
  return known;
}

struct Flags {
  std::string target, findings;
  std::int64_t calls = 0, seconds = 0;
  std::uint64_t seed = 1;
};

void fuzz(const Target& target, const Flags& flags, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto spent = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  const std::vector<std::string> known = known_inputs(target);
  std::int64_t calls = 0;
  for (const std::string& input : known) {
    run_one(target, input);
    ++calls;
  }
  Mutator mutator(target, known, flags.seed);
  while (flags.seconds > 0 ? spent() < seconds : calls < flags.calls) {
    run_one(target, mutator.next());
    ++calls;
  }
  fmt::print("{:<10}{:>12} calls{:>10.1f} s{:>10.0f} calls/s\n", target.name, calls, spent(),
             static_cast<double>(calls) / spent());
  std::fflush(stdout);
}

int run(const Flags& flags) {
  running.folder = flags.findings;
  if (!flags.findings.empty()) {
    std::error_code error;
    std::filesystem::create_directories(flags.findings, error);
  }
  if (device == Device::cuda) {
    if (const Status status = gpu::available(); !status.ok()) {
      fmt::print(stderr, "onepass_fuzz: {}\n", status.message());
      return 1;
    }
  }
  std::vector<const Target*> chosen;
  for (const Target& each : targets()) {
    if (flags.target.empty() ? device == Device::cpu || each.name == "api"
                             : each.name == flags.target) {
      chosen.push_back(&each);
    }
  }
  watch();
  // The API has more to find than all readers.
  const double parts = static_cast<double>(chosen.size()) + 4;
  for (const Target* each : chosen) {
    const double share = chosen.size() == 1 ? 1 : (each->name == "api" ? 5 : 1) / parts;
    fuzz(*each, flags, static_cast<double>(flags.seconds) * share);
  }
  return 0;
}

int reproduce(const Target& target, int count, char** paths) {
  speaks = true;
  watch();
  for (int i = 0; i < count; ++i) {
    std::string input;
    if (const Status status = cli::read_file(paths[i], input); !status.ok()) {
      fmt::print(stderr, "onepass_fuzz: {}\n", status.message());
      return kUsage;
    }
    fmt::print("{}:\n", paths[i]);
    if (target.name != "api") fmt::print("{}\n", input);
    std::fflush(stdout);
    run_one(target, std::move(input));
    fmt::print("{}: nothing found\n", paths[i]);
  }
  return 0;
}

// For libFuzzer: a folder of inputs, and beside it the words as it wants them.
int write_seeds(const Target& target, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  int number = 0;
  for (const std::string& input : known_inputs(target)) {
    const Status status =
        cli::write_file_atomically(fmt::format("{}/seed-{}", folder, number++), input);
    if (!status.ok()) {
      fmt::print(stderr, "onepass_fuzz: {}\n", status.message());
      return 1;
    }
  }
  std::string words, word;
  for (const char c : std::string(target.dictionary) + ' ') {
    if (c != ' ') {
      word += c;
    } else if (!word.empty()) {
      words += fmt::format("\"{}\"\n", std::exchange(word, {}));
    }
  }
  return cli::write_file_atomically(folder + ".dict", words).ok() ? 0 : 1;
}

int usage(std::string_view what) {
  fmt::print(
      stderr,
      "onepass_fuzz: {}\nonepass_fuzz run [--target NAME] [--calls N] [--seconds S] [--seed S] "
      "[--device cuda] [--findings DIR]\nonepass_fuzz reproduce [--device cuda] TARGET FILE...\n"
      "onepass_fuzz seeds TARGET DIR\n"
      "Targets:",
      what);
  for (const Target& each : targets()) fmt::print(stderr, " {}", each.name);
  fmt::print(stderr, "\n");
  return kUsage;
}

template <class Number>
bool parse(std::string_view text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size();
}

bool parse_device(std::string_view name) {
  device = name == "cuda" ? Device::cuda : Device::cpu;
  return name == "cuda" || name == "cpu";
}

int main_of(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "reproduce" && argc > 3 && argv[2] == std::string_view("--device")) {
    if (!parse_device(argv[3])) return usage(fmt::format("bad flag: --device {}", argv[3]));
    argc -= 2, argv += 2;
  }
  if (command == "reproduce" || command == "seeds") {
    const Target* target = argc > 3 ? find_target(argv[2]) : nullptr;
    if (target == nullptr) return usage(fmt::format("{} needs a target and a path", command));
    return command == "seeds" ? write_seeds(*target, argv[3])
                              : reproduce(*target, argc - 3, argv + 3);
  }
  if (command != "run") return usage(fmt::format("'{}' is not run, reproduce or seeds", command));
  Flags flags;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i], value = argv[i + 1];
    bool good = true;
    if (name == "--target") {
      flags.target = value;
      good = find_target(value) != nullptr;
    } else if (name == "--calls") {
      good = parse(value, flags.calls);
    } else if (name == "--seconds") {
      good = parse(value, flags.seconds);
    } else if (name == "--seed") {
      good = parse(value, flags.seed);
    } else if (name == "--findings") {
      flags.findings = value;
    } else if (name == "--device") {
      good = parse_device(value);
    } else {
      good = false;
    }
    if (!good) return usage(fmt::format("bad flag: {} {}", name, value));
  }
  if (argc % 2 != 0) return usage(fmt::format("{} has no value", argv[argc - 1]));
  if (flags.calls <= 0 && flags.seconds <= 0) return usage("run needs --calls or --seconds");
  return run(flags);
}

}  // namespace
}  // namespace onepass::fuzz

int main(int argc, char** argv) { return onepass::fuzz::main_of(argc, argv); }
