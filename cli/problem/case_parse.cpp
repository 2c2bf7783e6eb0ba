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

template <class Number>
bool parse_number(std::string_view text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
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

// "row" for a value a row, else one value for all.
bool parse_per_row(std::string_view text, double& value, bool& rows) {
  rows = text == "row";
  return rows || parse_number(text, value);
}

bool parse_mask(std::string_view text, Case& c) {
  while (true) {
    const std::size_t plus = text.find('+');
    const std::string_view part = text.substr(0, plus);
    if (part == "additive") {
      c.additive = true;
    } else if (part == "boolean") {
      c.boolean = true;
    } else if (part == "lengths") {
      c.lengths = true;
    } else if (part == "causal") {
      c.causal = true;
    } else {
      return false;
    }
    if (plus == std::string_view::npos) return true;
    text.remove_prefix(plus + 1);
  }
}

bool parse_window(std::string_view text, Case& c) {
  const std::size_t comma = text.find(',');
  return comma != std::string_view::npos && parse_number(text.substr(0, comma), c.window_left) &&
         parse_number(text.substr(comma + 1), c.window_right) && c.window_left >= -1 &&
         c.window_right >= -1;
}

bool parse_reduction(std::string_view text, Reduction& out) {
  if (text == "none") out = Reduction::none;
  if (text == "sum") out = Reduction::sum;
  if (text == "mean") out = Reduction::mean;
  return text == "none" || text == "sum" || text == "mean";
}

bool parse_index(std::string_view text, DType& out) {
  out = text == "i32" ? DType::i32 : DType::i64;
  return text == "i32" || text == "i64";
}

bool parse_score(std::string_view text, GateScore& out) {
  out = text == "sigmoid" ? GateScore::sigmoid : GateScore::softmax;
  return text == "sigmoid" || text == "softmax";
}

constexpr std::pair<std::string_view, TopkValues> kValues[] = {
    {"probability", TopkValues::probability},
    {"log_probability", TopkValues::log_probability},
    {"logit", TopkValues::logit},
    {"renormalized", TopkValues::renormalized}};

// Sets one `key=value`; false when the value does not parse. An unknown key sets `known` to false.
bool set_option(std::string_view key, std::string_view value, Case& c, bool& known) {
  known = true;
  if (key == "axis") return parse_number(value, c.axis);
  if (key == "scale") return parse_per_row(value, c.scale, c.scale_rows);
  if (key == "temperature") return parse_per_row(value, c.temperature, c.temperature_rows);
  if (key == "softcap") return parse_number(value, c.softcap);
  if (key == "mask") return parse_mask(value, c);
  if (key == "window") return parse_window(value, c);
  if (key == "smoothing") return parse_number(value, c.smoothing);
  if (key == "z_loss") return parse_number(value, c.z_loss);
  if (key == "reduction") return parse_reduction(value, c.reduction);
  if (key == "k") return parse_number(value, c.k) && c.k >= 0;
  if (key == "values") return parse_values(value, c.values);
  if (key == "index") return parse_index(value, c.index);
  if (key == "top_k") return parse_number(value, c.top_k);
  if (key == "top_p") return parse_number(value, c.top_p);
  if (key == "min_p") return parse_number(value, c.min_p);
  if (key == "score") return parse_score(value, c.score);
  if (key == "keys") return parse_number(value, c.keys) && c.keys >= 0;
  if (key == "kv_heads") return parse_number(value, c.kv_heads) && c.kv_heads >= 0;
  if (key == "page") return parse_number(value, c.page) && c.page >= 1;
  if (key == "split") return parse_number(value, c.split) && c.split >= 1;
  if (key == "pad") return parse_number(value, c.pad) && c.pad >= 0;
  if (key == "step") return parse_number(value, c.step) && c.step >= 1;
  if (key == "offset") return parse_number(value, c.offset) && c.offset >= 0;
  if (key == "out_offset") return parse_number(value, c.out_offset) && c.out_offset >= 0;
  if (key == "threads") return parse_number(value, c.threads) && c.threads >= 0;
  if (key == "seed") return parse_bits(value, c.seed);
  if (key == "fill") return !(c.fill = value).empty();
  if (key == "variant") return !(c.variant = value).empty();
  if (key == "device") {
    c.device = value == "cuda" ? Device::cuda : Device::cpu;
    return value == "cuda" || value == "cpu";
  }
  if (key == "isa") return !(c.isa = value).empty();
  known = false;
  return false;
}

constexpr std::pair<std::string_view, bool Case::*> kFlags[] = {
    {"lse", &Case::lse},
    {"in_place", &Case::in_place},
    {"batch_invariant", &Case::batch_invariant},
    {"ignore", &Case::ignore},
    {"weights", &Case::weights},
    {"probabilities", &Case::probabilities},
    {"loss", &Case::loss},
    {"unsorted", &Case::unsorted},
    {"target", &Case::target},
    {"bias", &Case::bias},
    {"renormalize", &Case::renormalize},
    {"broadcast", &Case::broadcast},
    {"causal", &Case::causal},
    {"lengths", &Case::lengths},
    {"alibi", &Case::alibi},
    {"sinks", &Case::sinks},
    {"offsets", &Case::ragged},
    {"bshd", &Case::bshd},
};

bool set_flag(std::string_view word, Case& c) {
  for (const auto& [name, flag] : kFlags) {
    if (name == word) return c.*flag = true;
  }
  return false;
}

constexpr std::string_view kKeys[] = {"axis",   "scale",     "temperature", "softcap",    "mask",
                                      "window", "smoothing", "z_loss",      "reduction",  "k",
                                      "values", "index",     "top_k",       "top_p",      "min_p",
                                      "score",  "keys",      "kv_heads",    "page",       "split",
                                      "pad",    "step",      "offset",      "out_offset", "threads",
                                      "seed",   "fill",      "variant",     "device",     "isa"};

// All words without a value.
std::vector<std::string_view> plain_words() {
  std::vector<std::string_view> all;
  for (const Op op : kAllOps) all.push_back(name(op));
  for (const auto& [word, flag] : kFlags) all.push_back(word);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    all.push_back(name(dtype));
  }
  return all;
}

