#include "fuzz/targets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "cli/files/files.hpp"
#include "cli/measure/results.hpp"
#include "cli/problem/options.hpp"
#include "cli/profile/ncu.hpp"
#include "dispatch/machines.hpp"
#include "rows/gpu/tuning.hpp"

namespace onepass::fuzz {
namespace {

using Seeds = std::vector<std::string>;

std::function<std::string()> meant;

Seeds no_seeds(const std::string&) { return {}; }

// A file as numpy.save writes it, behind the byte that says what u2 is.
std::string npy(int version, std::string_view descr, std::string_view shape, std::size_t bytes) {
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", descr, shape);
  header.append(64 - (header.size() + 12) % 64, ' ');
  std::string file = "\x01\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
    file += static_cast<char>(header.size() >> 8 * i & 0xff);
  return file + header + std::string(bytes, '\x3c');
}

Seeds npy_seeds(const std::string&) {
  std::string by_columns = npy(1, "<f4", "(2, 3)", 24);
  by_columns.replace(by_columns.find("False"), 5, "True ");
  std::string raw = npy(1, "<u2", "(2,)", 4);
  raw[0] = 0;  // not as bf16
  return {npy(1, "<f4", "(2, 3)", 24),
          npy(1, "<f2", "(5,)", 10),
          npy(1, "<f8", "()", 8),
          npy(2, "<u2", "(1, 4)", 8),
          npy(3, "<f4", "(0, 7)", 0),
          npy(1, ">f4", "(1,)", 4),
          npy(1, "|u1", "(2,)", 2),
          npy(1, "=f4", "(1, 1, 1)", 4),
          npy(1, "<f4", "(1, 1, 1, 1, 1, 1, 1, 1, 1)", 4),
          npy(1, "<f8", "(4294967296, 4294967296)", 8),
          npy(1, "<f8", "(9223372036854775808,)", 8),
          npy(2, "<f4", "(1,)", 4).substr(0, 12),
          by_columns,
          raw};
}

std::vector<std::string> workloads(const std::string& source_dir) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir + "/workloads", error)) {
    paths.push_back(entry.path().string());
  }
  std::ranges::sort(paths);
  return paths;
}

Seeds problem_seeds(const std::string& source_dir) {
  Seeds lines;
  for (const std::string& path : workloads(source_dir)) {
    std::string text;
    if (!cli::read_file(path, text).ok()) continue;
    for (std::size_t begin = 0, count = 0; begin < text.size(); ++count) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const std::string line = text.substr(begin, end - begin);
      if (!line.empty() && line[0] != '#' && count % 7 == 0) lines.push_back(line);
      begin = end + 1;
    }
  }
  return lines;
}

Seeds workload_seeds(const std::string& source_dir) {
  constexpr std::size_t kShort = 1000;
  Seeds files;
  for (const std::string& path : workloads(source_dir)) {
    std::string text;
    if (cli::read_file(path, text).ok()) files.push_back(text.substr(0, text.rfind('\n', kShort)));
  }
  return files;
}

Seeds tuning_seeds(const std::string&) {
  Seeds texts = {
      "onepass-tuning-1 90 132\n# a comment\nmap 4 16 1 gpu_group:8\nfold 2 100 64 gpu_block:4\n"
      "pair 8 5000 9 gpu_cluster:4:8\npair 4 700000 1 gpu_grid:8\n"};
  if (const GpuTuning* own = built_in_tuning(*find_machine("h200"))) {
    texts.push_back(own->text().substr(0, own->text().find('\n', 1000) + 1));
  }
  return texts;
}

Seeds results_seeds(const std::string&) {
  cli::Results results;
  results.environment = {
      .device = "cpu", .cpu = "model name : a CPU", .threads = 2, .commit = "abc"};
  results.limits["copy_gbps"] = 12.34;
  cli::Row row{.op = "softmax",
               .variant = "cpu_row",
               .role = "ship",
               .problem = "softmax 2x3 f32",
               .dtype = "f32"};
  row.shape = {2, 3};
  row.rounds_us = {1.5, 2.5};
  row.tflops = 1;
  results.rows = {row, row};
  const std::string text = cli::to_json(results);
  const auto with = [&text](std::string_view old, std::string_view now) {
    std::string changed = text;
    if (const std::size_t at = text.find(old); at != std::string::npos)
      changed.replace(at, old.size(), now);
    return changed;
  };
  return {text,
          with("12.34", "null"),
          with("12.34", "[]"),
          with("12.34", "1e400"),
          with("\"schema\": 1", "\"schema\": 2"),
          with("\"threads\": 2", "\"threads\": -2"),
          with("\"threads\": 2", "\"threads\": " + std::string(99, '[') + std::string(99, ']')),
          "{\"schema\": 1, \"environment\": {}, \"limits\": {}, \"rows\": []}",
          "processor : 0\nmodel name\t: Some CPU\n",
          "CPU implementer : 0x41\nCPU part : 0xd40\n"};
}

