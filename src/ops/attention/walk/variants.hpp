// The walk as variants of the dispatcher: a checked call as a step takes it.
#pragma once

#include "ops/attention/args.hpp"
#include "ops/attention/backward_args.hpp"
#include "ops/attention/walk/backward_plan.hpp"
#include "ops/attention/walk/plan.hpp"

namespace onepass::ops::attention {

// An operand as a step takes it.
template <class T>
Tokens<T> tokens_of(const Heads& t) {
  return {static_cast<T*>(t.data), t.batch, t.head, t.token};
}

// Of a call that refuse_walk lets pass.
inline Call walk_call(const AttentionArgs& a) {
  const auto as = [&]<class T>(Type<T>) -> Call {
    return {Attention<T>{.batch = a.batch,
                         .heads = a.heads,
                         .kv_heads = a.kv_heads,
                         .queries = a.queries,
                         .keys = a.keys,
                         .dim = a.dim,
                         .q = tokens_of<T>(a.q).to_read(),
                         .k = tokens_of<T>(a.k).to_read(),
                         .v = tokens_of<T>(a.v).to_read(),
                         .o = tokens_of<T>(a.o),
                         .scale = static_cast<float>(a.scale),
                         .causal = a.causal},
            a.workspace, a.queue.stream};
  };
  return a.q.dtype == DType::bf16 ? as(Type<BF16>{}) : as(Type<F16>{});
}

template <Status (*Step)(const Call&, const WalkLaunch&)>
Status walked(const AttentionArgs& args, const WalkLaunch& launch) {
  return Step(walk_call(args), launch);
}

// Of a call that refuse_backward lets pass.
inline BackwardCall backward_call(const AttentionBackwardArgs& a) {
  const auto with_gradients = [&]<class T>(const Attention<T>& forward) -> BackwardCall {
    return {Backward<T>{forward, tokens_of<T>(a.d_o).to_read(),
                        Lse{a.lse.data, a.lse.dtype, a.lse.batch, a.lse.head, a.lse.token},
                        tokens_of<T>(a.d_q), tokens_of<T>(a.d_k), tokens_of<T>(a.d_v)},
            a.workspace, a.queue.stream};
  };
  return std::visit(with_gradients, walk_call(a).attention);
}

template <Status (*Step)(const BackwardCall&, const WalkLaunch&)>
Status backward_walked(const AttentionBackwardArgs& args, const WalkLaunch& launch) {
  return Step(backward_call(args), launch);
}

}  // namespace onepass::ops::attention
