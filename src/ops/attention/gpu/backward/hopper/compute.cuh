// What computes in the Hopper backward: a warpgroup's 64 keys of a column, step after step.
#pragma once

#include "core/cuda/mma.cuh"
#include "core/cuda/wgmma.cuh"
#include "ops/attention/gpu/backward/gradient.cuh"
#include "ops/attention/gpu/backward/hopper/tile.cuh"
#include "ops/attention/gpu/hopper/ping_pong.cuh"
#include "ops/attention/gpu/online.cuh"

namespace onepass::ops::attention::backward_hopper {

// Scores are transposed: keys are the rows of the products, so that weights and their gradients are
// left operands in registers for dv and dk. Only the gradients go through shared memory, for dq,
// which all of the block's keys make together.
//
// Products and waits stand outside of all branches: inside, the compiler would wait after each
// product.
template <class Stored, class Tile>
class Consumer {
  static constexpr int kSteps = Tile::kDim / 16;  // of a product over the dim,
  static constexpr int kQuerySteps = Tile::kQueries / 16;
  static constexpr int kKeySteps = Tile::kKeys / 16;
  using Scores = float[Tile::kQueries / 2];
  using Sums = float[Tile::kDim / 2];
  static constexpr int kRowsStep = 16 * kColumns * 2 / 16;  // 16 rows, as operands count
  using Left = unsigned[kQuerySteps][4];

 public:
  __device__ Consumer(const Params<Tile>& p, Shared<Stored, Tile>& shared, int group)
      : p_(p),
        shared_(shared),
        group_(group),
        thread_(static_cast<int>(threadIdx.x) % kWarpgroup),
        turns_(group),
        unit_(static_cast<float>(p.args.scale) * kLog2E) {}

  __device__ void run() {
    for (;; ++columns_) {
      shared_.job_ring.wait_full(columns_);
      int left = job().steps;
      if (left < 0) break;
      Sums d_k{}, d_v{};
      wgmma::pin(d_k);
      wgmma::pin(d_v);
      if (left > 0) {
        shared_.k_ring.wait_full(loads_);
        clear_tail();
        shared_.v_ring.wait_full(loads_);
        bool first = true;
#pragma unroll 1
        do {
          step(first, left == 1, d_k, d_v);
          first = false;
        } while (--left > 0);
        finish_d_q();
        if (leads()) shared_.k_ring.leave(loads_);
        ++loads_;
      }
      store(d_k, d_v);
      __syncwarp();
      if (leads()) shared_.job_ring.leave(columns_);
    }
  }

 private:
  __device__ int stage() const { return static_cast<int>(step_ % Tile::kStages); }
  __device__ const Job& job() const { return shared_.jobs[columns_ % 2]; }
  __device__ bool leads() const { return thread_ % 32 == 0; }
  // The upper of this thread's two keys, in the column; the lower is 8 further.
  __device__ int upper() const { return group_ * 64 + thread_ / 32 * 16 + thread_ % 32 / 4; }

  __device__ static void sync_all() {
    asm volatile("bar.sync 7, %0;" ::"n"(kGroups * kWarpgroup) : "memory");
  }

  // The other group's gradients of a step are here.
  __device__ void await_shared(unsigned step) const {
    tma::wait(shared_.shared[step % 2][1 - group_], step / 2 % 2);
  }

  // This group has read what both had shared in the step before this one; and so has the other.
  __device__ void tell_read() const {
    __syncwarp();
    if (leads()) tma::arrive(shared_.read[step_ % 2][group_]);
  }
  __device__ void await_read() const {
    const unsigned before = step_ - 1;
    tma::wait(shared_.read[before % 2][1 - group_], before / 2 % 2);
  }

  // Past the last key of a sequence may lie anything: with a gradient of 0 it must not be NaN
  // either. What lies past the tensor's end has come as zeros.
  __device__ void clear_tail() const {
    const int there = job().keys - job().first_key;
    if (!p_.args.lengths || there >= Tile::kKeys) return;
    constexpr int kSixteens = kColumns / 8;
    for (int i = group_ * kWarpgroup + thread_; i < (Tile::kKeys - there) * kSixteens;
         i += kGroups * kWarpgroup) {
#pragma unroll
      for (int panel = 0; panel < Tile::kPanels; ++panel) {
        auto* row = reinterpret_cast<uint4*>(shared_.k[panel][there + i / kSixteens]);
        row[i % kSixteens] = make_uint4(0, 0, 0, 0);
      }
    }
    tma::publish();
    sync_all();
  }

