#include "cli/problem/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "cli/problem/sequences.hpp"
#include "cli/problem/words.hpp"

namespace onepass::cli {
namespace {

// ---- Kinds of options, each of which makes a row -----------------------------------------------

template <auto Field>
std::string unless_usual(const Case& c, const Case& usual) {
  return c.*Field == usual.*Field ? "" : fmt::format("{}", c.*Field);
}

// At least the number that is given, if one is.
template <auto Field, int... Least>
constexpr OptionRow number(std::string_view key, std::string_view examples) {
  return {key, false,
          [](std::string_view value, Case& c) {
            return parse_number(value, c.*Field) && ((c.*Field >= Least) && ...);
          },
          unless_usual<Field>, examples};
}

// "row" for a value of each row, drawn at random; else one value for all.
template <double Case::*Field, bool Case::*Rows>
constexpr OptionRow number_or_rows(std::string_view key) {
  return {key, false,
          [](std::string_view value, Case& c) {
            c.*Rows = value == "row";
            return c.*Rows || parse_number(value, c.*Field);
          },
          [](const Case& c, const Case& usual) {
            return c.*Rows ? "row" : unless_usual<Field>(c, usual);
          },
          "row 0.5 -2"};
}

template <std::string Case::*Field>
constexpr OptionRow name_of(std::string_view key, std::string_view examples) {
  return {key, false, [](std::string_view value, Case& c) { return !(c.*Field = value).empty(); },
          unless_usual<Field>, examples};
}

template <class Value>
struct Named {
  std::string_view name;
  Value value;
};

template <class Value, std::size_t Count>
std::string_view name_in(const Named<Value> (&names)[Count], Value value) {
  for (const Named<Value>& each : names) {
    if (each.value == value) return each.name;
  }
  return "?";
}

template <class Value, std::size_t Count>
bool find_in(const Named<Value> (&names)[Count], std::string_view name, Value& value) {
  for (const Named<Value>& each : names) {
    if (each.name != name) continue;
    value = each.value;
    return true;
  }
  return false;
}

template <auto Field, const auto& Names>
constexpr OptionRow one_of(std::string_view key, std::string_view examples) {
  return {key, false,
          [](std::string_view value, Case& c) { return find_in(Names, value, c.*Field); },
          [](const Case& c, const Case& usual) -> std::string {
            return c.*Field == usual.*Field ? "" : std::string(name_in(Names, c.*Field));
          },
          examples};
}

template <bool Case::*Field>
bool set(std::string_view, Case& c) {
  return c.*Field = true;
}

template <bool Case::*Field>
constexpr OptionRow flag(std::string_view key) {
  return {key, true, set<Field>,
          [](const Case& c, const Case&) -> std::string { return c.*Field ? "set" : ""; }, ""};
}

// A flag that is printed as a part of another option.
template <bool Case::*Field>
constexpr OptionRow short_for(std::string_view key) {
  return {key, true, set<Field>, [](const Case&, const Case&) { return std::string(); }, ""};
}

// ---- What some of them may be ------------------------------------------------------------------

constexpr Named<bool Case::*> kMasks[] = {{"additive", &Case::additive},
                                          {"boolean", &Case::boolean},
                                          {"lengths", &Case::lengths},
                                          {"causal", &Case::causal}};

bool read_mask(std::string_view text, Case& c) {
  while (true) {
    const std::size_t plus = text.find('+');
    bool Case::*mask = nullptr;
    if (!find_in(kMasks, text.substr(0, plus), mask)) return false;
    c.*mask = true;
    if (plus == std::string_view::npos) return true;
    text.remove_prefix(plus + 1);
  }
}

std::string mask_text(const Case& c, const Case&) {
  std::vector<std::string_view> masks;
  for (const auto& [name, mask] : kMasks) {
    if (c.*mask) masks.push_back(name);
  }
  return fmt::format("{}", fmt::join(masks, "+"));
}

bool read_window(std::string_view text, Case& c) {
  const std::size_t comma = text.find(',');
  return comma != std::string_view::npos && parse_number(text.substr(0, comma), c.window_left) &&
         parse_number(text.substr(comma + 1), c.window_right) && c.window_left >= -1 &&
         c.window_right >= -1;
}

std::string window_text(const Case& c, const Case&) {
  const bool any = c.window_left >= 0 || c.window_right >= 0;
  return any ? fmt::format("{},{}", c.window_left, c.window_right) : "";
}

constexpr Named<Reduction> kReductions[] = {
    {"none", Reduction::none}, {"sum", Reduction::sum}, {"mean", Reduction::mean}};

constexpr Named<TopkValues> kValues[] = {{"probability", TopkValues::probability},
                                         {"log_probability", TopkValues::log_probability},
                                         {"logit", TopkValues::logit},
                                         {"renormalized", TopkValues::renormalized}};

constexpr Named<DType> kIndices[] = {{"i32", DType::i32}, {"i64", DType::i64}};
constexpr Named<GateScore> kScores[] = {{"softmax", GateScore::softmax},
                                        {"sigmoid", GateScore::sigmoid}};
constexpr Named<Device> kDevices[] = {{"cpu", Device::cpu}, {"cuda", Device::cuda}};

bool read_seed(std::string_view text, Case& c) { return parse_bits(text, c.seed); }

// ---- The table ---------------------------------------------------------------------------------

constexpr OptionRow kOptions[] = {
    number<&Case::axis>("axis", "0 -2"),
    number<&Case::keys, 0>("keys", "0 7"),
    number<&Case::kv_heads, 0>("kv_heads", "0 2"),
    number_or_rows<&Case::scale, &Case::scale_rows>("scale"),
    number_or_rows<&Case::temperature, &Case::temperature_rows>("temperature"),
    number<&Case::softcap>("softcap", "30 0.5"),
    {"mask", false, read_mask, mask_text, "additive boolean+causal lengths"},
    flag<&Case::broadcast>("broadcast"),
    {"window", false, read_window, window_text, "3,0 -1,2"},
    flag<&Case::lse>("lse"),

    // Cross-entropy.
    number<&Case::smoothing>("smoothing", "0.1"),
    number<&Case::z_loss>("z_loss", "0.0001"),
    flag<&Case::ignore>("ignore"),
    flag<&Case::weights>("weights"),
    flag<&Case::probabilities>("probabilities"),
    flag<&Case::loss>("loss"),
    one_of<&Case::reduction, kReductions>("reduction", "sum mean"),

    // Select.
    number<&Case::k, 0>("k", "0 3"),
    one_of<&Case::values, kValues>("values", "log_probability logit renormalized"),
    flag<&Case::unsorted>("unsorted"),
    flag<&Case::target>("target"),
    one_of<&Case::index, kIndices>("index", "i32"),
    number<&Case::top_k>("top_k", "5 -1"),
    number<&Case::top_p>("top_p", "0.9"),
    number<&Case::min_p>("min_p", "0.05"),
    one_of<&Case::score, kScores>("score", "sigmoid"),
    flag<&Case::bias>("bias"),
    flag<&Case::renormalize>("renormalize"),

    // Attention.
    flag<&Case::alibi>("alibi"),
    flag<&Case::sinks>("sinks"),
    flag<&Case::ragged>("offsets"),
    number<&Case::page, 1>("page", "16"),
    number<&Case::split, 1>("split", "64"),
    flag<&Case::bshd>("bshd"),

    // Where the arrays lie.
    flag<&Case::in_place>("in_place"),
    flag<&Case::batch_invariant>("batch_invariant"),
    number<&Case::pad, 0>("pad", "3"),
    number<&Case::step, 1>("step", "2"),
    number<&Case::offset, 0>("offset", "1"),
    number<&Case::out_offset, 0>("out_offset", "0 4"),

    // What runs, and on what.
    name_of<&Case::variant>("variant", "cpu_row no_such"),
    one_of<&Case::device, kDevices>("device", "cuda"),
    name_of<&Case::isa>("isa", "AVX2"),
    number<&Case::threads, 0>("threads", "2"),
    name_of<&Case::fill>("fill", "nan"),
    {"seed", false, read_seed, unless_usual<&Case::seed>, "0 18446744073709551615 -1 0x1F"},

    short_for<&Case::causal>("causal"),
    short_for<&Case::lengths>("lengths"),
};

}  // namespace

std::span<const OptionRow> options() { return kOptions; }

Case usual_case(const Case& c) {
  Case usual{.op = c.op, .shape = c.shape, .in = c.in, .out = c.out};
  if (c.op != Op::attention) return usual;
  usual.keys = c.shape[2];
  usual.kv_heads = c.shape[1];
  usual.scale = usual_scale(c);
  return usual;
}

bool parse_values(std::string_view text, TopkValues& out) { return find_in(kValues, text, out); }

}  // namespace onepass::cli
