// What computes in the Hopper kernel: a warpgroup's 64 rows of queries, tile after tile.
#pragma once

#include "core/mma.cuh"
#include "core/number.cuh"
#include "core/wgmma.cuh"
#include "ops/attention/hopper.cuh"

namespace onepass::ops::attention::hopper {

// Warpgroups take turns at the tensor cores: while one has its products issued, the next exponentiates. A barrier
// of the block each, by number; 0 is __syncthreads'.
template <int Groups>
class PingPong {
 public:
  __device__ explicit PingPong(int group) : group_(group) {
    if (group == Groups - 1) pass();
  }
  __device__ void take() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group_), "n"(2 * kWarpgroup) : "memory");
  }
  __device__ void pass() const {
    const int next = group_ + 1 == Groups ? 0 : group_ + 1;
    asm volatile("bar.arrive %0, %1;" ::"r"(1 + next), "n"(2 * kWarpgroup) : "memory");
  }

 private:
  int group_;
};

// One warpgroup: 64 rows of queries of every tile.
template <class Stored, class Tile>
class Consumer {
  static constexpr int kSteps = Tile::kDim / 16;  // of a product over the dim, and
  static constexpr int kKeySteps = Tile::kKeys / 16;
  using Scores = float[Tile::kKeys / 2];
  using Sums = float[Tile::kDim / 2];
  using Weights = unsigned[kKeySteps][4];
  // Measured (docs/facts.md): at dim 256 products are the limit, and registers are wanted for them.
  static constexpr bool kFollows = Tile::kDim <= 192;

 public:
  __device__ Consumer(const Params& p, Shared<Stored, Tile>& shared, int group)
      : p_(p),
        shared_(shared),
        group_(group),
        thread_(static_cast<int>(threadIdx.x) % kWarpgroup),
        turns_(group) {}

  // A step is a tile of keys. The products of its scores run beside those of the values of the step before, which
  // may be another tile of queries, and both beside the exponentials of the other warpgroups. Products and waits
  // stand outside of all branches: inside, the compiler would wait after each product.
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
      finish(*owner_, online, o);
      owner_ = nullptr;
    };

