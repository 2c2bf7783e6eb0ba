#include "fuzz/arguments.hpp"
#include "onepass/onepass.hpp"

namespace onepass::fuzz {
namespace {

class Submission {
 public:
  Submission(const Context& context, const cli::Case& c, Arguments& a, Plan* plan)
      : context_(context), c_(c), a_(a), o_(a.options), plan_(plan) {}

  Status run() {
    switch (c_.op) {
      case Op::softmax: return softmax(context_, a_["x"], output(), forward());
      case Op::log_softmax: return log_softmax(context_, a_["x"], output(), forward());
      case Op::logsumexp: return logsumexp(context_, a_["x"], output(), forward());
      case Op::softmax_backward:
        return softmax_backward(context_, a_["x"], a_["dy"], output(), backward());
      case Op::log_softmax_backward:
        return log_softmax_backward(context_, a_["x"], a_["dy"], output(), backward());
      case Op::cross_entropy:
        return cross_entropy(context_, a_["x"], a_["target"], output(), loss(true));
      case Op::cross_entropy_backward: return loss_backward();
      case Op::topk: return largest();
      case Op::sample: return drawn();
      case Op::gate: return gated();
      case Op::attention: return attended();
      case Op::attention_backward: return attended_backward();
    }
    return {Code::internal, "fuzz: no such op"};
  }

 private:
  // In place there is none of its own.
  Tensor output() {
    if (a_.find("y") != nullptr) return a_["y"];
    return a_.find("dy") != nullptr ? a_["dy"] : a_["x"];
  }

  PerRow per_row(std::string_view name, double value) {
    return a_.find(name) != nullptr ? PerRow(a_[name]) : PerRow(value);
  }
  PerRowInteger per_row(std::string_view name, std::int64_t value) {
    return a_.find(name) != nullptr ? PerRowInteger(a_[name]) : PerRowInteger(value);
  }

  Mask mask() {
    return {.additive = a_["mask.additive"],
            .boolean = a_["mask.boolean"],
            .lengths = a_["mask.lengths"],
            .causal = o_.causal,
            .window_left = o_.window_left,
            .window_right = o_.window_right};
  }

  template <class O>
  O of_rows(O options) {
    options.axis = o_.axis;
    options.scale = per_row("scale", o_.scale);
    options.temperature = per_row("temperature", o_.temperature);
    options.softcap = o_.softcap;
    options.mask = mask();
    options.variant = o_.variant;
    options.plan = plan_;
    options.batch_invariant = c_.batch_invariant;
    return options;
  }

  SoftmaxOptions forward() {
    SoftmaxOptions options = of_rows(SoftmaxOptions{});
    options.lse = a_["lse"];
    return options;
  }

  BackwardOptions backward() {
    BackwardOptions options = of_rows(BackwardOptions{});
    options.x = a_["forward x"];
    return options;
  }

  CrossEntropyOptions loss(bool writes_lse) {
    CrossEntropyOptions options = of_rows(CrossEntropyOptions{});
    options.ignore_index = o_.ignore_index;
    options.label_smoothing = o_.smoothing;
    options.z_loss = o_.z_loss;
    options.reduction = c_.reduction;
    if (writes_lse) options.lse = a_["lse"];
    return options;
  }

  Status loss_backward() {
    if (c_.loss) {
      return cross_entropy_with_gradient(context_, a_["x"], a_["target"], a_["loss"], output(),
                                         loss(true));
    }
    return cross_entropy_backward(context_, a_["x"], a_["target"], a_["lse"], a_["dloss"], output(),
                                  loss(false));
  }

  Status largest() {
    const TopkOptions options{.values = c_.values,
                              .sorted = !c_.unsorted,
                              .scale = per_row("scale", o_.scale),
                              .temperature = per_row("temperature", o_.temperature),
                              .softcap = o_.softcap,
                              .mask = mask(),
                              .lse = a_["lse"],
                              .target = a_["target"],
                              .target_logprob = a_["logprob"],
                              .target_rank = a_["rank"],
                              .variant = o_.variant,
                              .plan = plan_};
    return o_.logits_only ? topk(context_, a_["x"], output(), a_["indices"], options)
                          : softmax_topk(context_, a_["x"], output(), a_["indices"], options);
  }

  Status drawn() {
    return sample(context_, a_["x"], output(),
                  {.temperature = per_row("temperature", o_.temperature),
                   .top_k = per_row("top_k", o_.top_k),
                   .top_p = per_row("top_p", o_.top_p),
                   .min_p = per_row("min_p", o_.min_p),
                   .seed = per_row("seed", o_.seed),
                   .offset = per_row("offset", o_.offset),
                   .scale = per_row("scale", o_.scale),
                   .softcap = o_.softcap,
                   .mask = mask(),
                   .logprob = a_["logprob"],
                   .valid = a_["valid"],
                   .variant = o_.variant,
                   .plan = plan_});
  }

  Status gated() {
    return gate(context_, a_["x"], output(), a_["indices"],
                {.score = c_.score,
                 .bias = a_["bias"],
                 .renormalize = c_.renormalize,
                 .scale = o_.scale,
                 .variant = o_.variant,
                 .plan = plan_});
  }

  Status attended() {
    return attention(context_, a_["x"], a_["k"], a_["v"], output(),
                     {.scale = o_.attention_scale,
                      .softcap = o_.softcap,
                      .mask = mask(),
                      .alibi = a_["alibi"],
                      .sinks = a_["sinks"],
                      .q_offsets = a_["q_offsets"],
                      .kv_offsets = a_["kv_offsets"],
                      .pages = a_["pages"],
                      .check_pages = o_.check_pages,
                      .split = o_.split,
                      .lse = a_["lse"],
                      .variant = o_.variant,
                      .plan = plan_,
                      .batch_invariant = c_.batch_invariant});
  }

  Status attended_backward() {
    return attention_backward(context_, a_["x"], a_["k"], a_["v"], a_["o"], a_["lse"], a_["d_o"],
                              output(), a_["d_k"], a_["d_v"],
                              {.scale = o_.attention_scale,
                               .softcap = o_.softcap,
                               .mask = mask(),
                               .alibi = a_["alibi"],
                               .sinks = a_["sinks"],
                               .q_offsets = a_["q_offsets"],
                               .kv_offsets = a_["kv_offsets"],
                               .pages = a_["pages"],
                               .d_lse = a_["d_lse"],
                               .d_sinks = a_["d_sinks"],
                               .d_additive = a_["d_additive"],
                               .accumulate = c_.accumulate,
                               .deterministic = o_.deterministic,
                               .variant = o_.variant,
                               .plan = plan_});
  }

  const Context& context_;
  const cli::Case& c_;
  Arguments& a_;
  const Options& o_;
  Plan* plan_;
};

}  // namespace

Status submit(const Context& context, const cli::Case& c, Arguments& arguments, Plan* plan) {
  return Submission(context, c, arguments, plan).run();
}

}  // namespace onepass::fuzz
