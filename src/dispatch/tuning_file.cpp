#include "dispatch/tuning_file.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace onepass {

std::string user_tuning_path() {
  if (const char* named = std::getenv("ONEPASS_TUNING")) return named;
  std::filesystem::path folder;
  if (const char* config = std::getenv("XDG_CONFIG_HOME")) {
    folder = config;
  } else if (const char* home = std::getenv("HOME")) {
    folder = std::filesystem::path(home) / ".config";
  } else {
    return {};
  }
  return (folder / "onepass" / "tuning.txt").string();
}

Status user_tuning(const Machine& machine, GpuTuning& out, bool& found) {
  found = false;
  const std::string path = user_tuning_path();
  std::error_code error;
  const bool named = std::getenv("ONEPASS_TUNING") != nullptr;
  if (path.empty() || (!named && !std::filesystem::exists(path, error))) return {};
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) return {Code::invalid_argument, "tuning: '" + path + "' cannot be read"};
  GpuTuning tuning;
  if (Status status = GpuTuning::parse(text, tuning); !status.ok()) {
    return {status.code(), status.message() + ", in '" + path + "'"};
  }
  if (const std::string refusal = tuning.refuses(machine); !refusal.empty()) {
    return {Code::invalid_argument, "tuning: '" + path + "': " + refusal};
  }
  out = std::move(tuning);
  found = true;
  return {};
}

}  // namespace onepass
