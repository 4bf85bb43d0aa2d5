// A mesh: the ranks of one replica as a box of named axes. The order is row-major, so that
// neighbours along the last axis are neighbouring ranks.
// Thread safety: values; const access from several threads is safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hyper::partition {

struct MeshAxis {
  std::string name;
  int64_t size = 1;
  bool operator==(const MeshAxis&) const = default;
};

// Index of an axis in its mesh, outermost first.
using AxisId = int;

class Mesh {
 public:
  // The mesh of one rank.
  Mesh() = default;
  // kInvalidArgument for an empty or repeated name and for a size below 1.
  static Result<Mesh> Create(std::vector<MeshAxis> axes);

  std::span<const MeshAxis> axes() const { return axes_; }
  int rank_of_mesh() const { return static_cast<int>(axes_.size()); }
  const std::string& name(AxisId axis) const { return axes_[static_cast<size_t>(axis)].name; }
  int64_t size(AxisId axis) const { return axes_[static_cast<size_t>(axis)].size; }
  // Product of the sizes of `axes`; 1 for none.
  int64_t Size(std::span<const AxisId> axes) const;
  int64_t ranks() const { return ranks_; }
  // -1 where no axis has the name.
  AxisId Find(std::string_view name) const;

  // Mixed radix of `rank`, one digit per axis.
  std::vector<int64_t> Coordinates(int64_t rank) const;
  int64_t Rank(std::span<const int64_t> coordinates) const;
  // Mixed radix of the coordinates along `axes`, the first of them outermost: the number of `rank`
  // among those that differ from it along `axes` only.
  int64_t IndexAlong(int64_t rank, std::span<const AxisId> axes) const;
  // Those ranks in the order of that number.
  std::vector<int64_t> Group(int64_t rank, std::span<const AxisId> axes) const;

  // "{dp: 2, tp: 4}"
  std::string ToString() const;
  bool operator==(const Mesh&) const = default;

 private:
  std::vector<MeshAxis> axes_;
  int64_t ranks_ = 1;
};

}  // namespace hyper::partition