#pragma unroll 1
    for (;; ++jobs_) {
      shared_.q_ring.wait_full(jobs_);
      const Job& job = shared_.job(jobs_);
      if (!job.any()) break;
      if (!job.sees() || first_row(job) >= sight(job).queries) {
        finish_sums();
        pass_by(job);
        continue;
      }
      const attention_tiles::SightOfRows seen =
          attention_tiles::of_rows(sight(job), first_row(job), kRows);
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
      if (owner_ != nullptr) finish(*owner_, before, o);
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
    if (thread_ == 0) tma::wait_stores();
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

  // Past the last key of a sequence lie another's, or nobody's: with a weight of 0 they must not be
  // NaN either. What lies past the tensor's end has come as zeros.
  __device__ void await_values() const {
    shared_.v_ring.wait_full(values_);
    if (!Tile::kRagged || tail_ == 0) return;
    auto& v = shared_.v[shared_.v_ring.stage(values_)];
    constexpr int kSixteens = kColumns / 8;
    for (int i = thread_; i < (Tile::kKeys - tail_) * kSixteens; i += kWarpgroup) {
#pragma unroll
      for (int panel = 0; panel < Tile::kPanels; ++panel) {
        auto* row = reinterpret_cast<uint4*>(v[panel][tail_ + i / kSixteens]);
        row[i % kSixteens] = make_uint4(0, 0, 0, 0);
      }
    }
    tma::publish();
    sync();
  }

  __device__ void await_scores(Scores& s) const {
    wgmma::wait<1>();
    wgmma::pin(s);
  }

  // A warp leaves what it has read, whoever has not yet.
  __device__ void leave_keys(bool last) const {
    if (!leads()) return;
    shared_.k_ring.leave(step_);
    if (last) shared_.q_ring.leave(jobs_);
  }

  __device__ void leave_sums(Sums& o) const {
    wgmma::wait<0>();
    wgmma::pin(o);
    if (leads() && owner_ != nullptr) shared_.v_ring.leave(values_);
  }

  __device__ const attention_tiles::Sight& sight(const Job& job) const {
    return Tile::kRagged ? job.sight : p_.sight;
  }

  __device__ bool leads() const { return thread_ % 32 == 0; }

  // A query's place in the tensor.
  __device__ static int token(const Job& job, int query) {
    return Tile::kRagged ? job.q_token + query : query;
  }

  // Of this warpgroup's.
  __device__ int first_row(const Job& job) const { return job.first_query + group_ * kRows; }

  // The upper of this thread's two rows; the lower is 8 further.
  __device__ int row(const Job& job) const {
    return first_row(job) + thread_ / 32 * 16 + thread_ % 32 / 4;
  }

  __device__ void issue_scores(Scores& s) const {
    const std::uint64_t left =
        wgmma::operand(&shared_.q[shared_.q_ring.stage(jobs_)][0][group_ * kRows][0]);
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

  // Scores of a tile to weights. Where maxima are known already, the weights follow them; a warp in which one was far
  // too small computes its scores once more. True: maxima grew, and the sums from before have to shrink.
  __device__ bool weigh(const Job& job, const attention_tiles::SightOfRows& seen, int tile,
                        Online& online, bool known, Scores& s, float (&by)[2]) const {
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
    // The assembler would move the wait for the sums above all this. Past what may end the kernel it moves nothing.
    if constexpr (!kFollows) {
      if (online.never()) __trap();
    }
    return true;
  }

  // Whether it is so for all rows of the warp's; what a tile has past a sequence's last, which may be another
  // sequence's, has no say.
  __device__ bool all_rows(const Job& job, bool upper, bool lower) const {
    const int rows = Tile::kRagged ? job.sight.queries - row(job) : 2 * kRows;
    return __all_sync(0xFFFFFFFFU, (upper || rows <= 0) && (lower || rows <= 8));
  }

  __device__ void make_logits(const Job& job, const attention_tiles::SightOfRows& seen, int tile,
                              Scores& s) const {
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
      const int upper = row(job);
      const attention_tiles::Sight& of = sight(job);
      const Seen own{{of.begin(upper), of.begin(upper + 8)}, {of.end(upper), of.end(upper + 8)}};
      hide(s, own, tile * Tile::kKeys + thread_ % 4 * 2);
    }
  }

  // The scores of one warp, by products of its own. That is seldom wanted, and must not cost registers elsewhere:
  // nothing of it is worked out before, and the assembler, which does not know how many steps there are, takes them
  // one by one.
  __device__ void score_again(Scores& s) const {
    using Rows = mma::Swizzled<kColumns>;
    unsigned thread = threadIdx.x;
    asm volatile("" : "+r"(thread));
    const auto lane = static_cast<int>(thread % 32);
    const auto& q = shared_.q[shared_.q_ring.stage(jobs_)];
    const auto& k = shared_.k[shared_.k_ring.stage(step_)];
    const unsigned own_q = shared_address(q[0][(thread - kWarpgroup) / 32 * 16]);
    unsigned left_at = Rows::at(own_q, lane % 16, lane / 16);
    unsigned right_at = Rows::at(shared_address(k[0]), lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
    for (float& x : s) x = 0;
#pragma unroll 1
    for (int column = 0; column < p_.dim; column += 16) {
      const unsigned turn = column * 2 % Rows::kRowBytes;
      unsigned left[4];
      mma::load4(left, left_at ^ turn);
#pragma unroll
      for (int i = 0; i < kKeySteps; ++i) {
        unsigned right[4];
        mma::load4(right, (right_at ^ turn) + i * 16 * Rows::kRowBytes);
        mma::add_product<Stored>(s, 8 * i, left, right[0], right[1]);
        mma::add_product<Stored>(s, 8 * i + 4, left, right[2], right[3]);
      }
      if (column % kColumns == kColumns - 16) {
        left_at += sizeof q[0];
        right_at += sizeof k[0];
      }
    }
  }

  // The sums of two rows to their place, as means.
  __device__ void finish(const Job& job, const Online& online, const Sums& o) const {
    const Heads& sinks = p_.sinks;
    const int upper = row(job);
    const State<float> sink =
        sinks ? leaf(read<float>(sinks.data, sinks.dtype, sinks.offset(0, job.head, 0)))
              : identity<float>();
    float by[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const State<float> seen = online.row(r);
      const State<float> all = sinks ? merge(seen, sink) : seen;
      by[r] = factor(all, seen.m);
      if (upper + 8 * r < sight(job).queries) write_lse(job, upper + 8 * r, all);
    }
    if constexpr (Tile::kStaged) {
      store_staged(job, o, by);
    } else {
      store(job, o, by);
    }
  }

  // Four neighbouring lanes write 64 bytes of a row.
  __device__ void store(const Job& job, const Sums& o, const float (&by)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      unsigned words[Tile::kDim / 8];
#pragma unroll
      for (int i = 0; i < Tile::kDim / 8; ++i) {
        words[i] = narrow_pair<Stored>(o[4 * i + 2 * r] * by[r], o[4 * i + 2 * r + 1] * by[r]);
      }
      gather_sixteens(words);
      const int query = row(job) + 8 * r;
      if (query >= sight(job).queries) continue;
      Stored* to = row_of_o(job, query) + thread_ % 4 * 8;
#pragma unroll
      for (int i = 0; i < Tile::kDim / 32; ++i) {
        *reinterpret_cast<uint4*>(to + 32 * i) =
            make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
      }
    }
  }

  // By the copy engine, from shared memory that is swizzled as the tiles that come are.
  __device__ void store_staged(const Job& job, const Sums& o, const float (&by)[2]) const {
    if (thread_ == 0) tma::wait_stores();  // of the tile before
    sync();
    const int lane = thread_ % 32;
    const unsigned to =
        shared_address(&shared_.o[0][group_ * kRows + thread_ / 32 * 16 + lane % 16][0]);
    const auto turn = static_cast<unsigned>(lane / 16 ^ lane % 8);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      unsigned words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = 8 * i + 2 * j;
        words[j] = narrow_pair<Stored>(o[at] * by[j % 2], o[at + 1] * by[j % 2]);
      }
      const unsigned panel = 16 * i / kColumns;
      mma::store4(to + panel * sizeof shared_.o[0] + (turn ^ 2 * i % 8) * 16, words);
    }
    tma::publish();
    sync();
    if constexpr (Tile::kRagged) {
      const int rows = job.sight.queries - first_row(job);
      if (p_.packed && rows < kRows) {
        copy_rows(job, rows);  // past the last lie another sequence's
        return;
      }
    }
    if (thread_ != 0) return;
