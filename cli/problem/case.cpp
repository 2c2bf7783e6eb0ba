#include "cli/problem/case.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <set>
#include <sstream>

#include "cli/files/files.hpp"
#include "cli/problem/sequences.hpp"
#include "core/nearest.hpp"
#include "dispatch/variant.hpp"

namespace onepass::cli {
namespace {

template <class... Args>
Status bad(fmt::format_string<Args...> format, Args&&... args) {
  return {Code::invalid_argument, fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace

std::int64_t Case::axis_index() const {
  return axis < 0 ? axis + static_cast<std::int64_t>(shape.size()) : axis;
}

std::int64_t Case::cols() const { return shape[static_cast<std::size_t>(axis_index())]; }

std::int64_t Case::rows() const {
  std::int64_t rows = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (static_cast<std::int64_t>(i) != axis_index()) rows *= shape[i];
  }
  return rows;
}

std::vector<std::int64_t> Case::row_shape() const {
  std::vector<std::int64_t> outer = shape;
  outer.erase(outer.begin() + axis_index());
  return outer;
}

std::string to_string(const Case& c) {
  const Case plain;
  std::string text = fmt::format("{} {} {}", name(c.op), fmt::join(c.shape, "x"), name(c.in));
  if (c.out != c.in) text += fmt::format(":{}", name(c.out));
  const auto add = [&text](std::string_view key, const auto& value, const auto& usual) {
    if (value != usual) text += fmt::format(" {}={}", key, value);
  };
  const auto flag = [&text](std::string_view word, bool on) {
    if (on) text += fmt::format(" {}", word);
  };
  const auto per_row = [&](std::string_view key, double value, bool rows, double usual) {
    rows ? flag(fmt::format("{}=row", key), true) : add(key, value, usual);
  };
  add("axis", c.axis, plain.axis);
  const bool attends = c.op == Op::attention;
  add("keys", c.keys, attends ? c.shape[2] : plain.keys);
  add("kv_heads", c.kv_heads, attends ? c.shape[1] : plain.kv_heads);
  per_row("scale", c.scale, c.scale_rows, attends ? usual_scale(c) : 1.0);
  per_row("temperature", c.temperature, c.temperature_rows, 1.0);
  add("softcap", c.softcap, plain.softcap);
  std::vector<std::string_view> masks;
  if (c.additive) masks.emplace_back("additive");
  if (c.boolean) masks.emplace_back("boolean");
  if (c.lengths) masks.emplace_back("lengths");
  if (c.causal) masks.emplace_back("causal");
  if (!masks.empty()) text += fmt::format(" mask={}", fmt::join(masks, "+"));
  flag("broadcast", c.broadcast);
  if (c.window_left >= 0 || c.window_right >= 0) {
    text += fmt::format(" window={},{}", c.window_left, c.window_right);
  }
  flag("lse", c.lse);
  add("smoothing", c.smoothing, plain.smoothing);
  add("z_loss", c.z_loss, plain.z_loss);
  flag("ignore", c.ignore);
  flag("weights", c.weights);
  flag("probabilities", c.probabilities);
  flag("loss", c.loss);
  if (c.reduction != Reduction::none) {
    text += c.reduction == Reduction::sum ? " reduction=sum" : " reduction=mean";
  }
  add("k", c.k, plain.k);
  add("values", name(c.values), name(plain.values));
  flag("unsorted", c.unsorted);
  flag("target", c.target);
  add("index", name(c.index), name(plain.index));
  add("top_k", c.top_k, plain.top_k);
  add("top_p", c.top_p, plain.top_p);
  add("min_p", c.min_p, plain.min_p);
  flag("score=sigmoid", c.score == GateScore::sigmoid);
  flag("bias", c.bias);
  flag("renormalize", c.renormalize);
  flag("alibi", c.alibi);
  flag("sinks", c.sinks);
  flag("offsets", c.ragged);
  add("page", c.page, plain.page);
  add("split", c.split, plain.split);
  flag("bshd", c.bshd);
  flag("in_place", c.in_place);
  flag("batch_invariant", c.batch_invariant);
  add("pad", c.pad, plain.pad);
  add("step", c.step, plain.step);
  add("offset", c.offset, plain.offset);
  add("out_offset", c.out_offset, plain.out_offset);
  add("variant", c.variant, plain.variant);
  add("device", name(c.device), name(plain.device));
  add("isa", c.isa, plain.isa);
  add("threads", c.threads, plain.threads);
  add("fill", c.fill, plain.fill);
  add("seed", c.seed, plain.seed);
  return text;
}

Status read_workload(const std::string& path, Op op, std::vector<Case>& out) {
  std::string text;
  if (Status status = read_file(path, text); !status.ok()) {
    return {status.code(), fmt::format("workload: {}", status.message())};
  }
  std::istringstream file(text);
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    line.resize(std::min(line.size(), line.find('#')));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Case c{.op = op};
    if (Status status = parse_case(line, c); !status.ok()) {
      return bad("workload: {}:{}: {}", path, number, status.message());
    }
    out.push_back(c);
  }
  return out.empty() ? bad("workload: '{}' holds no problem", path) : Status{};
}

}  // namespace onepass::cli
