// What onepass is measured beside, in the same process and the same table.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "cli/ops/call.hpp"

namespace onepass::cli {

struct Peer {
  std::string_view name;
  std::string_view needs;
  std::string_view idea;
  bool (*computes)(Op op, Device device);
  std::string (*obstacle)();  // why it cannot run in this build; empty: it can
  // Everything that may be done once is done here; `run` then does the work, again and again, where
  // the call's case says. On a GPU it is queued on the default stream.
  Status (*prepare)(const Call& call, int threads, std::function<void()>& run);
};

std::span<const Peer> peers();
const Peer* find_peer(std::string_view name);

// Those that could compute one of the cases but are not in this build, a line each that says why.
std::string missing(std::span<const Peer> peers, std::span<const Case> cases);

}  // namespace onepass::cli
