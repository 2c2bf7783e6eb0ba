// A case with its arrays: ready to be run, by any variant, as often as one likes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "cli/problem/case.hpp"
#include "cli/problem/fill.hpp"
#include "cli/problem/guarded_array.hpp"
#include "onepass/onepass.hpp"
#include "oracle/oracle.hpp"

namespace onepass::cli {

inline constexpr std::int64_t kIgnore = -100;

struct Sequences;

class Call {
 public:
  // Allocates and fills the inputs. Elements of x, y and dy are already rounded to their dtype.
  Status make(const Case& wanted);

  // The same call with the same values, in memory of its own.
  Status make_like(const Call& other);

  // Poisons the outputs; in place, puts the input back. On a GPU all of it is there only once a
  // kernel has ended that the run may overlap: an op has to wait for what the stream did last.
  Status reset();

  // Through the public API.
  Status run(const Context& context, std::string_view variant, Plan* plan = nullptr);

  // Waits for a run on the GPU and brings the outputs here, where all is looked at.
  Status fetch();

  const Case& spec() const { return case_; }
  // x; of a backward of y: y. The second input of these is dy.
  const GuardedArray& in() const { return in_; }
  const GuardedArray& dy() const { return dy_; }
  // What softcapped gradients are taken at: x of the backward ops.
  const GuardedArray& x() const { return x_; }
  const GuardedArray& out() const { return case_.in_place ? in_place_target() : out_; }
  const GuardedArray& lse() const { return lse_; }
  const GuardedArray& loss() const { return loss_; }      // beside a gradient
  const GuardedArray& target() const { return target_; }  // indices, or probabilities like x
  const GuardedArray& weight() const { return weight_; }
  const GuardedArray& dloss() const { return dloss_; }
  // Of the ops that choose: where what `out` holds is, and what more there is of a row.
  const GuardedArray& indices() const { return indices_; }
  const GuardedArray& logprob() const { return logprob_; }  // of the target, or of the token
  const GuardedArray& rank() const { return rank_; }
  const GuardedArray& valid() const { return valid_; }
  const GuardedArray& bias() const { return bias_; }
  // Of attention, whose q is `in`.
  const GuardedArray& k() const { return k_; }
  const GuardedArray& v() const { return v_; }
  const GuardedArray& alibi() const { return alibi_; }
  const GuardedArray& sinks() const { return sinks_; }
  const GuardedArray& additive() const { return additive_; }
  const GuardedArray& boolean() const { return boolean_; }
  const GuardedArray& pages() const { return pages_; }

  // Every array that the case has, by its name in the API.
  struct Member {
    std::string_view name;
    GuardedArray Call::*array;
  };
  static std::span<const Member> members();
  const GuardedArray& operator[](const Member& member) const { return this->*member.array; }
  GuardedArray& operator[](const Member& member) { return this->*member.array; }
  bool writes(const Member& member) const;

  // An array as the device of the case sees it.
  Tensor view(const GuardedArray& array) const { return array.tensor_on(case_.device); }

  // What makes row r's logits, as the oracle wants to be told.
  oracle::Transform transform(std::int64_t r) const;

  // C-order index of element c of row r in an array of x's shape.
  std::int64_t index(std::int64_t r, std::int64_t c) const;

 private:
  const GuardedArray& in_place_target() const { return dy_.present() ? dy_ : in_; }
  GuardedArray& in_place_target() { return dy_.present() ? dy_ : in_; }
  // Every array that the case has.
  std::vector<GuardedArray*> arrays();
  // Those that a run writes.
  std::vector<GuardedArray*> written();
  Status make_options(Random& random);
  Status make_inputs(Random& random);
  void fill_targets(Random& random);
  Status make_chosen(Random& random);
  Status make_attention(Random& random);
  Status make_attention_arrays();
  void fill_attention(Random& random);
  void fill_pages(Random& random);
  void bury_unseen(const Sequences& s);
  Status run_attention(const Context& context, std::string_view variant, Plan* plan);
  Status run_chosen(const Context& context, std::string_view variant, Plan* plan);
  Status to_device();
  Mask mask() const;

  Case case_;
  std::int64_t inner_ = 1;  // elements between neighbours along the axis
  GuardedArray in_, dy_, x_, out_, lse_, loss_, target_, weight_, dloss_, pristine_;
  GuardedArray scale_, temperature_, additive_, boolean_, lengths_;
  GuardedArray indices_, logprob_, rank_, valid_, bias_, seeds_;
  GuardedArray k_, v_, alibi_, sinks_, q_offsets_, kv_offsets_, pages_;
};

}  // namespace onepass::cli
