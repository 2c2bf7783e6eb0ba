// Python's values as the library's options. Each reader names the argument when it cannot be read.
#pragma once

#include <initializer_list>
#include <string_view>

#include "call.hpp"
#include "onepass/options.hpp"
#include "onepass/select.hpp"

namespace onepass::python {

double number(std::string_view argument, nb::handle given);
std::int64_t integer(std::string_view argument, nb::handle given);
bool flag(std::string_view argument, nb::handle given);
std::string_view text(std::string_view argument, nb::handle given);  // alive as long as `given`

// The position of a word in a list of all that are allowed.
std::size_t choice(std::string_view argument, nb::handle given,
                   std::initializer_list<std::string_view> words);

// A dtype of any library's, or a name such as "f16" or "float16"; None: `otherwise`.
DType dtype(std::string_view argument, nb::handle given, DType otherwise);
DType index_dtype(nb::handle given);

PerRow per_row(Call& call, std::string_view argument, nb::handle given);
PerRowInteger per_row_integer(Call& call, std::string_view argument, nb::handle given);

// (mask, lengths, causal, window), in the order in which the functions of onepass/ pack them, from place `first` on.
struct MaskArguments {
  nb::handle mask, lengths, causal, window;

  explicit MaskArguments(const nb::tuple& packed, std::size_t first = 0);
  Mask read(Call& call) const;
};

// What makes the logits z of x: (scale, temperature, softcap), then what hides them.
struct LogitArguments {
  nb::handle scale, temperature, softcap;
  MaskArguments mask;

  explicit LogitArguments(const nb::tuple& packed)
      : scale(packed[0]), temperature(packed[1]), softcap(packed[2]), mask(packed, 3) {}

  // All structs of options have these fields under the same names.
  template <class Options>
  void read(Call& call, Options& options) const {
    options.scale = per_row(call, "scale", scale);
    options.temperature = per_row(call, "temperature", temperature);
    options.softcap = number("softcap", softcap);
    options.mask = mask.read(call);
  }
};

}  // namespace onepass::python
