// Which kernels can select from a problem's rows on a GPU, and which is the most suitable.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/reasons.hpp"
#include "ops/select/gpu/plan.hpp"
#include "ops/select/gpu/stream_plan.hpp"
#include "rows/gpu/policy.hpp"
#include "rows/packs.hpp"

namespace onepass::gpu_select {

// ---- what can run -------------------------------------------------------------------------------

inline std::string refuse_any_k(const Problem& p, const Machine& m) {
  if (m.device() != Device::cuda) return "it runs on a GPU";
  if (p.in == DType::f64) return "it takes f32, f16 and bf16";
  if (p.cols > kMostCols) return "it takes at most " + std::to_string(kMostCols) + " columns";
  if (p.op == Op::topk && p.k > kMostSorted) {
    return "it selects at most " + std::to_string(kMostSorted);
  }
  if (p.rows > gpu_rows::kMostBlockRows) {
    return "it takes at most " + std::to_string(gpu_rows::kMostBlockRows) + " rows";
  }
  return {};
}

inline std::string refuse_wide(const Problem& p, const Machine& m) {
  if (m.device() != Device::cuda) return "it runs on a GPU";
  if (p.in != DType::f64) return "it takes f64";
  if (p.cols > kMostCols) return "it takes at most " + std::to_string(kMostCols) + " columns";
  return p.k > kMostSorted ? "it selects at most " + std::to_string(kMostSorted) : "";
}

inline std::string refuse(const Problem& p, const Machine& m) {
  if (std::string refusal = refuse_any_k(p, m); !refusal.empty()) return refusal;
  if (p.op == Op::topk && p.k > kMostK) return "it selects at most " + std::to_string(kMostK);
  return {};
}

inline std::string refuse_cluster(const Problem& p, const Machine& m) {
  if (std::string refusal = refuse(p, m); !refusal.empty()) return refusal;
  if (gpu_rows::most_cluster(m) < 2) return "it needs clusters (sm_90)";
  if (p.op == Op::topk && 2 * (p.k + 1) > 2 * kMostK) {
    return "its first block has no room for what two leave: it selects at most " +
           std::to_string(kMostK - 1);
  }
  return {};
}

inline std::string refuse_grid(const Problem& p, const Machine& m) {
  if (std::string refusal = refuse(p, m); !refusal.empty()) return refusal;
  if (p.rows > m.gpu.processors) return "its rows are more than the processors";
  return {};
}

// Rows that a few lanes hold.
inline std::string refuse_long(const Problem& p, const Machine& m, std::string_view columns) {
  if (m.device() != Device::cuda) return "it runs on a GPU";
  if (p.in == DType::f64) return "it takes f32, f16 and bf16";
  if (p.cols <= kMostExperts && p.k <= kMostGateK) return {};
  return "it takes up to " + std::to_string(kMostExperts) + " " + std::string(columns) +
         " and selects up to " + std::to_string(kMostGateK);
}
inline std::string refuse_gate(const Problem& p, const Machine& m) {
  return refuse_long(p, m, "experts");
}
inline std::string refuse_warp(const Problem& p, const Machine& m) {
  if (std::string refusal = refuse_long(p, m, "columns"); !refusal.empty()) return refusal;
  if (!p.only_scaled || !p.whole_rows) return "it has no masks, and no scale of its own for a row";
  return {};
}

// Dense rows, and a K that is known and not above `most`.
inline std::string refuse_unless_dense(const Problem& p, std::int64_t most) {
  // All columns, or a usual number, are what there is where no option says how many are enough.
  if (p.op == Op::sample && (p.k > most || p.k >= p.cols)) {
    return "it takes one top_k for all rows, up to " + std::to_string(most) +
           " and below all columns, or a temperature of 0";
  }
  if (p.k > most) return "it selects at most " + std::to_string(most);
  if (is_general(p)) return "its rows must be dense, at one stride, with no options but a scale";
  return {};
}

inline std::string refuse_stream(const Problem& p, const Machine& m) {
  if (std::string refusal = refuse_any_k(p, m); !refusal.empty()) return refusal;
  return refuse_unless_dense(p, p.op == Op::sample ? kMostSampleStream : kMostStreamK);
}

inline std::string refuse_guess(const Problem& p, const Machine& m) {
  if (std::string refusal = refuse_cluster(p, m); !refusal.empty()) return refusal;
  if (std::string refusal = refuse_unless_dense(p, kMostGuessed); !refusal.empty()) {
    return refusal;
  }
  const SelectLaunch launch = guess(p, m);
  if (fits_guess(p, m, launch)) return {};
  if (launch.chunk < launch.threads) return "its rows must have a pack for every thread";
  return "its blocks must have all of a row in registers";
}

using AnyLaunch = std::variant<SelectLaunch, StreamLaunch, LanesLaunch, SortLaunch>;

// ---- launches by name: gpu_cluster:8:512, gpu_stream:1:64, …: blocks per row, threads per block -

inline std::optional<AnyLaunch> launch_named(std::string_view text, const Problem& p,
                                             const Machine& m) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  int split = 0;
  int threads = 0;
  const char* end = text.data() + text.size();
  auto parsed = std::from_chars(text.data() + colon + 1, end, split);
  if (parsed.ec != std::errc{} || parsed.ptr == end || *parsed.ptr != ':') return std::nullopt;
  parsed = std::from_chars(parsed.ptr + 1, end, threads);
  if (parsed.ec != std::errc{} || parsed.ptr != end || split < 1) return std::nullopt;
  const std::string_view variant = text.substr(0, colon);
  const auto if_fits = [&](const auto& launch) -> std::optional<AnyLaunch> {
    if (launch.threads != threads || !fits(launch, m)) return std::nullopt;
    return launch;
  };
  if (variant == "gpu_stream") {
    const int warps = threads / kWarp;
    return fits_stream(p, m, warps, split) && refuse_stream(p, m).empty()
               ? if_fits(stream_of(p, warps, split))
               : std::nullopt;
  }
  if (threads > kMostThreads || threads < least_threads(wanted(p)) ||
      threads != power_of_two_from(threads)) {
    return std::nullopt;
  }
  if (variant == "gpu_block" && split == 1) return if_fits(block_of(p, m, threads));
  if (variant == "gpu_cluster" && fits_cluster(p, m, split, threads)) {
    return if_fits(cluster_of(p, m, split, threads));
  }
  if (variant == "gpu_guess" && most_guessed(split) > 0 && refuse_guess(p, m).empty()) {
    const SelectLaunch launch = guess_of(p, m, split);
    return fits_guess(p, m, launch) ? if_fits(launch) : std::nullopt;
  }
  if (variant == "gpu_grid" && split <= 1024 && split <= packs(p))
    return if_fits(grid_of(p, m, split, threads));
  return std::nullopt;
}

