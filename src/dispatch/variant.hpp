// A variant: one way to run an op. Each op lists its own, in reading order, in variants.def.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/machine.hpp"
#include "core/problem.hpp"
#include "core/reasons.hpp"
#include "dispatch/launch.hpp"
#include "onepass/status.hpp"

namespace onepass {

struct RowArgs;
struct AttentionArgs;
struct AttentionBackwardArgs;

enum class Role : std::uint8_t {
  teach,  // verified and measured, never chosen
  ship,   // the dispatcher may choose it
  peer,   // another library's, measured beside ours
};

constexpr std::string_view name(Role role) {
  switch (role) {
    case Role::teach: return "teach";
    case Role::ship: return "ship";
    case Role::peer: return "peer";
  }
  return "?";
}

// A set of ops: one bit each.
using Ops = std::uint32_t;

constexpr Ops only(Op op) { return Ops{1} << static_cast<unsigned>(op); }

// What runs a variant as planned: a function of rows, of attention, or of its backward. Null: a
// GPU's, in a build without CUDA.
struct Run {
  Status (*rows)(const RowArgs&, const Launch&) = nullptr;
  Status (*attention)(const AttentionArgs&, const Launch&) = nullptr;
  Status (*attention_backward)(const AttentionBackwardArgs&, const Launch&) = nullptr;

  Status operator()(const RowArgs& args, const Launch& launch) const { return rows(args, launch); }
  Status operator()(const AttentionArgs& args, const Launch& launch) const {
    return attention(args, launch);
  }
  Status operator()(const AttentionBackwardArgs& args, const Launch& launch) const {
    return attention_backward(args, launch);
  }
  constexpr explicit operator bool() const {
    return rows != nullptr || attention != nullptr || attention_backward != nullptr;
  }
};

struct Variant {
  Ops ops;  // what it computes
  std::string_view name;
  Role role;
  std::string_view needs;  // in words, for `onepass list`
  std::string_view idea;   // one sentence
  // Empty when the variant can run the problem there; otherwise what stands in the way.
  std::string (*refuses)(const Problem&, const Machine&);
  Launch (*plan)(const Problem&, const Machine&, Reasons*);
  Run run;
  Device device = Device::cpu;
  // Whether another variant that ships and can run the problem is better, and why, or why not.
  // Null: it is the best wherever it can run. Of those that can run a problem, one does not yield.
  bool (*yields)(const Problem&, const Machine&, Reasons* why) = nullptr;
};

// All variants of an op: a CPU's, then a GPU's; each in reading order, a walk first.
std::span<const Variant> variants(Op op);
const Variant* find_variant(Op op, std::string_view name);
Status no_such_variant(Op op, std::string_view name);

// What a variant is called today that had this name once, as older results have it; else the name.
std::string_view name_today(std::string_view variant);

}  // namespace onepass
