#include "cli/problem/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <type_traits>
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
constexpr OptionRow number(std::string_view key, std::string_view examples, std::string_view help) {
  constexpr bool whole = std::is_integral_v<std::remove_cvref_t<decltype(Case().*Field)>>;
  return {
      .key = key,
      .read = [](std::string_view value,
                 Case& c) { return parse_number(value, c.*Field) && ((c.*Field >= Least) && ...); },
      .text = unless_usual<Field>,
      .examples = examples,
      .help = help,
      .form =
          [] { return (std::string(whole ? "INT" : "FLOAT") + ... + fmt::format(">={}", Least)); }};
}

// One number for all rows, or one for each.
template <double Case::*Field, bool Case::*Rows>
constexpr OptionRow number_or_rows(std::string_view key, std::string_view help) {
  OptionRow row = number<Field>(key, "row 0.5 -2", help);
  row.text = [](const Case& c, const Case& usual) {
    return c.*Rows ? "row" : unless_usual<Field>(c, usual);
  };
  row.per_row = Rows;
  return row;
}

template <std::uint64_t Case::*Field>
constexpr OptionRow bits(std::string_view key, std::string_view examples, std::string_view help) {
  return {.key = key,
          .read = [](std::string_view value, Case& c) { return parse_bits(value, c.*Field); },
          .text = unless_usual<Field>,
          .examples = examples,
          .help = help,
          .form = [] { return std::string("INT64|0xHEX"); }};
}