  // A tile of queries: two turns at the tensor cores. dq is that of the tile before, whose
  // gradients the other group has shared in the meantime. Before the first tile there is none:
  // what is made then nobody takes, which is cheaper than a branch. Nothing is under way from one
  // step to the next: the compiler would wait after each product.
  __device__ void step(bool first, bool last, Sums& d_k, Sums& d_v) {
    Scores s, d_s;
    shared_.q_ring.wait_full(step_);
    shared_.d_o_ring.wait_full(step_);
    shared_.row_ring.wait_full(step_);
    turns_.take();
    issue_scores(s, shared_.k, shared_.q[stage()]);
    issue_scores(d_s, shared_.v, shared_.d_o[stage()]);
    turns_.pass();
    wgmma::wait<1>();
    wgmma::pin(s);
    weigh(s);
    wgmma::wait<0>();
    wgmma::pin(d_s);
    if (leads() && last) shared_.v_ring.leave(loads_);
    differentiate(d_s, s);
    Left weights, gradients;
    narrow_weights<Stored>(s, weights);
    narrow_weights<Stored>(d_s, gradients);
    share(gradients);
    if (!first) await_shared(step_ - 1);
    turns_.take();
    float d_q[32];
    issue_sums(d_v, weights, shared_.d_o[stage()]);
    issue_sums(d_k, gradients, shared_.q[stage()]);
    issue_d_q(d_q, step_ - 1);
    turns_.pass();
    wgmma::wait<1>();
    wgmma::pin(d_v);
    wgmma::pin(d_k);
    if (leads()) {
      shared_.d_o_ring.leave(step_);
      shared_.q_ring.leave(step_);
    }
    wgmma::wait<0>();
    wgmma::pin(d_q);
    tell_read();
    hand_over(d_q, !first);
    ++step_;
  }

  // Of the last tile of a column.
  __device__ void finish_d_q() {
    float d_q[32];
    await_shared(step_ - 1);
    issue_d_q(d_q, step_ - 1);
    wgmma::wait<0>();
    wgmma::pin(d_q);
    hand_over(d_q, true);
  }

  // left · rightᵀ, over the dim: 64 of the tile's keys by all of its queries.
  template <class Keys, class Queries>
  __device__ void issue_scores(Scores& s, const Keys& keys, const Queries& queries) const {
    const std::uint64_t left = wgmma::operand(&keys[0][group_ * 64][0]);
    const std::uint64_t right = wgmma::operand(&queries[0][0][0]);
    wgmma::fence();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      // 16 columns are 32 bytes of a swizzled row; addresses in operands count 16.
      const int panel = 16 * i / kColumns;
      const int column = 16 * i % kColumns * 2 / 16;
      const auto at_left = left + panel * (sizeof keys[0] / 16) + column;
      const auto at_right = right + panel * (sizeof queries[0] / 16) + column;
      i == 0 ? wgmma::scores<Stored, false>(s, at_left, at_right)
             : wgmma::scores<Stored, true>(s, at_left, at_right);
    }
    wgmma::commit();
  }

  // sums += left · queries.
  template <class Queries>
  __device__ void issue_sums(Sums& sums, const Left& left, const Queries& queries) const {
    const std::uint64_t right = wgmma::operand(&queries[0][0][0], sizeof queries[0]);
    wgmma::fence();
#pragma unroll
    for (int i = 0; i < kQuerySteps; ++i) {
      wgmma::sums<Stored>(sums, left[i], right + i * kRowsStep);
    }
    wgmma::commit();
  }

  // 64 × 64 of dq: with 64 queries in a tile a group has half of the columns, otherwise half of the
  // queries.
  __device__ void issue_d_q(float (&d_q)[32], unsigned step) const {
    const auto& d_s = shared_.d_s[step % 2];
    const int query_panel = Tile::kQueryPanels == 1 ? 0 : group_;
    const int panel = Tile::kPanels == 1 ? 0 : group_;
    const std::uint64_t left = wgmma::operand(&d_s[query_panel][0][0]);
    const std::uint64_t right = wgmma::operand(&shared_.k[panel][0][0]);
    wgmma::fence();
#pragma unroll
    for (int i = 0; i < kKeySteps; ++i) {
      i == 0 ? wgmma::outer<Stored, false>(d_q, left + i * kRowsStep, right + i * kRowsStep)
             : wgmma::outer<Stored, true>(d_q, left + i * kRowsStep, right + i * kRowsStep);
    }
    wgmma::commit();
  }

