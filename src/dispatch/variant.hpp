// A variant: one way to run an op. Each op lists its own, in reading order, in variants.def.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/problem.hpp"
#include "core/machine.hpp"
#include "onepass/plan.hpp"
#include "onepass/status.hpp"

namespace onepass {

struct RowArgs;
struct AttentionArgs;

enum class Role : std::uint8_t {
  teach,  // verified and measured, never chosen
  ship,   // the dispatcher may choose it
  peer,   // somebody else's, measured beside ours
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

// What runs a variant: a function of rows, or of attention.
class Run {
 public:
  using Rows = Status (*)(const RowArgs&, const Plan&);
  using Attention = Status (*)(const AttentionArgs&, const Plan&);

  constexpr Run(Rows rows) : rows_(rows) {}
  constexpr Run(Attention attention) : attention_(attention) {}

  Status operator()(const RowArgs& args, const Plan& plan) const { return rows_(args, plan); }
  Status operator()(const AttentionArgs& args, const Plan& plan) const {
    return attention_(args, plan);
  }
  constexpr explicit operator bool() const { return rows_ != nullptr || attention_ != nullptr; }

 private:
  Rows rows_ = nullptr;
  Attention attention_ = nullptr;
};

struct Variant {
  Ops ops;  // what it computes
  std::string_view name;
  Role role;
  std::string_view needs;  // in words, for `onepass list`
  std::string_view idea;   // one sentence
  // Empty when the variant can run the problem there; otherwise what stands in the way.
  std::string (*refuses)(const Problem&, const Machine&);
  Run run;  // null: a GPU's, in a build without CUDA
  Device device = Device::cpu;
  Plan (*geometry)(const Problem&, const Machine&) = nullptr;  // of a GPU's launch
};

// All variants of an op, in reading order.
std::span<const Variant> variants(Op op);
const Variant* find_variant(Op op, std::string_view name);
Status no_such_variant(Op op, std::string_view name);

}  // namespace onepass
