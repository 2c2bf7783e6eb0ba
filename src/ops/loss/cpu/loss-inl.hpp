// What the losses of class indices and of weighted classes share: the forward direction, where a
// row's loss goes, and what its gradient is multiplied by. Per-target.

#if defined(ONEPASS_OPS_LOSS_LOSS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_OPS_LOSS_LOSS_INL
#undef ONEPASS_OPS_LOSS_LOSS_INL
#else
#define ONEPASS_OPS_LOSS_LOSS_INL
#endif

#include <hwy/highway.h>

#include "rows/args.hpp"
#include "rows/cpu/drive-inl.hpp"
#include "rows/cpu/tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace onepass::HWY_NAMESPACE {

// Writes a row's loss to `to`, or to the list of losses that will be reduced.
inline void WriteLoss(const RowArgs& args, const Operand& to, int64_t row, double loss) {
  if (args.row_losses != nullptr) {
    args.row_losses[row - args.first_row] = loss;
  } else {
    write_at(args.space, to, row, 0, loss);
  }
}

// The given gradient of a row's loss, times the factor of the reduction.
inline double GivenGradient(const RowArgs& args, int64_t row) {
  return (args.dloss ? read_at<double>(args.space, args.dloss, row) : 1) * args.dloss_scale;
}

// Whether a backward has the forward's lse. If it also writes a loss, lse is an output instead.
inline bool KnowsLse(const RowArgs& args) { return args.lse && !args.loss; }

// Body knows its rows, folds their classes and writes their losses.
template <class Body>
struct LossForward : Body {
  using typename Body::Partial;
  using typename Body::Row;
  using typename Body::T;

  Partial fold(const Row& row, Columns columns, Keep<T>& keep) const {
    // An ignored row still has an lse, if the call asks for it.
    if (row.ignored && !this->args.lse) return Partial{};
    return this->fold_classes(row, columns, keep, true);
  }

  void finish(const Row&, Partial, Columns, Keep<T>&) const {}
  void hide(const Row&, Partial, Columns) const {}

  void conclude(const Row& row, Partial total, Keep<T>& keep) const {
    this->write_loss(row, total, this->args.out, keep);
  }
};

}  // namespace onepass::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
