// What the drivers of all row ops share: how their arrays lie, logits, options.
#pragma once

#include <string_view>
#include <vector>

#include "cli/ops/arrays.hpp"
#include "cli/ops/call.hpp"
#include "onepass/options.hpp"

namespace onepass::cli {

Layout in_layout(const Case& c);
Layout out_layout(const Case& c);
DType wide(const Case& c);  // of what a row has one of: f32, or f64 beside f64

template <class Value>
void set_each(GuardedArray& array, Value value) {
  for (std::int64_t i = 0; i < array.size(); ++i) array.set(i, value(i));
}

// Scales, temperatures and masks.
void add_logits(const Case& c, std::vector<ArraySpec>& all);
void fill_logits(Call& call, Random& random);

// Normal numbers times `size`. Of a dense array, whose elements lie in one run, a block of
// them is repeated.
void fill_normal(GuardedArray& array, double size, bool dense, Random& random);

// Values of the case's fill.
void fill_x(Call& call, array::Id x, Random& random);
// Indices of classes, some of them kIgnore where the case says so.
void fill_targets(Call& call, Random& random);

// Row r of an array of x's shape.
oracle::Row row_of(const Call& call, array::Id id, std::int64_t r);

Mask mask_of(const Case& c, const Tensors& t);
PerRow scale_of(const Case& c, const Tensors& t);
PerRow temperature_of(const Case& c, const Tensors& t);

template <class Options>
Options row_options(const Case& c, const Tensors& t, std::string_view variant, Plan* plan) {
  Options options;
  options.axis = c.axis;
  options.scale = scale_of(c, t);
  options.temperature = temperature_of(c, t);
  options.softcap = c.softcap;
  options.mask = mask_of(c, t);
  options.variant = variant;
  options.plan = plan;
  options.batch_invariant = c.batch_invariant;
  return options;
}

inline constexpr std::string_view kQuickRows[] = {
    "8x257 f32",
    "5x1000 f16",
    "3x4099 bf16:f32",
    "4x300 f64",
    "2x3x65 f32 axis=1",
    "7x129 f32 mask=additive+boolean temperature=row softcap=30",
    "2x33x70 f16 mask=causal+lengths",
    "3x20x50 bf16 window=7,2",
    "6x2500 f32 pad=3 offset=1",
    "4x600 f32 step=2 in_place",
};

}  // namespace onepass::cli
