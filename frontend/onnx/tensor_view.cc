#include "frontend/onnx/tensor_view.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "base/status.h"

namespace hyper::onnx_frontend {
namespace {

constexpr int kMaxSearchedRank = 5;

bool SameBytes(const ir::HostTensor& a, const ir::HostTensor& b) {
  const auto x = a.bytes();
  const auto y = b.bytes();
  return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), x.size()) == 0);
}

}  // namespace

ir::HostTensor ReshapeTensor(const ir::HostTensor& value, ir::Dims dims) {
  ir::TensorType type{value.type().dtype, std::move(dims)};
  HYPER_CHECK(type.elements() == value.type().elements(), "a reshape changes the element count");
  const auto owner = std::make_shared<ir::HostTensor>(value);  // shares the bytes
  return {std::move(type), owner, owner->bytes().data()};
}

bool FitsDims(const TensorView& view, const ir::Dims& dims) {
  if (!view.permutation.empty()) {
    std::vector<int> sorted = view.permutation;
    std::sort(sorted.begin(), sorted.end());
    std::vector<int> all(dims.size());
    std::iota(all.begin(), all.end(), 0);
    if (sorted != all) return false;
  }
  return std::all_of(view.dims.begin(), view.dims.end(), [](int64_t d) { return d >= 0; }) &&
         ir::ElementCount(view.dims) == ir::ElementCount(dims);
}

ir::HostTensor PermuteTensor(const ir::HostTensor& value, const std::vector<int>& permutation) {
  if (permutation.empty()) return value;
  const ir::Dims& from = value.type().dims;
  HYPER_CHECK(permutation.size() == from.size(), "a permutation of another rank");
  const size_t rank = from.size();
  ir::Dims strides(rank, 1);
  for (size_t i = rank; i-- > 1;) strides[i - 1] = strides[i] * from[i];
  ir::TensorType type{value.type().dtype, ir::Dims(rank)};
  ir::Dims steps(rank);
  for (size_t i = 0; i < rank; ++i) {
    type.dims[i] = from[static_cast<size_t>(permutation[i])];
    steps[i] = strides[static_cast<size_t>(permutation[i])];
  }
  const size_t size = static_cast<size_t>(ir::DTypeBytes(type.dtype));
  const auto out = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(type.bytes()));
  ir::Dims index(rank, 0);
  int64_t offset = 0;  // of the element `index`, in elements of `value`
  const std::byte* data = value.bytes().data();
  for (int64_t i = 0; i < type.elements(); ++i) {
    std::memcpy(out->data() + static_cast<size_t>(i) * size,
                data + static_cast<size_t>(offset) * size, size);
    for (size_t k = rank; k-- > 0;) {
      offset += steps[k];
      if (++index[k] < type.dims[k]) break;
      offset -= steps[k] * type.dims[k];
      index[k] = 0;
    }
  }
  const std::byte* bytes = out->data();
  return {std::move(type), out, bytes};
}

ir::HostTensor ApplyView(const ir::HostTensor& value, const TensorView& view) {
  return ReshapeTensor(PermuteTensor(value, view.permutation), view.dims);
}

std::optional<TensorView> FindView(const ir::HostTensor& value, const ir::HostTensor& file,
                                   const std::vector<int>& preferred) {
  if (value.type().dtype != file.type().dtype ||
      value.type().elements() != file.type().elements()) {
    return std::nullopt;
  }
  const auto fits = [&](const std::vector<int>& permutation) {
    return SameBytes(PermuteTensor(value, permutation), file);
  };
  const ir::Dims& dims = file.type().dims;
  if (preferred.size() == value.type().dims.size() && !preferred.empty() && fits(preferred)) {
    return TensorView{preferred, dims};
  }
  if (SameBytes(value, file)) return TensorView{{}, dims};
  const int rank = value.type().rank();
  if (rank < 2 || rank > kMaxSearchedRank) return std::nullopt;
  std::vector<int> permutation(static_cast<size_t>(rank));
  std::iota(permutation.begin(), permutation.end(), 0);
  while (std::next_permutation(permutation.begin(), permutation.end())) {
    ir::Dims permuted;
    for (int d : permutation) permuted.push_back(value.type().dims[static_cast<size_t>(d)]);
    // Reshaped as well only where it is a mere matter of dims of extent 1.
    const auto wide = [](const ir::Dims& all) {
      ir::Dims kept;
      for (int64_t d : all) {
        if (d != 1) kept.push_back(d);
      }
      return kept;
    };
    if (wide(permuted) == wide(dims) && fits(permutation)) return TensorView{permutation, dims};
  }
  return std::nullopt;
}

}  // namespace hyper::onnx_frontend