inline std::vector<std::string> launch_names(const Problem& p, const Machine& m) {
  std::vector<std::string> names;
  for (int threads = least_threads(wanted(p)); threads <= kMostThreads; threads *= 2) {
    const std::string end = ":" + std::to_string(threads);
    names.push_back("gpu_block:1" + end);
    for (int split = 2; split <= gpu_rows::kMostCluster; split *= 2) {
      if (!fits_cluster(p, m, split, threads)) continue;
      names.push_back("gpu_cluster:" + std::to_string(split) + end);
      names.push_back("gpu_guess:" + std::to_string(split) + end);
    }
    for (int parts = 4; parts <= 256; parts *= 4) {
      if (p.rows * parts > 4 * m.gpu.processors || packs(p) / parts < 64) continue;
      names.push_back("gpu_grid:" + std::to_string(parts) + end);
    }
  }
  for (int split = 1; split <= kMostStreamCluster; split *= 2) {
    for (int warps = 1; warps <= kStreamsAtOnce; warps *= 2) {
      names.push_back("gpu_stream:" + std::to_string(split) + ":" + std::to_string(warps * kWarp));
    }
  }
  std::erase_if(names, [&](const std::string& name) { return !launch_named(name, p, m); });
  return names;
}

// ---- what is selected ---------------------------------------------------------------------------

// Where rows are more than clusters of two have room for, and not so short that a block
// takes them at once; or in clusters, where blocks that meet at every stage would be few, or
// have more than one.
inline bool streams(const Problem& p, const Machine& m) {
  if (!refuse_stream(p, m).empty()) return false;
  if (2 * p.rows > m.gpu.processors) {
    const bool many = p.rows > std::int64_t{4} * m.gpu.processors;
    return many || stream_stages(p) > 1;
  }
  const StreamLaunch launch = stream(p, m);
  if (launch.cluster == 1 || 3 * launch.blocks < m.gpu.processors) return false;
  const std::int64_t part = ceil_div(packs(p), cluster_split(p, m));
  return part > kManyPacks * kMostThreads ||
         (16 * p.rows > 3 * m.gpu.processors && stream_stages(p) > 1);
}

// Where a cluster that guesses does not wait for others to end.
inline bool guesses(const Problem& p, const Machine& m) {
  return refuse_guess(p, m).empty() && guess(p, m).blocks <= m.gpu.processors;
}

enum class Kernel : std::uint8_t { block, cluster, guess, grid, stream, warp, sort };

// A few lanes where rows are short; warps of their own where rows are many, and a block where these
// cannot; a cluster where they are few, which guesses if it can, the whole GPU where there are no
// clusters or even they would leave a block with many tiles.
inline Kernel best(const Problem& p, const Machine& m, Reasons* why) {
  if (p.op == Op::topk && p.k > kMostK) {
    say(why, "K is above ", kMostK, ", what a block has room for");
    return Kernel::sort;
  }
  if (p.op == Op::topk && refuse_warp(p, m).empty()) {
    say(why, p.cols, " columns and K = ", p.k, " are few: lanes of a warp hold a row");
    return Kernel::warp;
  }
  if (guesses(p, m)) {
    say(why, p.rows, " rows are few: clusters for all of them run at once on ", m.gpu.processors,
        " SMs");
    return Kernel::guess;
  }
  if (streams(p, m)) {
    say(why, p.rows, " rows keep ", m.gpu.processors, " SMs busy with warps that do not wait");
    return Kernel::stream;
  }
  const int split = cluster_split(p, m);
  const bool idles = 2 * split * p.rows <= m.gpu.processors;
  if (idles && packs(p) / split >= 16 * kMostThreads && refuse_grid(p, m).empty() &&
      fits(grid(p, m), m)) {
    say(why, split * p.rows, " blocks would leave SMs idle, and rows of ", packs(p),
        " packs are long enough for more");
    return Kernel::grid;
  }
  if (split > 1 && fits(cluster(p, m), m)) {
    say(why, p.rows, " rows are fewer than the ", m.gpu.processors, " SMs: ", split,
        " blocks share each");
    return Kernel::cluster;
  }
  if (p.op == Op::topk && !fits(block(p, m), m)) {
    say(why, "a block has no room for K = ", p.k, " candidates and its stages");
    return Kernel::sort;
  }
  say(why, p.rows, " rows are enough for a block each");
  return Kernel::block;
}

}  // namespace onepass::gpu_select
