// A call's tensors before, between and after its runs.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "fuzz/arguments.hpp"
#include "fuzz/target.hpp"

namespace onepass::fuzz {
namespace {

std::uint64_t bits_of(double value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

}  // namespace

std::int64_t Argument::place(std::int64_t index) const {
  if (in_order) return index;
  const Tensor& t = meant->tensor();
  std::int64_t place = 0;
  for (int d = t.rank - 1; d >= 0; --d) {
    const auto at = static_cast<std::size_t>(d);
    place += index % t.shape[at] * steps[at];
    index /= t.shape[at];
  }
  return place;
}

Argument* Arguments::find(std::string_view name) {
  const auto found = std::ranges::find(all, name, &Argument::name);
  return found == all.end() ? nullptr : &*found;
}

Tensor Arguments::operator[](std::string_view name) {
  const Argument* argument = find(name);
  return argument == nullptr ? Tensor{} : argument->shown;
}

Status prepare(Arguments& arguments) {
  for (Argument& a : arguments.all) {
    a.shown = a.array.tensor_on(device);
    if (a.written && !a.kept) {
      a.array.poison();
    } else if (a.meant != nullptr) {
      for (std::int64_t i = 0; i < a.meant->size(); ++i) {
        double value = a.meant->get(i);
        const bool ignored = a.name == "target" && value == static_cast<double>(cli::kIgnore);
        if (ignored) value = static_cast<double>(arguments.options.ignore_index);
        a.array.set(a.place(i), value);
        if (!ignored) a.meant->set(i, a.array.get(a.place(i)));  // as it was rounded
      }
    }
    if (device == Device::cpu) continue;
    if (Status status = a.array.upload(); !status.ok()) return status;
  }
  return {};
}

Status fetch(Arguments& arguments) {
  if (device == Device::cpu) return {};
  if (Status status = gpu::synchronize(); !status.ok()) return status;
  for (Argument& a : arguments.all) {
    if (Status status = a.array.download(); !status.ok()) return status;
  }
  return {};
}

void settle(Arguments& arguments) {
  for (Argument& a : arguments.all) {
    for (std::int64_t i = 0; a.written && i < a.meant->size(); ++i)
      a.meant->set(i, a.array.get(a.place(i)));
  }
}

std::string changed(const Arguments& arguments, Outcome outcome) {
  for (const Argument& a : arguments.all) {
    if (!a.array.intact()) return fmt::format("{}: bytes beside the elements were written", a.name);
    if (a.meant == nullptr || outcome == (a.written ? Outcome::ran : Outcome::refused_spoilt))
      continue;
    if (a.written && !a.kept) {
      if (!a.array.poisoned()) return fmt::format("{}: written by a call that was refused", a.name);
      continue;
    }
    for (std::int64_t i = 0; i < a.meant->size(); ++i) {
      double meant = a.meant->get(i);
      if (a.name == "target" && meant == static_cast<double>(cli::kIgnore)) {
        meant = static_cast<double>(arguments.options.ignore_index);
      }
      if (bits_of(a.array.get(a.place(i))) != bits_of(meant)) {
        return fmt::format("{}: an input, yet its element {} was written", a.name, i);
      }
    }
  }
  return {};
}

std::string to_string(const Arguments& arguments) {
  std::string text;
  for (const Argument& a : arguments.all) {
    const auto rank = static_cast<std::size_t>(std::clamp(a.shown.rank, 0, kMaxRank));
    text += fmt::format(
        "  {:<14}{} {} [{}] strides [{}] at {}\n", a.name, a.written ? "out" : "in ",
        name(a.shown.dtype), fmt::join(a.shown.shape.begin(), a.shown.shape.begin() + rank, ", "),
        fmt::join(a.shown.strides.begin(), a.shown.strides.begin() + rank, ", "), a.shown.data);
  }
  const Options& o = arguments.options;
  text += fmt::format(
      "  axis {} scale {} temperature {} softcap {} smoothing {} z_loss {} ignore_index {}\n"
      "  top_k {} top_p {} min_p {} seed {} offset {} causal {} window {},{} split {} check_pages "
      "{} deterministic {} variant '{}'\n",
      o.axis, o.scale, o.temperature, o.softcap, o.smoothing, o.z_loss, o.ignore_index, o.top_k,
      o.top_p, o.min_p, o.seed, o.offset, o.causal, o.window_left, o.window_right, o.split,
      o.check_pages, o.deterministic, o.variant);
  return text;
}

}  // namespace onepass::fuzz
