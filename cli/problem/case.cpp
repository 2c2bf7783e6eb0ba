#include "cli/problem/case.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <sstream>

#include "cli/files/files.hpp"
#include "cli/problem/options.hpp"
#include "cli/problem/sequences.hpp"
#include "cli/problem/words.hpp"
#include "core/nearest.hpp"
#include "dispatch/machines.hpp"
#include "dispatch/variant.hpp"
#include "runtime/host.hpp"

namespace onepass::cli {
namespace {

template <class... Args>
Status bad(fmt::format_string<Args...> format, Args&&... args) {
  return {Code::invalid_argument, fmt::format(format, std::forward<Args>(args)...)};
}

constexpr std::array kDTypes = {DType::f32, DType::f16, DType::bf16, DType::f64};

std::vector<std::string_view> option_keys(bool flags) {
  std::vector<std::string_view> keys;
  for (const OptionRow& option : options()) {
    if (option.is_flag == flags) keys.push_back(option.key);
  }
  return keys;
}

// All words without a value.
std::vector<std::string_view> plain_words() {
  std::vector<std::string_view> all;
  for (const Op op : kAllOps) all.push_back(name(op));
  for (const std::string_view key : option_keys(true)) all.push_back(key);
  for (const DType dtype : kDTypes) all.push_back(name(dtype));
  return all;
}

bool parse_shape(std::string_view text, std::vector<std::int64_t>& shape) {
  shape.clear();
  while (true) {
    const std::size_t x = text.find('x');
    std::int64_t extent = 0;
    if (!parse_number(text.substr(0, x), extent)) return false;
    shape.push_back(extent);
    if (x == std::string_view::npos) return true;
    text.remove_prefix(x + 1);
  }
}

// Also tells what the word says: the key of an option, or "op", "shape", "dtype".
Status parse_word(std::string_view word, Case& c, std::string_view& says) {
  if (const std::size_t equals = word.find('='); equals != std::string_view::npos) {
    says = word.substr(0, equals);
    const OptionRow* option = find_option(says);
    if (option == nullptr || option->is_flag) {
      return bad("problem: unknown key in '{}'{}", word, did_you_mean(says, option_keys(false)));
    }
    const std::string_view value = word.substr(equals + 1);
    if (value == "row" && option->per_row != nullptr) {
      c.*option->per_row = true;
      return {};
    }
    return option->read(value, c) ? Status{} : bad("problem: bad value in '{}'", word);
  }
  if (const Op* op = op_named(word)) {
    says = "op";
    c.op = *op;
    return {};
  }
  if (const OptionRow* option = find_option(word); option != nullptr && option->is_flag) {
    says = word;
    option->read({}, c);
    return {};
  }
  if (!word.empty() && word[0] >= '0' && word[0] <= '9') {
    says = "shape";
    return parse_shape(word, c.shape) ? Status{} : bad("problem: bad shape '{}'", word);
  }
  says = "dtype";
  const std::size_t colon = word.find(':');
  if (Status status = parse_dtype(word.substr(0, colon), c.in); !status.ok()) {
    return bad("problem: '{}' is no op, shape, dtype, flag or key=value{}", word,
               did_you_mean(word, plain_words()));
  }
  c.out = c.in;
  return colon == std::string_view::npos ? Status{} : parse_dtype(word.substr(colon + 1), c.out);
}

// Elements that the arrays span, padding included; not an integer, as it may be more
// than those count.
double spanned(const Case& c) {
  double rows = 1;
  for (const std::int64_t extent : c.shape)
    rows *= static_cast<double>(std::max<std::int64_t>(extent, 1));
  const auto last = static_cast<double>(std::max<std::int64_t>(c.shape.back(), 1));
  rows /= last;
  const auto pad = static_cast<double>(c.pad), step = static_cast<double>(c.step);
  const auto offsets =
      static_cast<double>(c.offset) + static_cast<double>(std::max<std::int64_t>(c.out_offset, 0));
  double elements = rows * (last * step + pad + static_cast<double>(c.k)) + offsets;
  if (attends(c.op)) {
    const double keys = static_cast<double>(c.keys) + static_cast<double>(c.page);
    const double heads = static_cast<double>(std::max(c.kv_heads, c.shape[1]));
    const double dims = last + static_cast<double>(c.dim_v) + 2 * pad;
    elements += static_cast<double>(c.shape[0]) * heads * keys * dims;
    elements *= 1 + static_cast<double>(c.dim_v) / std::max(last, 1.0);
    if (c.op == Op::attention_backward) elements *= 2;
  }
  return elements;
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
  const std::int64_t at = axis_index();
  if (at >= 0 && at < static_cast<std::int64_t>(shape.size())) outer.erase(outer.begin() + at);
  return outer;
}

std::string to_string(const Case& c) {
  const Case usual = usual_case(c);
  std::string text = fmt::format("{} {} {}", name(c.op), fmt::join(c.shape, "x"), name(c.in));
  if (c.out != c.in) text += fmt::format(":{}", name(c.out));
  for (const OptionRow& option : options()) {
    const std::string value = option.text(c, usual);
    if (value.empty()) continue;
    text += fmt::format(" {}", option.key);
    if (!option.is_flag) text += "=" + value;
  }
  return text;
}

Status parse_dtype(std::string_view text, DType& out) {
  for (const DType dtype : kDTypes) {
    if (name(dtype) == text) {
      out = dtype;
      return {};
    }
  }
  return bad("dtype: '{}' is not one of f32, f16, bf16, f64", text);
}

Status parse_op(std::string_view text, Op& out) {
  if (const Op* op = op_named(text)) {
    out = *op;
    return {};
  }
  std::vector<std::string_view> ops;
  for (const Op op : kAllOps) ops.push_back(name(op));
  return bad("op: there is no '{}'{}", text, did_you_mean(text, ops));
}

Status parse_case(std::string_view text, Case& out) {
  Case c{.op = out.op};
  std::istringstream words{std::string(text)};
  std::set<std::string, std::less<>> said;
  for (std::string word; words >> word;) {
    std::string_view says;
    if (Status status = parse_word(word, c, says); !status.ok()) return status;
    if (!said.emplace(says).second) {
      return bad("problem: '{}' gives the {} a second time", word, says);
    }
  }
  if (!said.contains("shape")) return bad("problem: '{}' has no shape such as 4096x4096", text);
  const auto rank = static_cast<int>(c.shape.size());
  if (rank > kMaxRank)
    return bad("problem: a shape of {} dimensions, at most {} go", rank, kMaxRank);
  if (c.axis < -rank || c.axis >= rank) {
    return bad("problem: axis {} is outside a shape of {} dimensions", c.axis, rank);
  }
  std::int64_t elements = 1;
  for (const std::int64_t extent : c.shape) {
    // A 0 does not hide what the other extents come to: they are rows.
    if (extent < 0 ||
        __builtin_mul_overflow(elements, std::max<std::int64_t>(extent, 1), &elements)) {
      return bad("problem: shape {} is negative or too large", fmt::join(c.shape, "x"));
    }
  }
  if (attends(c.op)) {
    if (Status status = complete_attention(said.contains("scale"), c); !status.ok()) return status;
  }
  if (spanned(c) > 0x1p62) return bad("problem: '{}' spans more elements than 2^62", text);
  // A variant that no op has is reported by whoever runs the case.
  if (const Variant* variant = find_variant(c.op, c.variant)) c.device = variant->device;
  out = c;
  return {};
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

Status machine_of(const Case& c, Machine& out) {
  if (c.device == Device::cuda) return this_gpu(out);
  out = this_host(c.threads);
  return {};
}

Context context_of(const Case& c) {
  return c.device == Device::cuda ? Context::cuda() : Context::cpu(c.threads);
}

}  // namespace onepass::cli
