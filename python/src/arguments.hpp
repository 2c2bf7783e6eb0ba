// Reads Python values as the library's options. An error names the argument.
#pragma once

#include <initializer_list>
#include <string_view>

#include "call.hpp"
#include "function.hpp"
#include "onepass/options.hpp"
#include "onepass/select.hpp"

namespace onepass::python {

double number(std::string_view argument, nb::handle given);
std::int64_t integer(std::string_view argument, nb::handle given);
int axis_of(const Tensor& x, nb::handle given);
bool flag(std::string_view argument, nb::handle given);
std::string_view text(std::string_view argument, nb::handle given);  // lives as long as `given`

// The position of a word in the list of allowed words.
std::size_t choice(std::string_view argument, nb::handle given,
                   std::initializer_list<std::string_view> words);

// A floating dtype of any library, Python's float, or a name such as "f16", "float16" or "f2";
// None: `otherwise`.
DType dtype(std::string_view argument, nb::handle given, DType otherwise);
DType index_dtype(nb::handle given);

PerRow per_row(Call& call, std::string_view argument, nb::handle given);
PerRowInteger per_row_integer(Call& call, std::string_view argument, nb::handle given);
// The 64 bits of a seed or an offset: −2^63 to 2^64 − 1, or an array of any 64-bit integers.
PerRowInteger per_row_bits(Call& call, std::string_view argument, nb::handle given);

// The masking arguments, in the order that all functions share.
struct MaskArguments {
  nb::handle mask, lengths, causal, window;

  static Names names() { return {"mask", "lengths", "causal", "window"}; }
  static MaskArguments next(Arguments& given) {
    return {given.next(), given.next(), given.next(), given.next()};
  }
  Mask read(Call& call) const;
};

// The arguments that make the logits z from x.
struct LogitArguments {
  nb::handle scale, temperature, softcap;
  MaskArguments mask;

  static Names names() { return {"scale", "temperature", "softcap", MaskArguments::names()}; }
  static LogitArguments next(Arguments& given) {
    return {given.next(), given.next(), given.next(), MaskArguments::next(given)};
  }

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
