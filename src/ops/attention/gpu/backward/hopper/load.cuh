// What a warpgroup does for the two that compute: a warp loads tiles by the copy engine, one brings
// the rows' lse and mean gradient, one waits for the turns of the parts of dq, and one adds them.
#pragma once

#include "ops/attention/gpu/backward/hopper/tile.cuh"

namespace onepass::ops::attention::backward_hopper {

// By one thread.
template <class Stored, class Tile>
__device__ inline void load_tiles(const Params<Tile>& p, Shared<Stored, Tile>& shared) {
  const auto load = [](auto& panels, const CUtensorMap& map, int token, int head,
                       std::int64_t batch, Mbarrier& barrier) {
#pragma unroll
    for (int i = 0; i < Tile::kPanels; ++i) {
      tma::load(panels[i], map, {i * kColumns, token, head, static_cast<int>(batch)}, barrier);
    }
  };
  // What a column begins with is loaded while the one before ends, where its place is free early.
  unsigned step = 0, columns = 0;
  each_column(p, [&](const Turn& turn, int key_tile, const Column& column, int) {
    const int key = key_tile * Tile::kKeys;
    bool first = true;
    for (Steps steps(p.turns, column); steps.left() > 0; steps.advance(), ++step) {
      const int head = turn.head(p, steps.head());
      const int query = steps.query_tile() * Tile::kQueries;
      const int stage = static_cast<int>(step % Tile::kStages);
      load(shared.q[stage], p.q, query, head, turn.batch,
           shared.q_ring.fill(step, Tile::kQueryBytes));
      if (first) {
        load(shared.v, p.v, key, turn.kv_head, turn.batch,
             shared.v_ring.fill(columns, Tile::kKeyBytes));
        load(shared.k, p.k, key, turn.kv_head, turn.batch,
             shared.k_ring.fill(columns++, Tile::kKeyBytes));
        first = false;
      }
      load(shared.d_o[stage], p.d_o, query, head, turn.batch,
           shared.d_o_ring.fill(step, Tile::kQueryBytes));
    }
  });
}

// Keys as far from their query as no window is.
inline constexpr int kFar = 1 << 30;

__device__ inline StepSight sight_of_step(const Sight& sight, int first_query, int queries,
                                          int first_key) {
  const int low = sight.before < 0 ? -kFar : -sight.before;
  const int high = sight.after < 0 ? kFar : sight.after;
  StepSight step{first_key - sight.own(first_query) - low, static_cast<unsigned>(high - low), {}};
  const SightOfRows seen = of_rows(sight, first_query, queries);
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    step.whole[group] = seen.by_all(first_key + 64 * group, 64);
  }
  return step;
}

// By a warp: what the others have to know of columns and of steps. A row past the last has no
// weight.
template <class Stored, class Tile>
__device__ inline void load_rows(const Params<Tile>& p, Shared<Stored, Tile>& shared) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  unsigned step = 0, columns = 0;
  const auto say = [&](const Job& job) {
    if (lane == 0) {
      shared.job_ring.wait_empty(columns);
      shared.jobs[columns % 2] = job;
      tma::arrive(shared.job_ring.full[columns % 2]);
    }
    ++columns;
  };
  each_column(p, [&](const Turn& turn, int key_tile, const Column& column, int) {
    const int first_key = key_tile * Tile::kKeys;
    if (first_key >= turn.sight.keys) return;
    say({p.turns.steps(column), first_key, turn.sight.keys, turn.kv_head, turn.batch,
         turn.s.k_first});
    for (Steps steps(p.turns, column); steps.left() > 0; steps.advance(), ++step) {
      const int head = turn.head(p, steps.head());
      const int first = steps.query_tile() * Tile::kQueries;
      BackwardRow rows[Tile::kQueries / 32];
#pragma unroll
      for (int i = 0; i < Tile::kQueries / 32; ++i) {
        const int query = first + 2 * (lane + i / 2 * 32) + i % 2;
        rows[i] = {-minus_infinity<float>(), 0};
        if (query < turn.sight.queries) {
          rows[i] = backward_row(p.args, turn.batch, head, turn.s.q_first + query);
        }
      }
      shared.row_ring.wait_empty(step);
      PairOfRows* const to = shared.rows[step % Tile::kStages];
#pragma unroll
      for (int i = 0; i < Tile::kQueries / 32; i += 2) {
        to[lane + i / 2 * 32] = {{rows[i].lse * kLog2E, rows[i + 1].lse * kLog2E},
                                 {rows[i].mean, rows[i + 1].mean}};
      }
      if (lane == 0) {
        shared.sights[step % Tile::kStages] =
            sight_of_step(turn.sight, first, Tile::kQueries, first_key);
      }
      __syncwarp();
      if (lane == 0) tma::arrive(shared.row_ring.full[step % Tile::kStages]);
    }
  });
  say({.steps = -1});
}

