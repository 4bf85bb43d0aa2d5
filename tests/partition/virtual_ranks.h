// Tensors of virtual ranks: cut from a whole, joined again. Plain loops that share no code with
// partition/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "partition/layout.h"

namespace hyper::partition {

inline Mesh MakeMesh(std::vector<MeshAxis> axes) { return Mesh::Create(std::move(axes)).value(); }
inline Layout MakeLayout(const Mesh& mesh, const std::vector<std::string>& dims) {
  return ParseLayout(mesh, dims).value();
}

// A row-major tensor of one rank.
struct Local {
  std::vector<int64_t> extents;
  std::vector<double> values;
  bool operator==(const Local&) const = default;
};

inline size_t Count(const std::vector<int64_t>& extents) {
  size_t n = 1;
  for (const int64_t e : extents) n *= static_cast<size_t>(e);
  return n;
}

// Calls visit(flat index in the whole, flat index in the box).
template <typename Visit>
void ForEachOf(const Box& box, const std::vector<int64_t>& extents, Visit visit) {
  std::vector<int64_t> at = box.begin;
  size_t n = 1;
  for (size_t d = 0; d < at.size(); ++d) n *= static_cast<size_t>(box.end[d] - box.begin[d]);
  for (size_t k = 0; k < n; ++k) {
    size_t flat = 0;
    for (size_t d = 0; d < at.size(); ++d) {
      flat = flat * static_cast<size_t>(extents[d]) + static_cast<size_t>(at[d]);
    }
    visit(flat, k);
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < box.end[d]) break;
      at[d] = box.begin[d];
    }
  }
}

inline Local Cut(const Local& whole, const Box& box) {
  Local part;
  for (size_t d = 0; d < box.begin.size(); ++d) part.extents.push_back(box.end[d] - box.begin[d]);
  part.values.resize(Count(part.extents));
  ForEachOf(box, whole.extents,
            [&](size_t flat, size_t k) { part.values[k] = whole.values[flat]; });
  return part;
}
// Part `index` of `parts` equal ones.
inline Local Block(const Local& x, int dim, int64_t index, int64_t parts) {
  Box box{std::vector<int64_t>(x.extents.size(), 0), x.extents};
  const size_t d = static_cast<size_t>(dim);
  box.begin[d] = x.extents[d] / parts * index;
  box.end[d] = x.extents[d] / parts * (index + 1);
  return Cut(x, box);
}
inline Local Concat(const std::vector<Local>& parts, int dim) {
  const size_t d = static_cast<size_t>(dim);
  Local whole = parts[0];
  whole.extents[d] = 0;
  for (const Local& part : parts) whole.extents[d] += part.extents[d];
  whole.values.resize(Count(whole.extents));
  Box box{std::vector<int64_t>(whole.extents.size(), 0), whole.extents};
  for (const Local& part : parts) {
    box.end[d] = box.begin[d] + part.extents[d];
    ForEachOf(box, whole.extents,
              [&](size_t flat, size_t k) { whole.values[flat] = part.values[k]; });
    box.begin[d] = box.end[d];
  }
  return whole;
}

}  // namespace hyper::partition
