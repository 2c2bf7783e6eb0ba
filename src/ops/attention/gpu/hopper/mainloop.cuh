// What computes in the Hopper kernel: a warpgroup's 64 rows of queries, tile after tile.
#pragma once

#include "core/cuda/mma.cuh"
#include "core/cuda/wgmma.cuh"
#include "ops/attention/gpu/hopper/epilogue.cuh"
#include "ops/attention/gpu/hopper/ping_pong.cuh"

namespace onepass::ops::attention::hopper {

// One warpgroup: 64 rows of queries of every tile.
template <class Stored, class Tile>
class Consumer {
  static constexpr int kSteps = Tile::kDim / 16;  // of a product over the dim, and
  static constexpr int kKeySteps = Tile::kKeys / 16;
  using Scores = float[Tile::kKeys / 2];
  using Sums = float[Tile::kDim / 2];
  using Weights = unsigned[kKeySteps][4];
  // Measured (docs/facts/attention.md): at dim 256 products are the limit, and registers are
  // wanted for them.
  static constexpr bool kFollows = Tile::kDim <= 192;

 public:
  __device__ Consumer(const Params& p, Shared<Stored, Tile>& shared, int group)
      : p_(p), shared_(shared), rows_(p, shared, group), turns_(group) {}

  // A step is a tile of keys. The products of its scores run beside those of the values of the step
  // before, which may be another tile of queries, and both beside the exponentials of the other
  // warpgroups. Products and waits stand outside of all branches: inside, the compiler would wait
  // after each product.
  __device__ void run() {
    const float unit = (p_.plain ? p_.scale : 1.F) * kLog2E;
    Online online(unit);
    Scores s;
    Sums o{};
    Weights weights{};  // before the first step there is nothing to sum
    const auto finish_sums = [&] {
      if (owner_ == nullptr) return;
      await_values();
      issue_sums(o, weights);
      leave_sums(o);
      rows_.finish(*owner_, online, o);
      owner_ = nullptr;
    };

#pragma unroll 1
    for (;; ++jobs_) {
      shared_.q_ring.wait_full(jobs_);
      const Job& job = shared_.job(jobs_);
      if (!job.any()) break;
      if (!job.sees() || !rows_.any(job)) {
        finish_sums();
        pass_by(job);
        continue;
      }
      const SightOfRows seen = of_rows(rows_.sight(job), rows_.first_row(job), kRows);
      const int begin = job.keys.begin;
      int tile = job.keys.end - 1;
      if (seen.by_none(tile * Tile::kKeys) && tile > begin) {  // other rows of the block see it
        pass_step();
        --tile;
      }
      issue(s, o, weights);
      await_scores(s);
      leave_keys(tile == begin);
      const Online before = online;
      online = Online(unit);
      float by[2];
      weigh(job, seen, tile, online, false, s, by);
      leave_sums(o);
      narrow_weights<Stored>(s, weights);
      if (owner_ != nullptr) rows_.finish(*owner_, before, o);
#pragma unroll
      for (float& x : o) x = 0;
      owner_ = &job;
      values_ = step_++;
      if constexpr (Tile::kRagged) {
        const int left = job.sight.keys - tile * Tile::kKeys;
        tail_ = left < Tile::kKeys ? left : 0;
      }
#pragma unroll 1
      for (--tile; tile >= begin; --tile) {
        issue(s, o, weights);
        tail_ = 0;
        const bool known = kFollows && all_rows(job, online.knows(0), online.knows(1));
        await_scores(s);
        if (!kFollows) leave_keys(tile == begin);
        const bool grew = weigh(job, seen, tile, online, known, s, by);
        if (kFollows) leave_keys(tile == begin);  // a warp may have wanted them once more
        leave_sums(o);
        if (grew) shrink<!kFollows>(o, by);
        narrow_weights<Stored>(s, weights);
        values_ = step_++;
      }
    }
    finish_sums();
    if (rows_.thread == 0) tma::wait_stores();
  }

 private:
  // The scores of this step and the sums that are under way.
  __device__ void issue(Scores& s, Sums& o, const Weights& weights) const {
    shared_.k_ring.wait_full(step_);
    turns_.take();
    issue_scores(s);
    if (owner_ != nullptr) await_values();
    issue_sums(o, weights);
    turns_.pass();
  }

