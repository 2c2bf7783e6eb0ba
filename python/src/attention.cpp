// attention, and merge_attention for what it found over different keys.

#include "onepass/attention.hpp"

#include <utility>

#include "arguments.hpp"
#include "ops.hpp"

namespace onepass::python {
namespace {

// "bshd" has tokens before heads, with offsets and in pages, too. The library is told the same memory as "bhsd".
class Layout {
 public:
  explicit Layout(nb::handle given)
      : tokens_first_(choice("layout", given, {"bhsd", "bshd"}) == 1) {}

  template <class View>
  View operator()(View t) const {
    // Another rank is left to the op to report.
    if (tokens_first_ && t.rank >= 3 && t.rank <= kMaxRank) {
      const auto dim = static_cast<std::size_t>(t.rank - 1);
      std::swap(t.shape[dim - 2], t.shape[dim - 1]);
      std::swap(t.strides[dim - 2], t.strides[dim - 1]);
    }
    return t;
  }

 private:
  bool tokens_first_;
};

// `keys` are (alibi, sinks, q_offsets, kv_offsets, pages, check_pages, split), in the order in which
// onepass/_attention.py packs them.
AttentionOptions read_options(Call& call, nb::handle scale, nb::handle softcap,
                              const nb::tuple& mask, const nb::tuple& keys) {
  AttentionOptions options;
  if (!scale.is_none()) options.scale = number("scale", scale);
  options.softcap = number("softcap", softcap);
  options.mask = MaskArguments(mask).read(call);
  options.alibi = call.input("alibi", keys[0]);
  options.sinks = call.input("sinks", keys[1]);
  options.q_offsets = call.input("q_offsets", keys[2]);
  options.kv_offsets = call.input("kv_offsets", keys[3]);
  options.pages = call.input("pages", keys[4]);
  options.check_pages = flag("check_pages", keys[5]);
  options.split = integer("split", keys[6]);
  return options;
}

nb::object attention(nb::handle q, nb::handle k, nb::handle v, nb::handle scale, nb::handle softcap,
                     const nb::tuple& mask, const nb::tuple& keys, nb::handle layout_name,
                     nb::handle out_dtype, nb::handle return_lse, nb::handle out,
                     nb::handle variant, nb::handle batch_invariant) {
  Call call("q", q, out);
  const Layout layout(layout_name);
  const Tensor queries = layout(call.first());
  const ConstTensor all_keys = layout(call.input("k", k));
  const ConstTensor values = layout(call.input("v", v));
  AttentionOptions options = read_options(call, scale, softcap, mask, keys);
  options.variant = text("variant", variant);
  options.batch_invariant = flag("batch_invariant", batch_invariant);
  const DType in = queries.dtype;
  const Tensor o =
      layout(call.output("out", Extents::of(call.first()), dtype("dtype", out_dtype, in)));
  options.lse = call.output_if(flag("return_lse", return_lse), "lse",
                               Extents::of(queries).without(-1), sum_dtype(in));
  return call.run([&](const Context& context) {
    return onepass::attention(context, queries, all_keys, values, o, options);
  });
}

nb::object merge_attention(nb::handle a, nb::handle lse_a, nb::handle b, nb::handle lse_b,
                           nb::handle layout_name, nb::handle out_dtype, nb::handle out) {
  Call call("a", a, out);
  const Layout layout(layout_name);
  const Tensor one = layout(call.first());
  const ConstTensor other = layout(call.input("b", b));
  const ConstTensor lse_one = call.input("lse_a", lse_a);
  const ConstTensor lse_other = call.input("lse_b", lse_b);
  const Tensor o =
      layout(call.output("out", Extents::of(call.first()), dtype("dtype", out_dtype, one.dtype)));
  const Tensor lse = call.output("lse", Extents::of(one).without(-1), lse_one.dtype);
  return call.run([&](const Context& context) {
    return onepass::merge_attention(context, one, lse_one, other, lse_other, o, lse);
  });
}

}  // namespace

void add_attention(nb::module_& module) {
  define(module, "attention", &attention);
  define(module, "merge_attention", &merge_attention);
}

}  // namespace onepass::python