// What ncu prints: names, units, and a line per launch.
Seeds ncu_seeds(const std::string&) {
  std::string names = "\"ID\",\"Kernel Name\"", units = "\"\",\"\"", values;
  for (const cli::Metric& metric : cli::ncu_metrics()) {
    const auto counts = [&](std::string_view what) {
      return metric.name.find(what) != std::string_view::npos;
    };
    const std::string_view unit = counts("bytes")      ? "byte"
                                  : counts("duration") ? "ns"
                                  : counts("register") ? "register/thread"
                                                       : "%";
    names += fmt::format(",\"{}\"", metric.name);
    units += fmt::format(",\"{}\"", unit);
    values += fmt::format(",\"{}\"", counts("bytes") ? "67,108,864" : "40.25");
  }
  const std::string head = fmt::format("==PROF== Connected\n{}\n{}\n", names, units);
  const std::string first = fmt::format("\"0\",\"void f(int, \"\"x\"\")\"{}\n", values);
  std::string second = first;
  second.replace(second.find("40.25"), 5, "90.5");
  return {head + first + second + "==PROF== Disconnected\n", head + first,
          "==ERROR== no permission\nerror: no GPU\n"};
}

// Every word that a problem line may hold, and some that it may not.
std::string problem_words() {
  std::string words =
      ":f32 additive boolean lengths causal + row -1 9223372036854775807 1e308 nan inf";
  for (const Op op : kAllOps) words += fmt::format(" {}", name(op));
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    words += fmt::format(" {}", name(dtype));
  }
  for (const cli::OptionRow& option : cli::options()) {
    words += fmt::format(" {}{} {}", option.key, option.is_flag ? "" : "=", option.examples);
  }
  return words;
}

const std::array<Target, 7>& all() {
  static const std::string problem = problem_words();
  static const std::array<Target, 7> list = {{
      {"api", fuzz_api, no_seeds, ""},
      {"npy", fuzz_npy, npy_seeds,
       "NUMPY descr fortran_order shape True False <f2 <f4 <f8 <u2 |u1 >f4 =f4 9223372036854775807 "
       "-1"},
      {"problem", fuzz_problem, problem_seeds, problem},
      {"workload", fuzz_workload, workload_seeds, problem},
      {"tuning", fuzz_tuning, tuning_seeds,
       "onepass-tuning-1 map fold pair gpu_group: gpu_block: gpu_cluster: gpu_grid: 132 -1 "
       "2147483647 9223372036854775807"},
      {"results", fuzz_results, results_seeds,
       "schema environment limits rows device cpu isa threads sm driver cuda commit dirty date op "
       "variant role chosen problem "
       "dtype shape median_us p10_us p90_us bytes gbps percent_of_copy tflops verified rounds_us "
       "null true false 1e308 "
       "-1 18446744073709551615 CPU implementer part 0x41 0xd40"},
      {"ncu", fuzz_ncu, ncu_seeds,
       "ID Kernel dram__bytes_read.sum gpu__time_duration.sum Mbyte Gbyte byte us ms ns n/a "
       "==PROF== ==ERROR=="},
  }};
  return list;
}

}  // namespace

std::span<const Target> targets() { return all(); }

const Target* find_target(std::string_view name) {
  const auto found = std::ranges::find(all(), name, &Target::name);
  return found == all().end() ? nullptr : &*found;
}

void meaning(std::function<std::string()> text) {
  meant = std::move(text);
  if (speaks && meant) fmt::print("{}", meant());
  if (speaks) std::fflush(stdout);
}

std::string meaning() { return meant && !speaks ? meant() : ""; }

void finding(const std::string& what) {
  fmt::print(stderr, "FINDING: {}\n{}", what, meaning());
  std::fflush(stderr);
  std::abort();
}

}  // namespace onepass::fuzz
