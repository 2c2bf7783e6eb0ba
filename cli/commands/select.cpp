// onepass topk | sample: what is chosen from the rows of the user's own arrays.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.hpp"
#include "cli/files/npy.hpp"
#include "cli/files/table.hpp"
#include "cli/ops/driver.hpp"
#include "cli/problem/case.hpp"
#include "cli/problem/words.hpp"
#include "core/number.hpp"
#include "onepass/select.hpp"

namespace onepass::cli {
namespace {

// What both commands read, and how they answer: into files, or else as a table.
struct Common {
  std::string in, index = "i64";
  bool bf16 = false, json = false;
  Case options;
};

void add_common(Command& command, const std::shared_ptr<Common>& flags) {
  command.option("in", flags->in, "the logits, [V] or [..., V]").required();
  command.option("--scale", flags->options.scale, "multiplies x, before the softcap");
  command.option("--temperature", flags->options.temperature, "divides, after the softcap");
  command.option("--softcap", flags->options.softcap, "cap·tanh(v/cap); 0: none");
  command.option("--index", flags->index, "of indices: i32 or i64").one_of({"i32", "i64"});
  command.flag("--bf16", flags->bf16, "u2 arrays hold bf16 bits");
  command.flag("--json", flags->json, "print JSON in place of a table");
  command.option("--threads", flags->options.threads, "0: all").non_negative();
  command.option("--variant", flags->options.variant, "force one; see onepass list");
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
  std::string values = "probability", to_values, to_indices, lse;
};

Status run_topk(const TopkFlags& flags) {
  Array x;
  std::vector<std::int64_t> row_shape;
  if (Status status = read_rows(flags, x, row_shape); !status.ok()) return status;
  Case c = flags.options;
  if (c.k < 1 || c.k > x.shape.back()) {
    return {
        Code::invalid_argument,
        fmt::format("k: {} is not between 1 and the {} elements of a row", c.k, x.shape.back())};
  }
  TopkValues kind{};
  if (!parse_values(flags.values, kind)) {
    return {Code::invalid_argument, fmt::format("values: '{}' is not one of probability, "
                                                "log_probability, logit, renormalized",
                                                flags.values)};
  }
  std::vector<std::int64_t> selected = row_shape;
  selected.push_back(c.k);
  const DType wide = x.dtype == DType::f64 ? DType::f64 : DType::f32;
  Array values, indices, lse;
  if (Status status = Array::make(wide, selected, values); !status.ok()) return status;
  if (Status status = Array::make(index_type(flags), selected, indices); !status.ok()) {
    return status;
  }
  c.values = kind;
  Tensors tensors;
  tensors[array::x] = x.view();
  tensors[array::y] = values.view();
  tensors[array::indices] = indices.view();
  if (!flags.lse.empty()) {
    if (Status status = Array::make(wide, row_shape, lse); !status.ok()) return status;
    tensors[array::lse] = lse.view();
  }
  if (Status status = driver_of(c.op).run(Context::cpu(c.threads), c, tensors, c.variant, nullptr);
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
    for (std::int64_t i = 0; i < c.k; ++i) {
      const double value = value_at(values, r * c.k + i);
      const auto token = static_cast<std::int64_t>(value_at(indices, r * c.k + i));
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
  std::string seed = "0", offset = "0";
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
  const Case& c = flags.options;
  const SampleOptions options{.temperature = c.temperature,
                              .top_k = c.top_k,
                              .top_p = c.top_p,
                              .min_p = c.min_p,
                              .seed = seed,
                              .offset = offset,
                              .scale = c.scale,
                              .softcap = c.softcap,
                              .logprob = logprob.view(),
                              .valid = valid.view(),
                              .variant = c.variant};
  if (Status status =
          sample(Context::cpu(c.threads), std::as_const(x).view(), token.view(), options);
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
  top->options = {.op = Op::topk, .k = 10};
  add_common(topk, top);
  topk.option("--k", top->options.k, "how many of each row");
  topk.option("--values", top->values, "probability, log_probability, logit or renormalized");
  topk.flag("--unsorted", top->options.unsorted, "by index, not from the largest down");
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
  drawn.option("--top-k", draw->options.top_k, "of the k likeliest; 0: of all");
  drawn.option("--top-p", draw->options.top_p,
               "of as few of the likeliest as have this probability");
  drawn.option("--min-p", draw->options.min_p,
               "of those with this part of the likeliest's probability");
  drawn.option("--seed", draw->seed, "64 bits: the same seed draws the same tokens");
  drawn.option("--offset", draw->offset, "draws of one seed: one an offset");
  drawn.option("--to-tokens", draw->to_tokens, "an .npy for the tokens");
  drawn.option("--logprob", draw->logprob, "an .npy for their log-probabilities");
  drawn.run([draw] { return report(run_sample(*draw)); });
}

}  // namespace onepass::cli
