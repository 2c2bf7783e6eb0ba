// The walk as variants of the dispatcher: a checked call as a step takes it.
#pragma once

#include "ops/attention/args.hpp"
#include "ops/attention/walk/plan.hpp"

namespace onepass::ops::attention {

// Of a call that refuse_walk lets pass.
inline Call walk_call(const AttentionArgs& a) {
  const auto as = [&]<class T>(Type<T>) -> Call {
    const auto tokens = [](const Heads& t) {
      return Tokens<T>{static_cast<T*>(t.data), t.batch, t.head, t.token};
    };
    return {Attention<T>{.batch = a.batch,
                         .heads = a.heads,
                         .kv_heads = a.kv_heads,
                         .queries = a.queries,
                         .keys = a.keys,
                         .dim = a.dim,
                         .q = tokens(a.q).to_read(),
                         .k = tokens(a.k).to_read(),
                         .v = tokens(a.v).to_read(),
                         .o = tokens(a.o),
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

}  // namespace onepass::ops::attention
