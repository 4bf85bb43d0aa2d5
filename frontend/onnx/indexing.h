// What importers of reading and writing by index share. All fail as importers do.
#pragma once

#include <cstdint>

#include "frontend/onnx/importer.h"

namespace hyper::onnx_frontend {

// Operand i holds int32 or int64.
void RequireIndices(const NodeContext& c, int i);
// Known indices lie in [-extent, extent); others are data and are checked where the data is read.
void CheckRange(const NodeContext& c, int i, int64_t extent);
// The index tuples along the last dim of operand 1 (of GatherND, ScatterND) as i64 numbers into the
// flattened first dims of `data`, its first `batch` dims paired with those of the indices. Dims:
// those of the indices without the last. Known tuples lie inside `data`; of others, those with an
// index outside its dim get a number outside the flattened dims.
ValueId FlatTuples(NodeContext& c, const Dims& data, size_t batch);

}  // namespace hyper::onnx_frontend
