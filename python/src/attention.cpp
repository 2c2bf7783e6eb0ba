// attention, and merge_attention for what it found over different keys.

#include "onepass/attention.hpp"

#include <string>
#include <utility>

#include "arguments.hpp"
#include "ops.hpp"

namespace onepass::python {
namespace {

// "bshd" has tokens before heads, with offsets and in pages, too. The library is told the same
// memory as "bhsd".
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

// What makes the logits z of q · k, and which keys there are.
struct KeyArguments {
  nb::handle scale, softcap;
  MaskArguments mask;
  nb::handle alibi, sinks, q_offsets, kv_offsets, pages, check_pages, split, dropout;

  static Names names() {
    return {"scale",      "softcap", MaskArguments::names(), "alibi", "sinks",    "q_offsets",
            "kv_offsets", "pages",   "check_pages",          "split", "dropout_p"};
  }
  static KeyArguments next(Arguments& given) {
    return {given.next(), given.next(), MaskArguments::next(given),
            given.next(), given.next(), given.next(),
            given.next(), given.next(), given.next(),
            given.next(), given.next()};
  }

  AttentionOptions read(Call& call) const {
    AttentionOptions options;
    if (!scale.is_none()) options.scale = number("scale", scale);
    options.softcap = number("softcap", softcap);
    options.mask = mask.read(call);
    options.alibi = call.input("alibi", alibi);
    options.sinks = call.input("sinks", sinks);
    options.q_offsets = call.input("q_offsets", q_offsets);
    options.kv_offsets = call.input("kv_offsets", kv_offsets);
    options.pages = call.input("pages", pages);
    options.check_pages = flag("check_pages", check_pages);
    options.split = integer("split", split);
    if (number("dropout_p", dropout) != 0) {
      raise(PyExc_NotImplementedError, "dropout_p: " + std::string(nb::str(dropout).c_str()) +
                                           " is not 0: attention has no dropout");
    }
    return options;
  }
};

// The shape of o: that of q, with the dim of v.
Extents shape_of_o(const Tensor& q, const ConstTensor& v) {
  const Extents shape = Extents::of(q);
  if (v.rank < 1 || v.rank > kMaxRank) return shape;  // the op reports it
  return shape.with_last(v.shape[static_cast<std::size_t>(v.rank - 1)]);
}

nb::object attention(Arguments& given) {
  const auto [q, k, v] = given.next<3>();
  const auto keys = KeyArguments::next(given);
  const auto [layout_name, out_dtype, return_lse, out, variant, batch_invariant] = given.next<6>();
  Call call("q", q, out);
  const Layout layout(layout_name);
  const Tensor queries = layout(call.first());
  const ConstTensor all_keys = layout(call.input("k", k));
  const ConstTensor values = layout(call.input("v", v));
  AttentionOptions options = keys.read(call);
  options.variant = text("variant", variant);
  options.batch_invariant = flag("batch_invariant", batch_invariant);
  const DType in = queries.dtype;
  const Tensor o =
      layout(call.output("o", shape_of_o(call.first(), values), dtype("dtype", out_dtype, in)));
  options.lse = call.output_if(flag("return_lse", return_lse), "lse",
                               Extents::of(queries).without(-1), sum_dtype(in));
  return call.run([&](const Context& context) {
    return onepass::attention(context, queries, all_keys, values, o, options);
  });
}

nb::object merge_attention(Arguments& given) {
  const auto [a, lse_a, b, lse_b, layout_name, out_dtype, out] = given.next<7>();
  Call call("a", a, out);
  const Layout layout(layout_name);
  const Tensor one = layout(call.first());
  const ConstTensor other = layout(call.input("b", b));
  const ConstTensor lse_one = call.input("lse_a", lse_a);
  const ConstTensor lse_other = call.input("lse_b", lse_b);
  const Tensor o =
      layout(call.output("o", Extents::of(call.first()), dtype("dtype", out_dtype, one.dtype)));
  const Tensor lse = call.output("lse", Extents::of(one).without(-1), lse_one.dtype);
  return call.run([&](const Context& context) {
    return onepass::merge_attention(context, one, lse_one, other, lse_other, o, lse);
  });
}

}  // namespace

void define_attention() {
  define("attention",
         {"q", "k", "v", KeyArguments::names(), "layout", "dtype", "return_lse", "out", "variant",
          "batch_invariant"},
         &attention);
  define("merge_attention", {"a", "lse_a", "b", "lse_b", "layout", "dtype", "out"},
         &merge_attention);
}

}  // namespace onepass::python
