// attention, merge_attention for what it found over different keys, and their gradients.

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
  nb::handle alibi, sinks, q_offsets, kv_offsets, pages;

  static Names names() {
    return {"scale", "softcap",   MaskArguments::names(), "alibi",
            "sinks", "q_offsets", "kv_offsets",           "pages"};
  }
  static KeyArguments next(Arguments& given) {
    return {given.next(), given.next(), MaskArguments::next(given),
            given.next(), given.next(), given.next(),
            given.next(), given.next()};
  }

  // The options of the op and of its gradient have these fields under the same names.
  template <class Options>
  Options read(Call& call) const {
    Options options;
    if (!scale.is_none()) options.scale = number("scale", scale);
    options.softcap = number("softcap", softcap);
    options.mask = mask.read(call);
    options.alibi = call.input("alibi", alibi);
    options.sinks = call.input("sinks", sinks);
    options.q_offsets = call.input("q_offsets", q_offsets);
    options.kv_offsets = call.input("kv_offsets", kv_offsets);
    options.pages = call.input("pages", pages);
    return options;
  }
};

void refuse_dropout(nb::handle probability) {
  if (number("dropout_p", probability) == 0) return;
  raise(PyExc_NotImplementedError, "dropout_p: " + std::string(nb::str(probability).c_str()) +
                                       " is not 0: attention has no dropout");
}

// The shape of o: that of q, with the dim of v.
Extents shape_of_o(const Tensor& q, const ConstTensor& v) {
  const Extents shape = Extents::of(q);
  if (v.rank < 1 || v.rank > kMaxRank) return shape;  // the op reports it
  return shape.with_last(v.shape[static_cast<std::size_t>(v.rank - 1)]);
}

nb::object attention(Arguments& given) {
  const auto [q, k, v] = given.next<3>();
  const auto keys = KeyArguments::next(given);
  const auto [check_pages, split, dropout] = given.next<3>();
  const auto [layout_name, out_dtype, return_lse, out, variant, batch_invariant] = given.next<6>();
  Call call("q", q, out);
  const Layout layout(layout_name);
  const Tensor queries = layout(call.first());
  const ConstTensor all_keys = layout(call.input("k", k));
  const ConstTensor values = layout(call.input("v", v));
  auto options = keys.read<AttentionOptions>(call);
  options.check_pages = flag("check_pages", check_pages);
  options.split = integer("split", split);
  refuse_dropout(dropout);
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

// The gradients of sinks and of the floating mask, each in the shape and dtype of what it is of.
Tensor extra_gradient(Call& call, std::string_view argument, nb::handle wanted,
                      std::string_view name, const ConstTensor& of, const char* missing) {
  if (!flag(argument, wanted)) return {};
  if (!of.present()) raise_value(argument, missing);
  return call.output(name, Extents::of(of), of.dtype);
}

// New arrays hold nothing to add to.
void check_accumulate(nb::handle out) {
  const auto own = [&](std::size_t i) {
    const auto given = nb::borrow<nb::tuple>(out);
    return i < given.size() && !given[i].is_none();
  };
  if (!nb::isinstance<nb::tuple>(out) || !own(0) || !own(1) || !own(2)) {
    raise_value("accumulate", "needs arrays for d_q, d_k and d_v in `out`");
  }
}

nb::object attention_backward(Arguments& given) {
  const auto [q, k, v, o, lse, d_o, d_lse] = given.next<7>();
  const auto keys = KeyArguments::next(given);
  const auto [return_d_sinks, return_d_mask, accumulate, deterministic] = given.next<4>();
  const auto [layout_name, out_dtype, out, variant] = given.next<4>();
  Call call("q", q, out);
  const Layout layout(layout_name);
  const Tensor queries = layout(call.first());
  const ConstTensor all_keys = call.input("k", k);
  const ConstTensor values = call.input("v", v);
  const ConstTensor results = layout(call.input("o", o));
  const ConstTensor sums = call.input("lse", lse);
  const ConstTensor gradient = layout(call.input("d_o", d_o));
  auto options = keys.read<AttentionBackwardOptions>(call);
  options.d_lse = call.input("d_lse", d_lse);
  options.accumulate = flag("accumulate", accumulate);
  options.deterministic = flag("deterministic", deterministic);
  options.variant = text("variant", variant);
  if (options.accumulate) check_accumulate(out);
  const DType type = dtype("dtype", out_dtype, queries.dtype);
  const auto gradient_of = [&](std::string_view name, const ConstTensor& t) {
    return layout(call.output(name, Extents::of(t), type));
  };
  const Tensor d_q = gradient_of("d_q", call.first());
  const Tensor d_k = gradient_of("d_k", all_keys);
  const Tensor d_v = gradient_of("d_v", values);
  options.d_sinks = extra_gradient(call, "return_d_sinks", return_d_sinks, "d_sinks", options.sinks,
                                   "there are no sinks");
  options.d_additive = extra_gradient(call, "return_d_mask", return_d_mask, "d_additive",
                                      options.mask.additive, "there is no floating mask");
  return call.run([&](const Context& context) {
    return onepass::attention_backward(context, queries, layout(all_keys), layout(values), results,
                                       sums, gradient, d_q, d_k, d_v, options);
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

nb::object merge_attention_backward(Arguments& given) {
  const auto [a, lse_a, b, lse_b, d_o, d_lse, layout_name, out] = given.next<8>();
  Call call("a", a, out);
  const Layout layout(layout_name);
  const Tensor one = layout(call.first());
  const ConstTensor other = layout(call.input("b", b));
  const ConstTensor lse_one = call.input("lse_a", lse_a);
  const ConstTensor lse_other = call.input("lse_b", lse_b);
  const ConstTensor gradient = layout(call.input("d_o", d_o));
  const ConstTensor lse_gradient = call.input("d_lse", d_lse);
  const Extents shape = Extents::of(call.first());
  const Extents rows = Extents::of(one).without(-1);
  const Tensor d_a = layout(call.output("d_a", shape, one.dtype));
  const Tensor d_lse_a = call.output("d_lse_a", rows, lse_one.dtype);
  const Tensor d_b = layout(call.output("d_b", shape, other.dtype));
  const Tensor d_lse_b = call.output("d_lse_b", rows, lse_other.dtype);
  return call.run([&](const Context& context) {
    return onepass::merge_attention_backward(context, one, lse_one, other, lse_other, gradient,
                                             lse_gradient, d_a, d_lse_a, d_b, d_lse_b);
  });
}

}  // namespace

void define_attention() {
  define("attention",
         {"q", "k", "v", KeyArguments::names(), "check_pages", "split", "dropout_p", "layout",
          "dtype", "return_lse", "out", "variant", "batch_invariant"},
         &attention);
  define("attention_backward",
         {"q", "k", "v", "o", "lse", "d_o", "d_lse", KeyArguments::names(), "return_d_sinks",
          "return_d_mask", "accumulate", "deterministic", "layout", "dtype", "out", "variant"},
         &attention_backward);
  define("merge_attention", {"a", "lse_a", "b", "lse_b", "layout", "dtype", "out"},
         &merge_attention);
  define("merge_attention_backward", {"a", "lse_a", "b", "lse_b", "d_o", "d_lse", "layout", "out"},
         &merge_attention_backward);
}

}  // namespace onepass::python