__device__ inline void await_turn(const int* added, int before) {
  int now;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(added) : "memory");
  } while (now != before);
}

__device__ inline void say_added(int* added, int parts) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(added), "r"(parts) : "memory");
}

// By a warp: waits for the turn of each part, so that the sums do not depend on who is faster.
template <class Stored, class Tile>
__device__ inline void order_parts(const Params<Tile>& p, Shared<Stored, Tile>& shared) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const auto& turns = p.turns;
  unsigned step = 0;
  Part next{-2, 0};  // −2: none yet
  const auto pass_on = [&](const Part& part) {
    if (part.tile == -2) return;
    if (lane == 0) {
      if (part.tile >= 0) await_turn(p.added + part.tile, part.before);
      shared.part_ring.wait_empty(step);
      shared.parts[step % 2] = part;
      tma::arrive(shared.part_ring.full[step % 2]);
    }
    ++step;
  };
  each_column(p, [&](const Turn& turn, int, const Column& column, int steps_before) {
    const int round = turns.round(turn.kv_head_of_all, turn.place);
    const int first = turns.first_of_round(turn.kv_head_of_all, round);
    const int end = turns.end_of_round(turn.kv_head_of_all, round);
    __syncwarp();
    for (int place = first + lane; place < end; place += 32) {
      shared.rivals[place - first] = Rival(turns, turn.sight, place);
    }
    __syncwarp();
    for (Steps steps(turns, column); steps.left() > 0; steps.advance(), ++steps_before) {
      int before = 0;
      for (int place = first + lane; place < end; place += 32) {
        before += shared.rivals[place - first].adds_before(
            turns, turn.sight, place < turn.place, steps_before, steps.query_tile(), steps.head());
      }
      before = __reduce_add_sync(0xFFFFFFFFU, before) +
               turns.adders_of_turns_before(turn.sight, first, steps.query_tile());
      pass_on(next);  // worked out while the one before was waited for
      next = {turn.tile(p, steps.head(), steps.query_tile()), before};
    }
  });
  pass_on(next);
  pass_on({-1, 0});
}

// By one thread: each part goes to its place; the first is stored, the others are added.
template <class Stored, class Tile>
__device__ inline void add_parts(const Params<Tile>& p, Shared<Stored, Tile>& shared) {
  constexpr int kBytes = static_cast<int>(sizeof shared.d_q[0]);
  for (unsigned step = 0;; ++step) {
    shared.part_ring.wait_full(step);
    const Part part = shared.parts[step % 2];
    shared.part_ring.leave(step);
    if (part.tile < 0) break;
    const unsigned slot = step % Tile::kParts;
    float* const to = p.sums + part.tile * (kGroups * Tile::kSums);
    tma::wait(shared.summed[slot], step / Tile::kParts % 2);
    tma::publish_global();
    if (part.before == 0) {
      tma::store(to, shared.d_q[slot], kBytes);
    } else {
      tma::add(to, &shared.d_q[slot][0][0], kBytes);
    }
    tma::commit_stores();
    tma::wait_stores();
    tma::arrive(shared.taken[slot]);
    tma::wait_written();
    say_added(p.added + part.tile, part.before + 1);
  }
}

}  // namespace onepass::ops::attention::backward_hopper
