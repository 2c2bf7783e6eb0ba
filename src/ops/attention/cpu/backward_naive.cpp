// attention/cpu_naive of the backward: one kv head at a time, a query after the other.
//
// Idea    the weights again from the lse, p = exp(z − lse); with D = Σ do · o, which is Σ p · dp,
//         dz = p · (dp − D), and dp = do · v. Then dq += ds · k, dk += ds · q, dv += p · do, where
//         ds = dz · softcap' · scale.
// Versus  cpu_naive of the forward: no maximum and no sum, since the lse has both.
// Bytes   every query reads all of its keys and values, and adds to all of their gradients, which
//         stay in a buffer per thread.
// Limits  none: every dtype, stride and option; slow everywhere.
// Proof   tests/ops/attention/backward_test.cpp, `onepass verify attention_backward`.

#include <algorithm>
#include <string>

#include "ops/attention/cpu/backward_query.hpp"
#include "ops/attention/cpu/backward_rest.hpp"
#include "ops/attention/cpu/variants.hpp"
#include "runtime/workers.hpp"

namespace onepass::ops::attention {
namespace {

template <class Stored>
class NaiveBackward {
  using T = typename BackwardQuery<Stored>::T;

 public:
  NaiveBackward(const AttentionBackwardArgs& args, std::byte* memory)
      : a_(args), d_k_(reinterpret_cast<T*>(memory)), d_v_(d_k_ + args.keys * args.dim) {}

  // All queries of the heads that share a kv head.
  void run(std::int64_t b, std::int64_t kv_head) {
    const Sequence s = sequence_of(a_, b);
    if (s.queries == 0) return;  // zero_unused
    const std::int64_t group = a_.heads / a_.kv_heads;
    std::fill_n(d_k_, s.keys * a_.dim, T(0));
    std::fill_n(d_v_, s.keys * a_.dim_v, T(0));
    for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      for (std::int64_t q = 0; q < s.queries; ++q) add_query(s, b, h, q);
    }
    for (std::int64_t t = 0; t < s.keys; ++t) {
      write_row(a_.d_k, a_.d_k.offset(b, kv_head, s.k_first + t), d_k_ + t * a_.dim, a_.dim);
      write_row(a_.d_v, a_.d_v.offset(b, kv_head, s.k_first + t), d_v_ + t * a_.dim_v, a_.dim_v);
    }
  }

 private:
  void add_query(const Sequence& s, std::int64_t b, std::int64_t head, std::int64_t q) {
    const BackwardQuery<Stored> row(a_, s, b, head, q);
    T d_q[kMostBackwardDim] = {};
    for (std::int64_t t = row.live().begin; t < row.live().end; ++t) {
      const auto pair = row.at(t);
      add_times(pair.d_score, row.k(t), a_.dim, d_q);
      add_times(pair.d_score, row.q(), a_.dim, d_k_ + t * a_.dim);
      add_times(pair.weight, row.d_o(), a_.dim_v, d_v_ + t * a_.dim_v);
    }
    write_row(a_.d_q, a_.d_q.offset(b, head, s.q_first + q), d_q, a_.dim);
  }

  // A factor of 0 adds nothing: what it multiplies may be hidden, and NaN.
  template <class Row>
  static void add_times(T factor, const Row* row, int dim, T* sums) {
    if (factor == 0) return;
    for (int j = 0; j < dim; ++j) sums[j] += factor * load_as<T>(row[j]);
  }

  void write_row(const Heads& gradient, std::int64_t at, const T* row, int dim) const {
    for (int j = 0; j < dim; ++j) write_gradient(gradient, at + j, a_.accumulate, row[j]);
  }

  const AttentionBackwardArgs& a_;
  T *d_k_, *d_v_;  // of a sequence's keys
};

}  // namespace

Status cpu_backward_naive(const AttentionBackwardArgs& args,
                          const CpuAttentionBackwardLaunch& launch) {
  std::byte* memory = scratch(static_cast<std::size_t>(launch.threads) * launch.scratch_bytes);
  if (memory == nullptr && launch.scratch_bytes > 0) {
    return {Code::out_of_memory,
            "no memory for the gradients of " + std::to_string(args.keys) + " keys"};
  }
  run_team(launch.threads, [&](Team& team) {
    std::byte* mine = memory + static_cast<std::size_t>(team.rank()) * launch.scratch_bytes;
    with_type_for<float>(args.q.dtype, [&]<class Stored>(Type<Stored>) {
      NaiveBackward<Stored> naive(args, mine);
      const std::int64_t heads = args.batch * args.kv_heads;
      for (std::int64_t i = team.take(1); i < heads; i = team.take(1)) {
        naive.run(i / args.kv_heads, i % args.kv_heads);
      }
    });
    zero_unused(args, team);
    sink_gradients(args, team);
    mask_gradients(args, team);
  });
  return {};
}

}  // namespace onepass::ops::attention