template <std::string Case::*Field>
constexpr OptionRow name_of(std::string_view key, std::string_view examples,
                            std::string_view help) {
  return {.key = key,
          .read = [](std::string_view value, Case& c) { return !(c.*Field = value).empty(); },
          .text = unless_usual<Field>,
          .examples = examples,
          .help = help,
          .form = [] { return std::string("TEXT"); }};
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

template <const auto& Names>
std::string any_of() {
  std::string all;
  for (const auto& each : Names) all += fmt::format("{}{}", all.empty() ? "" : "|", each.name);
  return all;
}

template <auto Field, const auto& Names>
constexpr OptionRow one_of(std::string_view key, std::string_view examples, std::string_view help) {
  return {.key = key,
          .read = [](std::string_view value, Case& c) { return find_in(Names, value, c.*Field); },
          .text = [](const Case& c, const Case& usual) -> std::string {
            return c.*Field == usual.*Field ? "" : std::string(name_in(Names, c.*Field));
          },
          .examples = examples,
          .help = help,
          .form = any_of<Names>};
}

template <bool Case::*Field>
constexpr OptionRow flag(std::string_view key, std::string_view help) {
  return {.key = key,
          .is_flag = true,
          .read = [](std::string_view, Case& c) { return c.*Field = true; },
          .text = [](const Case& c, const Case&) -> std::string { return c.*Field ? "set" : ""; },
          .help = help};
}

// A flag that is printed as a part of another option.
template <bool Case::*Field>
constexpr OptionRow short_for(std::string_view key, std::string_view help) {
  OptionRow row = flag<Field>(key, help);
  row.text = [](const Case&, const Case&) { return std::string(); };
  return row;
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

// ---- The table ---------------------------------------------------------------------------------

constexpr OptionRow kOptions[] = {
    number<&Case::axis>("axis", "0 -2", "take rows along this axis; −1 is the last"),
    number<&Case::keys, 0>("keys", "0 7", "keys per sequence; as many as queries if left out"),
    number<&Case::kv_heads, 0>("kv_heads", "0 2", "heads of k and v; as many as of q if left out"),
    number<&Case::dim_v, 0>("dim_v", "16 24", "dim of v and o; as of q if left out"),
    number_or_rows<&Case::scale, &Case::scale_rows>("scale",
                                                    "multiply x by this, before the softcap"),
    number_or_rows<&Case::temperature, &Case::temperature_rows>(
        "temperature", "divide by this, after the softcap"),
    number<&Case::softcap>("softcap", "30 0.5", "map logits v to cap·tanh(v/cap); 0: no cap"),
    {.key = "mask",
     .read = read_mask,
     .text = mask_text,
     .examples = "additive boolean+causal lengths",
     .help = "mask by a tensor, by lengths or causally; join several by +",
     .form = any_of<kMasks>},
    flag<&Case::broadcast>("broadcast", "share one row of a tensor mask among all rows"),
    {.key = "window",
     .read = read_window,
     .text = window_text,
     .examples = "3,0 -1,2",
     .help = "keep this many keys before and after each query; −1: all",
     .form = [] { return std::string("LEFT,RIGHT"); }},
    flag<&Case::lse>("lse", "also give the logsumexp of each row"),

    // Cross-entropy.
    number<&Case::smoothing>("smoothing", "0.1", "smooth labels by this, from 0 to 1"),
    number<&Case::z_loss>("z_loss", "0.0001", "add this times the squared logsumexp to the loss"),
    flag<&Case::ignore>("ignore", "give some rows the target that is ignored"),
    flag<&Case::weights>("weights", "weight the classes"),
    flag<&Case::probabilities>("probabilities", "take probabilities of the classes as targets"),
    flag<&Case::loss>("loss", "give the loss beside its gradient"),
    one_of<&Case::reduction, kReductions>("reduction", "sum mean", "reduce the losses of all rows"),

    // Select.
    number<&Case::k, 0>("k", "0 3", "choose this many elements per row"),
    one_of<&Case::values, kValues>("values", "log_probability logit renormalized",
                                   "return this of each element chosen"),
    flag<&Case::unsorted>("unsorted", "order by index, not from the largest down"),
    flag<&Case::target>("target", "also give the log-probability and rank of a target per row"),
    one_of<&Case::index, kIndices>("index", "i32", "write indices in this type"),
    number<&Case::top_k>("top_k", "5 -1", "draw from the k likeliest; 0: from all"),
    number<&Case::top_p>("top_p", "0.9",
                         "draw from as few of the likeliest as add up to this probability"),
    number<&Case::min_p>("min_p", "0.05",
                         "draw from those with at least this part of the likeliest's probability"),
    bits<&Case::draw>("draw", "3 -1", "take the draw of this number; a seed makes 2^64 of them"),
    one_of<&Case::score, kScores>("score", "sigmoid",
                                  "score experts by this function of their logits"),
    flag<&Case::bias>("bias", "choose experts by score plus a bias"),
    flag<&Case::renormalize>("renormalize", "scale the chosen experts' weights to add up to 1"),

    // Attention.
    flag<&Case::alibi>("alibi", "add ALiBi slopes, one per head"),
    flag<&Case::sinks>("sinks", "add attention sinks, one per head"),
    flag<&Case::ragged>("offsets", "pack sequences of different lengths (varlen)"),
    number<&Case::page, 1>("page", "16", "keys per page; contiguous if left out"),
    number<&Case::split, 1>("split", "64", "cut keys into parts of this many (split-KV)"),
    flag<&Case::bshd>("bshd", "lay tensors out as batch × sequence × heads × dim"),
    flag<&Case::d_lse>("d_lse", "give attention_backward a gradient of the logsumexp"),
    flag<&Case::d_sinks>("d_sinks", "also give the gradient of the sinks"),
    flag<&Case::d_additive>("d_additive", "also give the gradient of the additive mask"),
    flag<&Case::accumulate>("accumulate", "add to the gradients that are there"),

    // Where the arrays lie.
    flag<&Case::in_place>("in_place", "write over the input"),
    flag<&Case::batch_invariant>("batch_invariant",
                                 "keep the bits of a row the same in any number of rows"),
    number<&Case::pad, 0>("pad", "3", "leave this many elements between rows"),
    number<&Case::step, 1>("step", "2", "stride of the last dimension"),
    number<&Case::offset, 0>("offset", "1", "start this many elements past an aligned address"),
    number<&Case::out_offset, 0>("out_offset", "0 4",
                                 "the same for the output; as the input if left out"),

    // What runs, and on what.
    name_of<&Case::variant>("variant", "cpu_row no_such", "force a variant; see onepass list"),
    one_of<&Case::device, kDevices>("device", "cuda", "run on this device"),
    name_of<&Case::isa>("isa", "AVX2", "use this instruction set; the CPU's best if left out"),
    number<&Case::threads, 0>("threads", "2", "use this many threads; 0: all"),
    name_of<&Case::fill>("fill", "nan", "fill the inputs with these values"),
    bits<&Case::seed>("seed", "0 18446744073709551615 -1 0x1F",
                      "seed random numbers with these 64 bits"),

    short_for<&Case::causal>("causal", "hide keys past each query's own"),
    short_for<&Case::lengths>("lengths", "hide keys past a length, one per row"),
};

}  // namespace

std::span<const OptionRow> options() { return kOptions; }

const OptionRow* find_option(std::string_view key) {
  for (const OptionRow& option : kOptions) {
    if (option.key == key) return &option;
  }
  return nullptr;
}

Case usual_case(const Case& c) {
  Case usual{.op = c.op, .shape = c.shape, .in = c.in, .out = c.out};
  if (!attends(c.op)) return usual;
  usual.keys = c.shape[2];
  usual.kv_heads = c.shape[1];
  usual.dim_v = c.shape[3];
  usual.scale = usual_scale(c);
  return usual;
}

std::string_view name(TopkValues values) { return name_in(kValues, values); }

}  // namespace onepass::cli