#pragma unroll
    for (int i = 0; i < Tile::kPanels; ++i) {
      tma::store(p_.out, {i * kColumns, token(job, first_row(job)), job.head, job.batch},
                 shared_.o[i][group_ * kRows]);
    }
    tma::commit_stores();
  }

  // By the threads themselves, out of shared memory.
  __device__ void copy_rows(const Job& job, int rows) const {
    constexpr int kSixteens = Tile::kDim / 8;  // a row
#pragma unroll 1
    for (int i = thread_; i < rows * kSixteens; i += kWarpgroup) {
      const int row = i / kSixteens;
      const int chunk = i % kSixteens;
      const auto* from = reinterpret_cast<const uint4*>(shared_.o[chunk / 8][group_ * kRows + row]);
      auto* to = reinterpret_cast<uint4*>(row_of_o(job, first_row(job) + row));
      to[chunk] = from[chunk % 8 ^ row % 8];
    }
  }

  __device__ Stored* row_of_o(const Job& job, int query) const {
    const Heads& o = p_.o;
    return static_cast<Stored*>(o.data) + o.offset(job.batch, job.head, token(job, query));
  }

  // A tile without rows for this warpgroup, of which it reads nothing; or without keys: zeros, and the sink.
  __device__ void pass_by(const Job& job) {
    if (first_row(job) < sight(job).queries) finish(job, Online(kLog2E), Sums{});
#pragma unroll 1
    for (int tile = job.keys.begin; tile < job.keys.end; ++tile) pass_step();
    if (!job.sees()) sync();  // all have seen that the queries' stage is full
    if (leads()) shared_.q_ring.leave(jobs_);
  }

  // A step without anything for this warpgroup. It takes its turn when all of its threads have seen that the stage is
  // full: one that still looked when it is filled again would never see it.
  __device__ void pass_step() {
    shared_.k_ring.wait_full(step_);
    shared_.v_ring.wait_full(step_);
    turns_.take();
    turns_.pass();
    if (leads()) {
      shared_.k_ring.leave(step_);
      shared_.v_ring.leave(step_);
    }
    ++step_;
  }

  // Of the warpgroup.
  __device__ void sync() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + Tile::kGroups + group_), "n"(kWarpgroup) : "memory");
  }

  __device__ void write_lse(const Job& job, int query, const State<float>& row) const {
    const Heads& lse = p_.lse;
    if (!lse || thread_ % 4 != 0) return;
    const std::int64_t at = lse.offset(job.batch, job.head, token(job, query));
    if (lse.dtype == DType::f64) {
      static_cast<double*>(lse.data)[at] = logsumexp(row);
    } else {
      static_cast<float*>(lse.data)[at] = logsumexp(row);
    }
  }

  const Params& p_;
  Shared<Stored, Tile>& shared_;
  int group_, thread_;
  PingPong<Tile::kGroups> turns_;
  unsigned step_ = 0;           // tiles of keys so far, and
  unsigned jobs_ = 0;           // of queries
  unsigned values_ = 0;         // the step whose sums are under way,
  const Job* owner_ = nullptr;  // and the job
  int tail_ = 0;                // keys of their values, where some after these must not count
};

}  // namespace onepass::ops::attention::hopper
