// Which launches can run a problem of rows on a GPU, which is the most suitable where nothing was
// measured, and their names.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "rows/gpu/plan.hpp"
#include "rows/packs.hpp"

namespace onepass::gpu_rows {

// ---- what can run -----------------------------------------------------------------------------

// A block or a cluster has one row, and a launch counts its blocks with 31 bits.
inline constexpr std::int64_t kMostBlockRows = kMostBlocks / kMostCluster;

constexpr bool fits(const Config& config, const Problem& p, const Machine& m) {
  if (p.weighted) return false;
  const std::int64_t n = packs(p);
  const bool general = is_general(p);
  switch (config.kernel) {
    case Kernel::group:
      return (config.packs == kGroupPacks || (!general && config.packs == 2)) &&
             n <= std::int64_t{kWarp} * config.packs && p.rows <= kMostBlockRows;
    case Kernel::block: {
      const std::int64_t chunk = ceil_div(n, config.split);
      const std::int64_t room = std::int64_t{kBlockThreads} * config.packs;
      const bool loops = config.packs == loop_packs(p);
      const bool kernel =
          general ? loops : config.packs == 2 || config.packs == 4 || config.packs == 8;
      const bool holds =
          chunk <= room || (loops && (!writes_rows(p) || chunk <= room + stage_packs(p, m)));
      return kernel && holds && config.split <= most_cluster(m) && p.rows <= kMostBlockRows;
    }
    case Kernel::grid: return config.packs == stream_packs(p);
  }
  return false;
}

// Every config that could be the quickest for a problem.
inline std::vector<Config> candidates(const Problem& p, const Machine& m) {
  std::vector<Config> all;
  const auto add = [&](Config config) {
    if (fits(config, p, m)) all.push_back(config);
  };
  for (const int held : {2, 4}) add({Kernel::group, held});
  for (int split = 1; split <= most_cluster(m); split *= 2) {
    if (split > 1 && packs(p) / split < 64) break;
    for (const int held : {2, 4, 8}) add({Kernel::block, held, split});
  }
  if (packs(p) >= 2048) add({Kernel::grid, stream_packs(p)});
  return all;
}

// ---- the choice where nothing was measured ----------------------------------------------------

// Short rows: four packs per lane as long as a group still reads 64 bytes side by side.
inline Config best_group(const Problem& p, const Machine&) {
  const bool wide = packs(p) >= kGroupPacks * 4;
  return {Kernel::group, wide || is_general(p) ? kGroupPacks : 2};
}

// Long rows: a block as long as its registers hold the row, else as few as do. More where the rows
// are too few for all processors and a chunk still keeps a block busy.
inline Config best_block(const Problem& p, const Machine& m) {
  const std::int64_t n = packs(p);
  const bool general = is_general(p);
  const bool pair = traffic(p.op).reads > 1;
  const int most = general ? kAnyPacks : pair ? 4 : 8;
  int split = 1;
  const auto chunk = [&] { return ceil_div(n, split); };
  while (split < most_cluster(m) && writes_rows(p) &&
         chunk() > std::int64_t{kBlockThreads} * most) {
    split *= 2;
  }
  while (split < most_cluster(m) && p.rows * split < m.gpu.processors && chunk() >= 512) split *= 2;
  if (general) return {Kernel::block, kAnyPacks, split};
  const bool few = p.rows * split < 2 * m.gpu.processors;
  for (const int held : {2, 4, 8}) {
    if (held == 2 && !few) continue;
    if (chunk() <= std::int64_t{kBlockThreads} * held) return {Kernel::block, held, split};
  }
  return {Kernel::block, loop_packs(p), split};
}

inline Config derived_config(const Problem& p, const Machine& m) {
  if (const Config config = best_group(p, m); fits(config, p, m)) return config;
  const Config config = best_block(p, m);
  const bool idles = p.rows * config.split * 2 <= m.gpu.processors &&
                     ceil_div(packs(p), config.split) >= 2 * kBlockThreads;
  if (!idles && fits(config, p, m)) return config;
  return {Kernel::grid, stream_packs(p)};
}

// As few packs per thread as keep the row in a block's registers, more than two; else the kernel
// that goes on in shared memory.
inline Config one_block(const Problem& p, const Machine& m) {
  for (const int held : {4, 8}) {
    const Config config{Kernel::block, held};
    if (packs(p) <= std::int64_t{kBlockThreads} * held && fits(config, p, m)) return config;
  }
  return {Kernel::block, loop_packs(p)};
}

// ---- configs by name --------------------------------------------------------------------------

// gpu_block:4, gpu_cluster:4:8: the packs per thread, and the blocks per row.
inline std::string name_of(const Config& config) {
  std::string text = std::string(name_of(kind_of(config))) + ":" + std::to_string(config.packs);
  if (config.split > 1) text += ":" + std::to_string(config.split);
  return text;
}

// What a name says, if it is one of a config.
inline std::optional<Config> config_named(std::string_view text) {
  Config config;
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view variant = text.substr(0, colon);
  const char* at = text.data() + colon + 1;
  const char* end = text.data() + text.size();
  auto parsed = std::from_chars(at, end, config.packs);
  if (parsed.ec == std::errc{} && parsed.ptr != end && *parsed.ptr == ':') {
    parsed = std::from_chars(parsed.ptr + 1, end, config.split);
  }
  if (parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  if (config.packs < 1 || config.split < 1) return std::nullopt;
  for (const Kernel kernel : {Kernel::group, Kernel::block, Kernel::grid}) {
    config.kernel = kernel;
    const bool splits =
        kernel == Kernel::block || config.split == 1;  // the others have no such number
    if (splits && name_of(kind_of(config)) == variant) return config;
  }
  return std::nullopt;
}

// ---- what variants refuse ---------------------------------------------------------------------

inline std::string refuse_no_gpu(const Problem& p, const Machine& m) {
  if (m.device() != Device::cuda) return "it runs on a GPU";
  return p.mixed_inputs && p.in == DType::f64 ? "y and dy must both be f64, or neither" : "";
}

inline std::string refuse_grid(const Problem& p, const Machine& m) {
  if (std::string refusal = refuse_no_gpu(p, m); !refusal.empty()) return refusal;
  return p.weighted ? "its classes have neither weights nor probabilities" : "";
}

// Whether any config of a kind of kernel takes the problem.
template <class Configs>
std::string refuse_unless(const Problem& p, const Machine& m, const Configs& configs) {
  if (std::string refusal = refuse_grid(p, m); !refusal.empty()) return refusal;
  for (const Config& config : configs) {
    if (fits(config, p, m)) return {};
  }
  if (p.rows > kMostBlockRows)
    return "it takes at most " + std::to_string(kMostBlockRows) + " rows";
  return "its rows are too long to be held here: " + std::to_string(packs(p)) +
         " packs of 16 bytes";
}

inline std::string refuse_group(const Problem& p, const Machine& m) {
  return refuse_unless(p, m, std::initializer_list<Config>{{Kernel::group, kGroupPacks}});
}
inline std::string refuse_block(const Problem& p, const Machine& m) {
  return refuse_unless(
      p, m,
      std::initializer_list<Config>{{Kernel::block, 2}, {Kernel::block, 4}, {Kernel::block, 8}});
}
inline std::string refuse_cluster(const Problem& p, const Machine& m) {
  if (m.device() == Device::cuda && most_cluster(m) < 2) return "it needs clusters (sm_90)";
  return refuse_unless(p, m,
                       std::initializer_list<Config>{{Kernel::block, loop_packs(p), kMostCluster}});
}

}  // namespace onepass::gpu_rows