  // Past the last key of a sequence lie another's, or none's: with a weight of 0 they must not be
  // NaN either. What lies past the tensor's end has come as zeros.
  __device__ void await_values() const {
    shared_.v_ring.wait_full(values_);
    if (!Tile::kRagged || tail_ == 0) return;
    auto& v = shared_.v[shared_.v_ring.stage(values_)];
    constexpr int kSixteens = kColumns / 8;
    for (int i = rows_.thread; i < (Tile::kKeys - tail_) * kSixteens; i += kWarpgroup) {
#pragma unroll
      for (int panel = 0; panel < Tile::kPanels; ++panel) {
        auto* row = reinterpret_cast<uint4*>(v[panel][tail_ + i / kSixteens]);
        row[i % kSixteens] = make_uint4(0, 0, 0, 0);
      }
    }
    tma::publish();
    rows_.sync();
  }

  __device__ void await_scores(Scores& s) const {
    wgmma::wait<1>();
    wgmma::pin(s);
  }

  // A warp leaves what it has read, whatever the others have read.
  __device__ void leave_keys(bool last) const {
    if (!rows_.leads()) return;
    shared_.k_ring.leave(step_);
    if (last) shared_.q_ring.leave(jobs_);
  }

  __device__ void leave_sums(Sums& o) const {
    wgmma::wait<0>();
    wgmma::pin(o);
    if (rows_.leads() && owner_ != nullptr) shared_.v_ring.leave(values_);
  }

  __device__ void issue_scores(Scores& s) const {
    const std::uint64_t left =
        wgmma::operand(&shared_.q[shared_.q_ring.stage(jobs_)][0][rows_.group * kRows][0]);
    const std::uint64_t right = wgmma::operand(&shared_.k[shared_.k_ring.stage(step_)][0][0][0]);
    wgmma::fence();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      // 16 columns are 32 bytes of a swizzled row; addresses in operands count 16.
      const int panel = 16 * i / kColumns;
      const int column = 16 * i % kColumns * 2 / 16;
      const auto at_left = left + panel * (sizeof shared_.q[0][0] / 16) + column;
      const auto at_right = right + panel * (sizeof shared_.k[0][0] / 16) + column;
      i == 0 ? wgmma::scores<Stored, false>(s, at_left, at_right)
             : wgmma::scores<Stored, true>(s, at_left, at_right);
    }
    wgmma::commit();
  }

  __device__ void issue_sums(Sums& o, const Weights& weights) const {
    const auto& v = shared_.v[shared_.v_ring.stage(values_)];
    const std::uint64_t right = wgmma::operand(&v[0][0][0], sizeof v[0]);
    wgmma::fence();
#pragma unroll
    for (int i = 0; i < kKeySteps; ++i) {
      wgmma::sums<Stored>(o, weights[i], right + i * (16 * sizeof v[0][0] / 16));
    }
    wgmma::commit();
  }

  // Scores of a tile to weights. Where maxima are known already, the weights follow them; a warp in
  // which one was far too small computes its scores once more. True: maxima grew, and the sums from
  // before have to shrink.
  __device__ bool weigh(const Job& job, const SightOfRows& seen, int tile, Online& online,
                        bool known, Scores& s, float (&by)[2]) const {
#pragma unroll 1
    for (;; known = false) {
      make_logits(job, seen, tile, s);
      if (!kFollows || !known) break;
      float d[2];
      online.follow(s, d);
      if (all_rows(job, Online::small<Stored>(d[0]), Online::small<Stored>(d[1]))) {
        online.add(d);
        return false;
      }
      score_again(s);
    }
    online.absorb(s, by);
    // The assembler would move the wait for the sums above all this. Past what may end the kernel
    // it moves nothing.
    if constexpr (!kFollows) {
      if (online.never()) __trap();
    }
    return true;
  }