// What a word says of a problem: its key, or what a word without one stands for.
std::string_view said_by(std::string_view word) {
  if (const std::size_t equals = word.find('='); equals != std::string_view::npos) {
    return word.substr(0, equals);
  }
  if (op_named(word)) return "op";
  if (Case flags; set_flag(word, flags)) return word;
  return !word.empty() && word[0] >= '0' && word[0] <= '9' ? "shape" : "dtype";
}

Status parse_word(std::string_view word, bool& has_shape, Case& c) {
  if (const std::size_t equals = word.find('='); equals != std::string_view::npos) {
    bool known = false;
    if (set_option(word.substr(0, equals), word.substr(equals + 1), c, known)) return {};
    return known ? bad("problem: bad value in '{}'", word)
                 : bad("problem: unknown key in '{}'{}", word,
                       did_you_mean(word.substr(0, equals), kKeys));
  }
  if (const auto op = op_named(word)) {
    c.op = *op;
    return {};
  }
  if (set_flag(word, c)) return {};
  if (!word.empty() && word[0] >= '0' && word[0] <= '9') {
    has_shape = true;
    return parse_shape(word, c.shape) ? Status{} : bad("problem: bad shape '{}'", word);
  }
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
  if (c.op == Op::attention) {
    const double keys = static_cast<double>(c.keys) + static_cast<double>(c.page);
    const double heads = static_cast<double>(std::max(c.kv_heads, c.shape[1]));
    elements += static_cast<double>(c.shape[0]) * heads * keys * (last + pad);
  }
  return elements;
}

}  // namespace

std::string_view name(TopkValues values) {
  for (const auto& [word, each] : kValues) {
    if (each == values) return word;
  }
  return "?";
}

Status parse_dtype(std::string_view text, DType& out) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    if (name(dtype) == text) {
      out = dtype;
      return {};
    }
  }
  return bad("dtype: '{}' is not one of f32, f16, bf16, f64", text);
}

bool parse_bits(std::string_view text, std::uint64_t& out) {
  const bool negative = text.starts_with('-');
  const bool hexadecimal = text.starts_with("0x");
  text.remove_prefix(hexadecimal ? 2 : negative ? 1 : 0);
  std::uint64_t size = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), size, hexadecimal ? 16 : 10);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  if (negative && size > std::uint64_t{1} << 63) return false;
  out = negative ? 0 - size : size;
  return true;
}

bool parse_values(std::string_view text, TopkValues& out) {
  for (const auto& [name, values] : kValues) {
    if (name != text) continue;
    out = values;
    return true;
  }
  return false;
}

Status parse_op(std::string_view text, Op& out) {
  if (const auto op = op_named(text)) {
    out = *op;
    return {};
  }
  std::vector<std::string_view> ops;
  for (const Op op : kAllOps) ops.push_back(name(op));
  return bad("op: there is no '{}'{}", text, did_you_mean(text, ops));
}

Status parse_case(std::string_view text, Case& out) {
  Case c{.op = out.op};
  bool has_shape = false;
  bool has_scale = false;
  std::istringstream words{std::string(text)};
  std::set<std::string, std::less<>> said;
  for (std::string word; words >> word;) {
    has_scale = has_scale || word.starts_with("scale=");
    if (Status status = parse_word(word, has_shape, c); !status.ok()) return status;
    if (!said.emplace(said_by(word)).second) {
      return bad("problem: '{}' gives the {} a second time", word, said_by(word));
    }
  }
  if (!has_shape) return bad("problem: '{}' has no shape such as 4096x4096", text);
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
  if (c.op == Op::attention) {
    if (Status status = complete_attention(has_scale, c); !status.ok()) return status;
  }
  if (spanned(c) > 0x1p62) return bad("problem: '{}' spans more elements than 2^62", text);
  // A variant that no op has is reported by whoever runs the case.
  if (const Variant* variant = find_variant(c.op, c.variant)) c.device = variant->device;
  out = c;
  return {};
}

}  // namespace onepass::cli