  // What is not seen becomes 0.
  __device__ void hide(Scores& x) const {
    const StepSight& sight = shared_.sights[stage()];
    if (sight.whole[group_]) return;
    const int first = sight.first + upper() - thread_ % 4 * 2;
    const int left = job().keys - job().first_key - upper();
    const unsigned span = sight.span;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool there = 8 * r < left;
#pragma unroll
      for (int i = 0; i < Tile::kQueries / 8; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int distance = first + 8 * r - 8 * i - e;
          float& own = x[4 * i + 2 * r + e];
          own = there && static_cast<unsigned>(distance) <= span ? own : 0.F;
        }
      }
    }
  }

  // No weight is above 1, but scores and lse are rounded.
  __device__ void weigh(Scores& s) const {
    const PairOfRows* const rows = shared_.rows[stage()];
#pragma unroll
    for (int i = 0; i < Tile::kQueries / 8; ++i) {
      const PairOfRows pair = rows[4 * i + thread_ % 4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float x;
        asm("min.NaN.f32 %0, %1, 0f00000000;"
            : "=f"(x)
            : "f"(fmaf(s[4 * i + j], unit_, -pair.lse[j % 2])));
        s[4 * i + j] = power_of_two(x);
      }
    }
    hide(s);
  }

  __device__ void differentiate(Scores& d_s, const Scores& weights) const {
    const PairOfRows* const rows = shared_.rows[stage()];
#pragma unroll
    for (int i = 0; i < Tile::kQueries / 8; ++i) {
      const PairOfRows pair = rows[4 * i + thread_ % 4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        d_s[4 * i + j] = weights[4 * i + j] * (d_s[4 * i + j] - pair.mean[j % 2]);
      }
    }
    hide(d_s);
  }

  // Into shared memory, as tiles that come are: rows of 64 queries. The rows' lse and means are no
  // longer wanted.
  __device__ void share(const Left& d_s) const {
    const int lane = thread_ % 32;
    auto& to = shared_.d_s[step_ % 2];
    const unsigned row = shared_address(to[0][group_ * 64 + thread_ / 32 * 16 + lane % 16]);
    const auto turn = static_cast<unsigned>(lane / 16 ^ lane % 8);
    await_read();
#pragma unroll
    for (int i = 0; i < kQuerySteps; ++i) {
      const unsigned panel = 16 * i / kColumns;
      mma::store4(row + panel * sizeof to[0] + (turn ^ 2 * i % 8) * 16, d_s[i]);
    }
    tma::publish();
    __syncwarp();
    if (!leads()) return;
    tma::arrive(shared_.shared[step_ % 2][group_]);
    shared_.row_ring.leave(step_);
  }

  // To the warp that adds it, in the order of registers, which hopper.cu knows.
  __device__ void hand_over(const float (&d_q)[32], bool any) {
    const unsigned slot = parts_ % Tile::kParts;
    tma::wait(shared_.taken[slot], (parts_ / Tile::kParts + 1) % 2);
    auto* to = reinterpret_cast<float4*>(shared_.d_q[slot][group_]) + thread_;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      to[i * kWarpgroup] = make_float4(d_q[4 * i], d_q[4 * i + 1], d_q[4 * i + 2], d_q[4 * i + 3]);
    }
    tma::publish();
    __syncwarp();
    if (leads() && any) tma::arrive(shared_.summed[slot]);
    parts_ += any ? 1 : 0;
  }

  __device__ void store(const Sums& d_k, const Sums& d_v) const {
    const AttentionBackwardArgs& a = p_.args;
    const Job& of = job();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int key = of.first_key + upper() + 8 * r;
      const bool there = key < of.keys;
      const auto to = [&](const Heads& gradient, const Sums& sums, float by) {
        const std::int64_t at = gradient.offset(of.batch, of.kv_head, of.k_first + key);
        if (gradient.dtype == a.q.dtype && !a.accumulate) {
          store_rounded<Stored>(gradient, at, sums, r, by, there ? a.dim : 0);
        } else {
          store_gradient(gradient, at, sums, r, by, there ? a.dim : 0, a.accumulate);
        }
      };
      to(a.d_k, d_k, static_cast<float>(a.scale));
      to(a.d_v, d_v, 1);
    }
  }

  const Params<Tile>& p_;
  Shared<Stored, Tile>& shared_;
  int group_, thread_;
  hopper::PingPong<kGroups> turns_;
  float unit_;
  unsigned step_ = 0;     // tiles of queries so far,
  unsigned columns_ = 0;  // of keys,
  unsigned loads_ = 0;    // and of those that some query sees,
  unsigned parts_ = 0;    // and parts of dq that were handed over
};

}  // namespace onepass::ops::attention::backward_hopper