  // Whether it is so for all rows of the warp's; what a tile has past a sequence's last, which may
  // be another sequence's, has no say.
  __device__ bool all_rows(const Job& job, bool upper, bool lower) const {
    const int rows = Tile::kRagged ? job.sight.queries - rows_.row(job) : 2 * kRows;
    return __all_sync(0xFFFFFFFFU, (upper || rows <= 0) && (lower || rows <= 8));
  }

  __device__ void make_logits(const Job& job, const SightOfRows& seen, int tile, Scores& s) const {
    if (!p_.plain) {
      const Cap& cap = p_.cap;
      if (cap.any()) {
#pragma unroll
        for (float& x : s) x = cap.capped(x);
      } else {
#pragma unroll
        for (float& x : s) x = cap.scaled(x);
      }
    }
    if (!seen.by_all(tile * Tile::kKeys, Tile::kKeys)) {
      const int upper = rows_.row(job);
      const Sight& of = rows_.sight(job);
      const Seen own{{of.begin(upper), of.begin(upper + 8)}, {of.end(upper), of.end(upper + 8)}};
      hide(s, own, tile * Tile::kKeys + rows_.thread % 4 * 2);
    }
  }

  // The scores of one warp, by products of its own. That is seldom wanted, and must not cost
  // registers elsewhere: nothing of it is worked out before, and the assembler, which does not know
  // how many steps there are, takes them one by one.
  __device__ void score_again(Scores& s) const {
    using Tiles = mma::Swizzled<kColumns>;
    unsigned thread = threadIdx.x;
    asm volatile("" : "+r"(thread));
    const auto lane = static_cast<int>(thread % 32);
    const auto& q = shared_.q[shared_.q_ring.stage(jobs_)];
    const auto& k = shared_.k[shared_.k_ring.stage(step_)];
    const unsigned own_q = shared_address(q[0][(thread - kWarpgroup) / 32 * 16]);
    unsigned left_at = Tiles::at(own_q, lane % 16, lane / 16);
    unsigned right_at = Tiles::at(shared_address(k[0]), lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
    for (float& x : s) x = 0;
#pragma unroll 1
    for (int column = 0; column < p_.dim; column += 16) {
      const unsigned turn = column * 2 % Tiles::kRowBytes;
      unsigned left[4];
      mma::load4(left, left_at ^ turn);
#pragma unroll
      for (int i = 0; i < kKeySteps; ++i) {
        unsigned right[4];
        mma::load4(right, (right_at ^ turn) + i * 16 * Tiles::kRowBytes);
        mma::add_product<Stored>(s, 8 * i, left, right[0], right[1]);
        mma::add_product<Stored>(s, 8 * i + 4, left, right[2], right[3]);
      }
      if (column % kColumns == kColumns - 16) {
        left_at += sizeof q[0];
        right_at += sizeof k[0];
      }
    }
  }

  // A tile without rows for this warpgroup, of which it reads nothing; or without keys:
  // zeros, and the sink.
  __device__ void pass_by(const Job& job) {
    if (rows_.any(job)) rows_.finish(job, Online(kLog2E), Sums{});
#pragma unroll 1
    for (int tile = job.keys.begin; tile < job.keys.end; ++tile) pass_step();
    if (!job.sees()) rows_.sync();  // all have seen that the queries' stage is full
    if (rows_.leads()) shared_.q_ring.leave(jobs_);
  }

  // A step without anything for this warpgroup. It takes its turn when all of its threads have seen
  // that the stage is full: one that still looked when it is filled again would never see it.
  __device__ void pass_step() {
    shared_.k_ring.wait_full(step_);
    shared_.v_ring.wait_full(step_);
    turns_.take();
    turns_.pass();
    if (rows_.leads()) {
      shared_.k_ring.leave(step_);
      shared_.v_ring.leave(step_);
    }
    ++step_;
  }

  const Params& p_;
  Shared<Stored, Tile>& shared_;
  Rows<Stored, Tile> rows_;
  PingPong<Tile::kGroups> turns_;
  unsigned step_ = 0;           // tiles of keys so far, and
  unsigned jobs_ = 0;           // of queries
  unsigned values_ = 0;         // the step whose sums are under way,
  const Job* owner_ = nullptr;  // and the job
  int tail_ = 0;                // keys of their values, where some after these must not count
};

}  // namespace onepass::ops::attention::hopper
