#include "rows/gpu/best.hpp"

#include <algorithm>

#include "rows/gpu/tuning.hpp"

namespace onepass::gpu_rows {
namespace {

// The problem as it is judged: where a row's bits shall not depend on the number of rows, as if
// there were many.
Problem judged(const Problem& p) {
  Problem many = p;
  if (p.batch_invariant) many.rows = 1024;
  return many;
}

// Of a grid, the judged problem says how a row is cut; no more blocks than the rows have parts.
RowLaunch best_launch(const Config& config, const Problem& p, const Machine& m) {
  if (config.kernel != Kernel::grid) return launch_of(config, p, m);
  RowLaunch launch = launch_of(config, judged(p), m);
  auto& grid = std::get<GridLaunch>(launch);
  grid.blocks = std::min(grid.blocks, std::max<std::int64_t>(p.rows, 1) * grid.split);
  return launch;
}

template <class OwnBest>
RowLaunch launch_as(Kind kind, const Problem& p, const Machine& m, Reasons* reasons,
                    OwnBest own_best) {
  say(reasons, p.rows, " rows of ", packs(p), " packs of 16 bytes, for ", m.gpu.processors, " SMs");
  const Config config = best(p, m).config;
  return kind_of(config) == kind ? best_launch(config, p, m) : own_best();
}

}  // namespace

RowLaunch launch_of(const Config& config, const Problem& p, const Machine& m) {
  switch (config.kernel) {
    case Kernel::group: {
      GroupLaunch launch = group_launch(p, m, config.packs);
      launch.whole = takes_whole(launch, p);
      return launch;
    }
    case Kernel::block: {
      BlockLaunch launch = block_launch(p, m, config.split, config.packs);
      launch.whole = takes_whole(launch, p, m);
      return launch;
    }
    case Kernel::grid: break;
  }
  return grid_launch(p, m);
}

Best best(const Problem& p, const Machine& m) {
  const Problem of = judged(p);
  if (m.tuned != nullptr) {
    if (const auto measured = m.tuned->find(of, m)) return {*measured, true};
  }
  return {derived_config(of, m), false};
}

Kind best_kind(const Problem& p, const Machine& m, Reasons* why) {
  const Best chosen = best(p, m);
  if (why != nullptr) {  // names are made for nothing else
    say(why, name_of(chosen.config),
        chosen.measured ? " was the fastest at the nearest point of the tuning table"
                        : " follows from the machine's limits: no measured point is near",
        p.batch_invariant ? ", by the columns alone" : "");
  }
  return kind_of(chosen.config);
}

RowLaunch group(const Problem& p, const Machine& m, Reasons* reasons) {
  return launch_as(Kind::group, p, m, reasons, [&] { return launch_of(best_group(p, m), p, m); });
}

RowLaunch block(const Problem& p, const Machine& m, Reasons* reasons) {
  return launch_as(Kind::block, p, m, reasons, [&] { return launch_of(one_block(p, m), p, m); });
}

RowLaunch cluster(const Problem& p, const Machine& m, Reasons* reasons) {
  return launch_as(Kind::cluster, p, m, reasons, [&] {
    Config config = best_block(p, m);
    config.split = std::max(config.split, 2);
    return launch_of(config, p, m);
  });
}

RowLaunch grid(const Problem& p, const Machine& m, Reasons* reasons) {
  return launch_as(Kind::grid, p, m, reasons, [&] { return RowLaunch(grid_launch(p, m)); });
}

}  // namespace onepass::gpu_rows
