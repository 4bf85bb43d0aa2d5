// The pad op and helpers for gradients that place a tensor inside zeros.
// Thread safety: as Builder.
#pragma once

#include "ir/ops/common.h"

namespace hyper::ir {

struct PadSpec {
  explicit PadSpec(size_t rank) : low(rank, 0), high(rank, 0), interior(rank, 0) {}
  Dims low;
  Dims high;
  Dims interior;
};

// Zero padding; no node when nothing changes.
ValueId PadZero(Builder& builder, ValueId x, const PadSpec& spec);

OpDef PadOp();

}  // namespace hyper::ir
