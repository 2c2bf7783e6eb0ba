// onepass topk | sample: what is chosen from the rows of the user's own arrays.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.hpp"
#include "cli/files/npy.hpp"
#include "cli/files/table.hpp"
#include "cli/problem/case.hpp"
#include "cli/problem/words.hpp"
#include "core/number.hpp"
#include "onepass/onepass.hpp"

namespace onepass::cli {
namespace {

// What both commands read, and how they answer: into files, or else as a table.
struct Common {
  std::string in, variant, index = "i64";
  double scale = 1, temperature = 1, softcap = 0;
  bool bf16 = false, json = false;
  int threads = 0;
};

void add_common(Command& command, const std::shared_ptr<Common>& flags) {
  command.option("in", flags->in, "the logits, [V] or [..., V]").required();
  command.option("--scale", flags->scale, "multiplies x, before the softcap");
  command.option("--temperature", flags->temperature, "divides, after the softcap");
  command.option("--softcap", flags->softcap, "cap·tanh(v/cap); 0: none");
  command.option("--index", flags->index, "of indices: i32 or i64").one_of({"i32", "i64"});
  command.flag("--bf16", flags->bf16, "u2 arrays hold bf16 bits");
  command.flag("--json", flags->json, "print JSON in place of a table");
  command.option("--threads", flags->threads, "0: all").non_negative();
  command.option("--variant", flags->variant, "force one; see onepass list");
}

Status read_rows(const Common& flags, Array& x, std::vector<std::int64_t>& row_shape) {
  if (Status status = read_npy(flags.in, flags.bf16, x); !status.ok()) return status;
  if (x.shape.empty()) {
    return {Code::invalid_argument, fmt::format("{}: a scalar has no row", flags.in)};
  }
  row_shape = x.shape;
  row_shape.pop_back();
  return {};
}

DType index_type(const Common& flags) { return flags.index == "i32" ? DType::i32 : DType::i64; }

double value_at(const Array& array, std::int64_t i) {
  return read<double>(array.data.data(), array.dtype, i);
}

std::int64_t rows_of(const std::vector<std::int64_t>& row_shape) {
  std::int64_t rows = 1;
  for (const std::int64_t extent : row_shape) rows *= extent;
  return rows;
}

Status write_if(const std::string& path, const Array& array) {
  return path.empty() ? Status{} : write_npy(path, array.dtype, array.shape, array.bytes());
}

// ---- topk ----

struct TopkFlags : Common {
  std::int64_t k = 10;
  std::string values = "probability", to_values, to_indices, lse;
  bool unsorted = false;
};

Status run_topk(const TopkFlags& flags) {
  Array x;
  std::vector<std::int64_t> row_shape;
  if (Status status = read_rows(flags, x, row_shape); !status.ok()) return status;
  if (flags.k < 1 || flags.k > x.shape.back()) {
    return {Code::invalid_argument,
            fmt::format("k: {} is not between 1 and the {} elements of a row", flags.k,
                        x.shape.back())};
  }
  TopkValues kind{};
  if (!parse_values(flags.values, kind)) {
    return {Code::invalid_argument, fmt::format("values: '{}' is not one of probability, "
                                                "log_probability, logit, renormalized",
                                                flags.values)};
  }
  std::vector<std::int64_t> chosen_shape = row_shape;
  chosen_shape.push_back(flags.k);
  const DType wide = x.dtype == DType::f64 ? DType::f64 : DType::f32;
  Array values, indices, lse;
  if (Status status = Array::make(wide, chosen_shape, values); !status.ok()) return status;
  if (Status status = Array::make(index_type(flags), chosen_shape, indices); !status.ok()) {
    return status;
  }
  TopkOptions options{.values = kind,
                      .sorted = !flags.unsorted,
                      .scale = flags.scale,
                      .temperature = flags.temperature,
                      .softcap = flags.softcap,
                      .variant = flags.variant};
  if (!flags.lse.empty()) {
    if (Status status = Array::make(wide, row_shape, lse); !status.ok()) return status;
    options.lse = lse.view();
  }
  if (Status status = softmax_topk(Context::cpu(flags.threads), std::as_const(x).view(),
                                   values.view(), indices.view(), options);
      !status.ok()) {
    return status;
  }
  if (Status status = write_if(flags.lse, lse); !status.ok()) return status;
  if (Status status = write_if(flags.to_values, values); !status.ok()) return status;
  if (Status status = write_if(flags.to_indices, indices); !status.ok()) return status;
  if (!flags.to_values.empty() || !flags.to_indices.empty()) return {};
  Table table({{"row", Align::right},
               {"place", Align::right},
               {"token", Align::right},
               {flags.values, Align::right}});
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (std::int64_t r = 0; r < rows_of(row_shape); ++r) {
    nlohmann::ordered_json tokens, weights;
    for (std::int64_t i = 0; i < flags.k; ++i) {
      const double value = value_at(values, r * flags.k + i);
      const auto token = static_cast<std::int64_t>(value_at(indices, r * flags.k + i));
      table.add({fmt::format("{}", r), fmt::format("{}", i + 1), fmt::format("{}", token),
                 fmt::format("{:.6g}", value)});
      tokens.push_back(token);
      weights.push_back(value);
    }
    all.push_back({{"row", r}, {"tokens", tokens}, {"values", weights}});
  }
  fmt::print("{}{}", flags.json ? all.dump(2) : table.text(), flags.json ? "\n" : "");
  return {};
}

// ---- sample ----

struct SampleFlags : Common {
  std::int64_t top_k = 0;
  std::string seed = "0", offset = "0";
  double top_p = 1, min_p = 0;
  std::string to_tokens, logprob;
};

Status read_bits(std::string_view argument, const std::string& text, std::int64_t& out) {
  std::uint64_t bits = 0;
  if (!parse_bits(text, bits)) {
    return {Code::invalid_argument,
            fmt::format("{}: '{}' is not an integer between -2^63 and 2^64 - 1", argument, text)};
  }
  out = static_cast<std::int64_t>(bits);
  return {};
}

Status run_sample(const SampleFlags& flags) {
  std::int64_t seed = 0, offset = 0;
  if (Status status = read_bits("seed", flags.seed, seed); !status.ok()) return status;
  if (Status status = read_bits("offset", flags.offset, offset); !status.ok()) return status;
  Array x;
  std::vector<std::int64_t> row_shape;
  if (Status status = read_rows(flags, x, row_shape); !status.ok()) return status;
  Array token, logprob, valid;
  if (Status status = Array::make(index_type(flags), row_shape, token); !status.ok()) return status;
  if (Status status = Array::make(DType::f32, row_shape, logprob); !status.ok()) return status;
  if (Status status = Array::make(DType::u8, row_shape, valid); !status.ok()) return status;
  const SampleOptions options{.temperature = flags.temperature,
                              .top_k = flags.top_k,
                              .top_p = flags.top_p,
                              .min_p = flags.min_p,
                              .seed = seed,
                              .offset = offset,
                              .scale = flags.scale,
                              .softcap = flags.softcap,
                              .logprob = logprob.view(),
                              .valid = valid.view(),
                              .variant = flags.variant};
  if (Status status =
          sample(Context::cpu(flags.threads), std::as_const(x).view(), token.view(), options);
      !status.ok()) {
    return status;
  }
  if (Status status = write_if(flags.logprob, logprob); !status.ok()) return status;
  if (!flags.to_tokens.empty()) return write_if(flags.to_tokens, token);
  Table table({{"row", Align::right}, {"token", Align::right}, {"logprob", Align::right}});
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (std::int64_t r = 0; r < rows_of(row_shape); ++r) {
    const bool good = value_at(valid, r) != 0;
    const auto drawn = static_cast<std::int64_t>(value_at(token, r));
    table.add({fmt::format("{}", r), good ? fmt::format("{}", drawn) : "none",
               fmt::format("{:.6g}", value_at(logprob, r))});
    all.push_back(
        {{"row", r}, {"token", drawn}, {"logprob", value_at(logprob, r)}, {"valid", good}});
  }
  fmt::print("{}{}", flags.json ? all.dump(2) : table.text(), flags.json ? "\n" : "");
  return {};
}

}  // namespace

void add_select(CommandLine& line) {
  Command topk = line.command("topk", "the largest of each row of an .npy array");
  topk.footer(
      "Without --to-values or --to-indices the answer is printed.\n"
      "Example: onepass topk logits.npy --k 50 --temperature 0.7 --to-indices tokens.npy");
  const auto top = std::make_shared<TopkFlags>();
  add_common(topk, top);
  topk.option("--k", top->k, "how many of each row");
  topk.option("--values", top->values, "probability, log_probability, logit or renormalized");
  topk.flag("--unsorted", top->unsorted, "by index, not from the largest down");
  topk.option("--to-values", top->to_values, "an .npy for the values");
  topk.option("--to-indices", top->to_indices, "an .npy for the indices");
  topk.option("--lse", top->lse, "also write the logsumexp of each row there");
  topk.run([top] { return report(run_topk(*top)); });

  Command drawn = line.command("sample", "a token of each row of an .npy array of logits");
  drawn.footer(
      "Without --to-tokens the tokens are printed.\n"
      "Example: onepass sample logits.npy --temperature 0.7 --top-k 50 --top-p 0.9 --seed 7");
  const auto draw = std::make_shared<SampleFlags>();
  add_common(drawn, draw);
  drawn.option("--top-k", draw->top_k, "of the k likeliest; 0: of all");
  drawn.option("--top-p", draw->top_p, "of as few of the likeliest as have this probability");
  drawn.option("--min-p", draw->min_p, "of those with this part of the likeliest's probability");
  drawn.option("--seed", draw->seed, "64 bits: the same seed draws the same tokens");
  drawn.option("--offset", draw->offset, "draws of one seed: one an offset");
  drawn.option("--to-tokens", draw->to_tokens, "an .npy for the tokens");
  drawn.option("--logprob", draw->logprob, "an .npy for their log-probabilities");
  drawn.run([draw] { return report(run_sample(*draw)); });
}

}  // namespace onepass::cli
