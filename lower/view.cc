#include "lower/view.h"

#include <algorithm>
#include <numeric>

namespace hyper::lower {

View DenseView(const ir::TensorType& type) { return {type, ir::RowMajorStrides(type.dims), 0}; }

View DenseViewInOrder(const ir::TensorType& type, const std::vector<int>& order) {
  View v{type, ir::Dims(type.dims.size(), 0), 0};
  int64_t stride = 1;
  for (size_t k = order.size(); k-- > 0;) {
    const size_t d = static_cast<size_t>(order[k]);
    v.strides[d] = stride;
    stride *= std::max<int64_t>(type.dims[d], 1);
  }
  return v;
}

View TransposeView(const View& v, const ir::Dims& perm) {
  View out{{v.type.dtype, {}}, {}, v.offset};
  for (int64_t p : perm) {
    out.type.dims.push_back(v.type.dims[static_cast<size_t>(p)]);
    out.strides.push_back(v.strides[static_cast<size_t>(p)]);
  }
  return out;
}

View UntransposeView(const View& v, const ir::Dims& perm) {
  View out = v;
  for (size_t d = 0; d < perm.size(); ++d) {
    out.type.dims[static_cast<size_t>(perm[d])] = v.type.dims[d];
    out.strides[static_cast<size_t>(perm[d])] = v.strides[d];
  }
  return out;
}

View SliceView(const View& v, const ir::Dims& starts, const ir::Dims& limits,
               const ir::Dims& strides) {
  View out = v;
  for (size_t d = 0; d < starts.size(); ++d) {
    const int64_t extent = (limits[d] - starts[d] + strides[d] - 1) / strides[d];
    out.type.dims[d] = std::max<int64_t>(extent, 0);
    if (extent > 0) out.offset += starts[d] * v.strides[d];
    out.strides[d] = v.strides[d] * strides[d];
  }
  return out;
}

View BroadcastView(const View& v, const ir::Dims& shape, const ir::Dims& dims) {
  View out{{v.type.dtype, shape}, ir::Dims(shape.size(), 0), v.offset};
  for (size_t d = 0; d < dims.size(); ++d) {
    const size_t to = static_cast<size_t>(dims[d]);
    if (v.type.dims[d] == shape[to]) out.strides[to] = v.strides[d];
  }
  return out;
}

std::optional<View> ReshapeView(const View& v, const ir::Dims& shape) {
  View out{{v.type.dtype, shape}, ir::Dims(shape.size(), 0), v.offset};
  if (v.type.elements() == 0) {
    out.strides = ir::RowMajorStrides(shape);
    return out;
  }
  // Old dims without extents of 1, then runs of old dims that move with one stride are matched
  // with runs of new dims of the same element count.
  ir::Dims extents, strides;
  for (size_t d = 0; d < v.strides.size(); ++d) {
    if (v.type.dims[d] == 1) continue;
    if (!extents.empty() && strides.back() == v.strides[d] * v.type.dims[d]) {
      extents.back() *= v.type.dims[d];
      strides.back() = v.strides[d];
    } else {
      extents.push_back(v.type.dims[d]);
      strides.push_back(v.strides[d]);
    }
  }
  size_t next = shape.size();
  for (size_t k = extents.size(); k-- > 0;) {
    int64_t left = extents[k];
    int64_t stride = strides[k];
    while (left > 1) {
      if (next == 0) return std::nullopt;
      const int64_t extent = shape[--next];
      if (extent == 1) continue;
      if (left % extent != 0) return std::nullopt;
      out.strides[next] = stride;
      stride *= extent;
      left /= extent;
    }
  }
  return out;
}

bool IsRowMajor(const View& v) {
  if (v.offset != 0) return false;
  int64_t stride = 1;
  for (size_t d = v.strides.size(); d-- > 0;) {
    if (v.type.dims[d] == 1) continue;
    if (v.strides[d] != stride) return false;
    stride *= v.type.dims[d];
  }
  return true;
}

bool SameElements(const View& a, const View& b) {
  if (a.type != b.type || a.offset != b.offset) return false;
  for (size_t d = 0; d < a.strides.size(); ++d) {
    if (a.type.dims[d] > 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

bool IsInjective(const View& v) {
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (size_t d = 0; d < v.strides.size(); ++d) {
    if (v.type.dims[d] > 1) dims.emplace_back(v.strides[d], v.type.dims[d]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t span = 1;
  for (const auto& [stride, extent] : dims) {
    if (stride < span) return false;
    span = stride * (extent - 1) + span;
  }
  return true;
}

std::vector<int> OrderOf(const View& v) {
  std::vector<int> order(v.strides.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<int> moving;
  for (int d : order) {
    if (v.strides[static_cast<size_t>(d)] != 0 && v.type.dims[static_cast<size_t>(d)] != 1) {
      moving.push_back(d);
    }
  }
  std::vector<int> sorted = moving;
  std::stable_sort(sorted.begin(), sorted.end(), [&](int a, int b) {
    return v.strides[static_cast<size_t>(a)] > v.strides[static_cast<size_t>(b)];
  });
  for (size_t k = 0; k < moving.size(); ++k) order[static_cast<size_t>(moving[k])] = sorted[k];
  return order;
}

int64_t DistinctElements(const View& v) {
  int64_t n = 1;
  for (size_t d = 0; d < v.strides.size(); ++d) {
    if (v.strides[d] != 0 || v.type.dims[d] == 0) n *= v.type.dims[d];
  }
  return n;
}

}  // namespace hyper::lower
