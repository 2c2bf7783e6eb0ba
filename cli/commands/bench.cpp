// onepass bench: ours beside the peers, one table.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/files/progress.hpp"
#include "cli/files/table.hpp"
#include "cli/measure/measure.hpp"
#include "cli/measure/peers.hpp"
#include "cli/measure/summary.hpp"
#include "cli/profile/once.hpp"
#include "dispatch/machines.hpp"
#include "runtime/gpu.hpp"
#include "runtime/host.hpp"

namespace onepass::cli {
namespace {

// Of attention: what stands in place of rows and columns.
struct AttentionFlags {
  std::int64_t batch = 1, heads = 8, kv_heads = 0, seq = 2048, kv_seq = 0, head_dim = 64;
  std::int64_t page = 0;
  bool causal = false;
};

struct Flags {
  std::string op;
  std::int64_t rows = 4096;
  std::int64_t cols = 4096;
  std::vector<std::string> dtypes = {"f32"};
  std::vector<int> threads;
  std::string device;
  std::string problem;
  std::string workload;
  std::string json;
  Protocol protocol;
  Selection selection;
  AttentionFlags attention;
};

// The problem that the flags describe, as text.
std::string problem_text(const Flags& flags, Op op, const std::string& dtype) {
  if (!attends(op)) return fmt::format("{}x{} {}", flags.rows, flags.cols, dtype);
  const AttentionFlags& a = flags.attention;
  std::string text = fmt::format("{}x{}x{}x{} {}", a.batch, a.heads, a.seq, a.head_dim, dtype);
  if (a.kv_heads > 0) text += fmt::format(" kv_heads={}", a.kv_heads);
  if (a.kv_seq > 0) text += fmt::format(" keys={}", a.kv_seq);
  if (a.page > 0) text += fmt::format(" page={}", a.page);
  if (a.causal) text += " causal";
  return text;
}

Status collect(const Flags& flags, std::vector<Case>& cases) {
  Case c;
  if (!flags.op.empty()) {
    if (Status status = parse_op(flags.op, c.op); !status.ok()) return status;
  }
  std::vector<Case> given;
  if (!flags.workload.empty()) {
    if (Status status = read_workload(flags.workload, c.op, given); !status.ok()) return status;
  } else if (!flags.problem.empty()) {
    if (Status status = parse_case(flags.problem, c); !status.ok()) return status;
    given.push_back(c);
  } else {
    for (const std::string& dtype : flags.dtypes) {
      if (Status status = parse_case(problem_text(flags, c.op, dtype), c); !status.ok()) {
        return status;
      }
      given.push_back(c);
    }
  }
  // A workload may say where a problem belongs; --device says it for all.
  const bool gpu_here = gpu::available().ok();
  for (Case each : given) {
    if (!flags.device.empty()) each.device = flags.device == "cuda" ? Device::cuda : Device::cpu;
    if (flags.device.empty() && flags.workload.empty() && flags.threads.empty() && gpu_here &&
        each.threads == 0 && each.isa.empty()) {
      each.device = Device::cuda;
    }
    if (flags.threads.empty()) cases.push_back(each);
    for (const int threads : flags.threads) {
      cases.push_back(each);
      cases.back().threads = threads;
    }
  }
  return {};
}

// Of the rows of one problem: the time of a peer, 0 when it did not run.
double time_of(const std::vector<Row>& rows, const Row& row, std::string_view variant) {
  for (const Row& other : rows) {
    if (other.problem == row.problem && other.variant == variant) return other.median_us;
  }
  return 0;
}

// The time of a peer in hundredths of a row's; nothing where it did not run.
std::string percent_of(double peer, const Row& row) {
  return peer > 0 ? fmt::format("{:.0f}", peer / row.median_us * 100) : "";
}

// Against the row before, where both are ours and of one problem.
std::string gain_over(const Row* before, const Row& row) {
  const bool step = before != nullptr && before->problem == row.problem && row.role != "peer";
  return step ? fmt::format("{:.2f}", before->median_us / row.median_us) : "";
}

// What is to be said of a result. A copy has none.
std::string verdict(const Row& row) {
  if (row.variant == "copy" || row.verified) return row.chosen ? "chosen" : "";
  return row.role == "peer" ? "beyond our tolerance" : "WRONG";
}

std::string table_of(const std::vector<Row>& rows) {
  Table table({{"problem"},
               {"variant"},
               {"role"},
               {"median µs", Align::right},
               {"p10", Align::right},
               {"p90", Align::right},
               {"GB/s", Align::right},
               {"% of copy", Align::right},
               {"× onednn", Align::right},
               {""}});
  std::string last;
  for (const Row& row : rows) {
    const double onednn = time_of(rows, row, "onednn");
    table.add({row.problem == last ? "" : row.problem, row.variant, row.role,
               fmt::format("{:.1f}", row.median_us), fmt::format("{:.1f}", row.p10_us),
               fmt::format("{:.1f}", row.p90_us), fmt::format("{:.1f}", row.gbps),
               fmt::format("{:.0f}", row.percent_of_copy),
               onednn > 0 ? fmt::format("{:.2f}", onednn / row.median_us) : "", verdict(row)});
    last = row.problem;
  }
  return table.text();
}

// The walk: each variant beside the one before it.
std::string gpu_table_of(const std::vector<Row>& rows) {
  Table table({{"problem"},
               {"variant"},
               {"role"},
               {"ms", Align::right},
               {"p10", Align::right},
               {"p90", Align::right},
               {"GB/s", Align::right},
               {"% of copy", Align::right},
               {"% of cuDNN", Align::right},
               {"× step before", Align::right},
               {""}});
  const Row* before = nullptr;
  for (const Row& row : rows) {
    const bool first = before == nullptr || before->problem != row.problem;
    table.add({first ? row.problem : "", row.variant, row.role,
               fmt::format("{:.4f}", row.median_us / 1e3), fmt::format("{:.4f}", row.p10_us / 1e3),
               fmt::format("{:.4f}", row.p90_us / 1e3), fmt::format("{:.0f}", row.gbps),
               fmt::format("{:.0f}", row.percent_of_copy),
               percent_of(time_of(rows, row, "cudnn_accurate"), row), gain_over(before, row),
               verdict(row)});
    before = &row;
  }
  return table.text();
}

// What matrices bound: operations in place of a copy's share.
std::string attention_table_of(const std::vector<Row>& rows) {
  Table table({{"problem"},
               {"variant"},
               {"role"},
               {"median µs", Align::right},
               {"p10", Align::right},
               {"p90", Align::right},
               {"TFLOP/s", Align::right},
               {"GB/s", Align::right},
               {"% of cuDNN", Align::right},
               {"× step before", Align::right},
               {""}});
  const Row* before = nullptr;
  for (const Row& row : rows) {
    const bool first = before == nullptr || before->problem != row.problem;
    const bool copy = row.variant == "copy";
    table.add({first ? row.problem : "", row.variant, row.role,
               fmt::format("{:.1f}", row.median_us), fmt::format("{:.1f}", row.p10_us),
               fmt::format("{:.1f}", row.p90_us), copy ? "" : fmt::format("{:.4g}", row.tflops),
               fmt::format("{:.1f}", row.gbps), percent_of(time_of(rows, row, "cudnn_sdpa"), row),
               gain_over(before, row), verdict(row)});
    before = &row;
  }
  return table.text();
}

std::string table_for(const std::vector<Row>& rows, bool on_gpu) {
  const bool computes = std::ranges::any_of(rows, [](const Row& row) { return row.tflops > 0; });
  if (computes) return attention_table_of(rows);
  return on_gpu ? gpu_table_of(rows) : table_of(rows);
}

// The quickest copy is the limit that the others are held against.
void note_copies(Results& results) {
  for (const Row& row : results.rows) {
    if (row.variant != "copy") continue;
    double& best = results.limits["copy_gbps"];
    best = std::max(best, row.gbps);
  }
}

Status bench(const Flags& flags) {
  std::vector<Case> cases;
  if (Status status = collect(flags, cases); !status.ok()) return status;
  for (const Case& c : cases) {
    if (c.device != cases[0].device) {
      return {Code::invalid_argument, "device: one table holds one device's times; pass --device"};
    }
  }
  Results results;
  const bool on_gpu = cases[0].device == Device::cuda;
  const Machine machine = this_host();
  results.environment =
      on_gpu ? gpu_environment() : detect_environment(std::string(machine.isa), machine.threads);
  if (flags.protocol.rest_ms > 0) results.limits["rest_ms"] = flags.protocol.rest_ms;
  {
    Progress progress("bench", static_cast<std::int64_t>(cases.size()));
    for (const Case& c : cases) {
      const auto tell = [](const std::string&) {};
      if (Status status = measure(c, flags.protocol, flags.selection, tell, results.rows);
          !status.ok()) {
        return {status.code(), fmt::format("{}: {}", to_string(c), status.message())};
      }
      note_copies(results);
      // After every problem: a run that is cut off keeps what it measured.
      if (Status status = flags.json.empty() ? Status{} : save(flags.json, results); !status.ok()) {
        return status;
      }
      progress.step(to_string(c));
    }
  }
  const std::string& asked = flags.selection.variants;
  const bool beside_peers = asked == "all" || asked == "auto";
  // The sentence that a reader came for stands last.
  fmt::print("{}{}{}", table_for(results.rows, on_gpu), beside_peers ? missing(peers(), cases) : "",
             summary(results.rows));
  return {};
}

}  // namespace

void add_bench(CommandLine& line) {
  Command command =
      line.command("bench", "time variants beside oneDNN and a copy of the same bytes");
  command.footer(
      "Rotates buffers so that every call finds cold caches. Times are medians over iters x runs.\n"
      "Examples: onepass bench softmax --rows 4096 --cols 4096 --dtype f32,bf16 --threads 1,2\n"
      "          onepass bench attention --heads 32 --kv-heads 8 --seq 1 --kv-seq 8192 --head-dim "
      "128\n"
      "          onepass bench --workload workloads/perf_softmax_cpu.txt --variants auto "
      "--json out.json");
  const auto flags = std::make_shared<Flags>();
  command.option("op", flags->op, "the op to time; softmax if left out; see onepass list");
  command.option("--rows", flags->rows, "rows").positive();
  command.option("--cols", flags->cols, "columns").positive();
  AttentionFlags& attention = flags->attention;
  const auto count = [&command](const char* name, std::int64_t& value, const char* what) {
    command.option(name, value, what).positive().group("Attention");
  };
  count("--batch", attention.batch, "sequences");
  count("--heads", attention.heads, "heads of q");
  count("--kv-heads", attention.kv_heads, "heads of k and v; as many as of q if left out");
  count("--seq", attention.seq, "queries per sequence");
  count("--kv-seq", attention.kv_seq, "keys per sequence; as many as queries if left out");
  count("--head-dim", attention.head_dim, "elements per head");
  count("--page", attention.page, "keys per page; contiguous if left out");
  command.flag("--causal", attention.causal, "hide keys past each query's own").group("Attention");
  command.option("--dtype", flags->dtypes, "f32, f16, bf16, f64, or in:out").separated_by_commas();
  command
      .option("--threads", flags->threads,
              "time with these numbers of threads; all cores if left out")
      .separated_by_commas()
      .positive();
  command
      .option("--device", flags->device, "run on this device; the GPU if left out and there is one")
      .one_of({"cpu", "cuda"});
  command.option("--problem", flags->problem, "time this problem line; see list --options");
  command.option("--workload", flags->workload, "read problems from this file, one per line");
  command.option("--iters", flags->protocol.iters, "timed calls per run").positive();
  command.option("--runs", flags->protocol.runs, "runs per candidate, which take turns").positive();
  command.option("--warmup", flags->protocol.warmup, "untimed calls before the first run")
      .non_negative();
  command
      .option("--rest", flags->protocol.rest_ms,
              "idle this many ms before each run, for a clock that falls under load")
      .non_negative();
  command
      .option("--seconds", flags->protocol.seconds,
              "end a run after this long, whatever --iters says")
      .positive();
  command.option("--variants", flags->selection.variants,
                 "time all, auto, or names: a,b; on a GPU, launches or no_clusters");
  command.option("--json", flags->json, "write the results to this file");
  command.run([flags] { return report(bench(*flags)); });
}

}  // namespace onepass::cli
