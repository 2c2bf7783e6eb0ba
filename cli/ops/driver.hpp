// What the program has to know of an op to call it, as values: all else is the same for every op.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/ops/arrays.hpp"
#include "cli/problem/case.hpp"
#include "cli/problem/fill.hpp"
#include "onepass/context.hpp"

namespace onepass::cli {

class Call;
struct Sink;

struct Driver {
  // What these ops cannot be asked for; null: nothing.
  Status (*check)(const Case& c);

  std::vector<ArraySpec> (*arrays)(const Case& c);
  void (*fill)(Call& call, Random& random);

  // Through the public API.
  Status (*run)(const Context& context, const Case& c, const Tensors& t, std::string_view variant,
                Plan* plan);
  // What the library finds out of such a call before it plans. Looks at no memory.
  Status (*describe)(const Case& c, const Tensors& t, Problem& out);

  // What some rows must be; of what all rows are reduced to, that.
  void (*expect)(const Call& call, std::span<const std::int64_t> rows, const Sink& sink);
  // Where several answers are right: what is wrong with a row's, in words. Else null.
  std::string (*wrong_row)(const Call& call, std::int64_t row);

  // Null: moving bytes is all that takes time.
  double (*flops)(const Case& c);

  std::span<const std::string_view> quick;  // problems that `onepass verify` begins with
};

const Driver& driver_of(Op op);

// Those of each family, which driver_of() chooses from.
extern const Driver softmax_driver, loss_driver, select_driver, attention_driver,
    attention_backward_driver;

}  // namespace onepass::cli
