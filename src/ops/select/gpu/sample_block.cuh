// The kernel of sample_block.cu and its launch for dense rows of one stored type, or for any.
#pragma once

#include "ops/select/gpu/launch.cuh"
#include "ops/select/gpu/sample.cuh"
#include "ops/select/gpu/search.cuh"
#include "ops/select/gpu/variants.hpp"
#include "rows/packs.hpp"

namespace onepass::ops::select {

struct SampleShared {
  Team::Shared team;
  SearchShared search;
  Key winner;  // among the candidates; 0 where they are not enough
};

// Among so many that no list has them: those from the limits of the filters on. All memory of
// the launch is free.
template <class Row>
__device__ __noinline__ Key race_of_left(Draw draw, Noise noise, Row row, int cols,
                                         State<float> state, SampleShared& shared) {
  extern __shared__ __align__(16) std::byte memory[];
  const SearchMemory free{reinterpret_cast<unsigned*>(memory),
                          reinterpret_cast<Key*>(memory + SearchMemory::kBins * sizeof(unsigned)),
                          BestKeys::room()};
  const Search<Row> search(shared.search, free, row, cols, state.m, false);
  const float least =
      draw.min_p > 0 ? state.m + static_cast<float>(log(draw.min_p)) : minus_infinity<float>();
  // Weights of 1, or a probability's of those from the limit of top_k on: one search is
  // compiled for both.
  Key limit = 0;
  bool counts = true;
  const auto weigh = [&](float x, unsigned index) {
    if (counts) return 1.0F;
    return limit == 0 || key_of(x, index) >= limit ? exponential(row.z(x) - state.m) : 0.0F;
  };
#pragma unroll 1
  for (;; counts = false) {
    if (counts ? draw.top_k > 0 : draw.top_p < 1) {
      const double all = counts ? 1 : limit > 0 ? search.sum(weigh) : static_cast<double>(state.d);
      const double wanted = counts ? static_cast<double>(draw.top_k) : draw.top_p * all;
      limit = max(limit, search.from(wanted, counts ? 1.0F : 0x1p31F / state.d, weigh));
    }
    if (!counts) break;
  }
  // From the limit on: larger, or as large and not behind it. One below all keys has no value.
  const bool limits = limit >= lowest_limit();
  const float lowest = limits ? value_of(limit) : minus_infinity<float>();
  const unsigned last = limits ? index_of(limit) : ~0U;
  const auto keep_left = [&]<int N>(float(&z)[N][4], int first, int step) {
#pragma unroll
    for (int j = 0; j < 4 * N; ++j) {
      const float x = z[j / 4][j % 4];
      const auto token = static_cast<unsigned>(4 * (first + j / 4 * step) + j % 4);
      const bool left = x > lowest || (x == lowest && token <= last);
      z[j / 4][j % 4] = left && row.z(x) >= least ? row.z(x) : minus_infinity<float>();
    }
  };
  const Contest contest = race<true>(row, cols, 0, (cols + 3) / 4, noise, state.m, keep_left);
  return winner_of_block(contest, shared.team.best.keys);
}

template <class Row>
__global__ void __launch_bounds__(gpu_select::kMostThreads, Row::kBlocksAtOnce)
    sample_block_rows(const __grid_constant__ typename Row::Args args,
                      const __grid_constant__ CommonOf<typename Row::Place> common,
                      const __grid_constant__ SampleOptionsOfRows<typename Row::Place> options,
                      const __grid_constant__ Meeting meeting) {
  extern __shared__ __align__(16) std::byte memory[];
  __shared__ SampleShared shared;
  await_previous();
  const Team team(shared.team, {memory, common.stages, Row::kPacks}, meeting);
  const std::int64_t at = common.first_row + team.row();
  const Draw draw(common, options, at);
  const auto cols = static_cast<int>(common.space.cols);
  const Row row(args, at, common.factor_for(draw.temperature), draw.temperature);
  BestKeys best = team.best_of(draw.candidates(options.most_candidates));
  const Part<Row> part(row, common.size, team.rank());
  const bool races = draw.races();
  Selected selected;
  if (races) {
    const Raced raced =
        race_all(row.usual(), cols, team.rank(), team.size(), noise_of(common, options, at), best);
    selected = team.select_offered(best, {raced.state, 0}, raced.best);
  } else {
    selected = team.select(part, best, Target{}, false);
  }
  if (!selected.mine) return;
  assume_shared(selected.keys);
  const State<float> state = selected.total.state;
  const bool valid = !draw.bad && state.d > 0 && state.m < -minus_infinity<float>();
  // The token, and its x where that is at hand.
  Key winner = 0;
  bool has_x = false;
  if (valid && races && fabsf(state.m - start_of(row, cols)) > kFarFromStart) {
    winner = race_of_left(draw, noise_of(common, options, at), row.usual(), cols, state, shared);
  } else if (valid && (races || draw.greedy)) {
    winner = selected.keys[0];
    has_x = draw.greedy;
  } else if (valid) {
    const Noise noise = noise_of(common, options, at);
    if (threadIdx.x < kWarp) {
      const bool whole = selected.count < best.k() || best.k() >= cols;
      const bool all = whole || (draw.top_k > 0 && selected.count >= draw.top_k);
      const Key key = key_of_winner(draw, OwnNoise{noise}, row.factor(), selected, all);
      if (threadIdx.x == 0) shared.winner = key;
    }
    __syncthreads();
    has_x = shared.winner != 0;
    winner = has_x ? shared.winner : selected.keys[0];
    __syncthreads();  // the candidates' memory is free
    if (!has_x) {
      const Key left = race_of_left(draw, noise, row.usual(), cols, state, shared);
      if (left != 0) winner = left;  // or else the likeliest: no other is left, by rounding
    }
  }
  if (threadIdx.x != 0) return;
  write_token(common, options, at, row, state, valid, winner, has_x);
  write_valid(common, options, at, valid);
}

template <class In>
Status gpu_sample_block_of(const RowArgs& args, const gpu_select::SelectLaunch& select) {
  const auto run = [&]<class Row>(Type<Row>) {
    using Place = typename Row::Place;
    return launch_select(sample_block_rows<Row>, "sample", args, select,
                         common_of<Place>(args, args.select->temperature, select),
                         sample_options<Place>(*args.select, args, select.most_candidates()));
  };
  if constexpr (std::is_void_v<In>) {
    return run(Type<SelectRow<float, void>>{});
  } else {
    return with_dense_row_of<In>(select.packs, run);
  }
}

}  // namespace onepass::ops::select
