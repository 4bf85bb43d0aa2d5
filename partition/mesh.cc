#include "partition/mesh.h"

#include <algorithm>

#include <fmt/format.h>

namespace hyper::partition {

namespace {

// More ranks than any launch has; keeps products inside 64 bits.
constexpr int64_t kMostRanks = int64_t{1} << 31;

}  // namespace

Result<Mesh> Mesh::Create(std::vector<MeshAxis> axes) {
  Mesh mesh;
  for (const MeshAxis& axis : axes) {
    if (axis.name.empty() || axis.name == "-") {
      return InvalidArgument(fmt::format("a mesh axis is called '{}'; expected a name", axis.name));
    }
    if (mesh.Find(axis.name) >= 0) {
      return InvalidArgument(fmt::format("mesh axis '{}' is given twice", axis.name));
    }
    if (axis.size < 1) {
      return InvalidArgument(
          fmt::format("mesh axis '{}' has {} ranks, expected 1 or more", axis.name, axis.size));
    }
    if (axis.size > kMostRanks / mesh.ranks_) {
      return InvalidArgument(fmt::format("the mesh has more than {} ranks", kMostRanks));
    }
    mesh.ranks_ *= axis.size;
    mesh.axes_.push_back(axis);
  }
  return mesh;
}

int64_t Mesh::Size(std::span<const AxisId> axes) const {
  int64_t product = 1;
  for (const AxisId axis : axes) product *= size(axis);
  return product;
}

AxisId Mesh::Find(std::string_view name) const {
  const auto at = std::find_if(axes_.begin(), axes_.end(),
                               [&](const MeshAxis& axis) { return axis.name == name; });
  return at == axes_.end() ? -1 : static_cast<AxisId>(at - axes_.begin());
}

std::vector<int64_t> Mesh::Coordinates(int64_t rank) const {
  std::vector<int64_t> coordinates(axes_.size());
  for (size_t a = axes_.size(); a-- > 0;) {
    coordinates[a] = rank % axes_[a].size;
    rank /= axes_[a].size;
  }
  return coordinates;
}

int64_t Mesh::Rank(std::span<const int64_t> coordinates) const {
  int64_t rank = 0;
  for (size_t a = 0; a < axes_.size(); ++a) rank = rank * axes_[a].size + coordinates[a];
  return rank;
}

int64_t Mesh::IndexAlong(int64_t rank, std::span<const AxisId> axes) const {
  const std::vector<int64_t> coordinates = Coordinates(rank);
  int64_t index = 0;
  for (const AxisId axis : axes) {
    index = index * size(axis) + coordinates[static_cast<size_t>(axis)];
  }
  return index;
}

std::vector<int64_t> Mesh::Group(int64_t rank, std::span<const AxisId> axes) const {
  std::vector<int64_t> coordinates = Coordinates(rank);
  std::vector<int64_t> group;
  const int64_t count = Size(axes);
  group.reserve(static_cast<size_t>(count));
  for (int64_t index = 0; index < count; ++index) {
    int64_t rest = index;
    for (size_t a = axes.size(); a-- > 0;) {
      coordinates[static_cast<size_t>(axes[a])] = rest % size(axes[a]);
      rest /= size(axes[a]);
    }
    group.push_back(Rank(coordinates));
  }
  return group;
}

std::string Mesh::ToString() const {
  std::string text = "{";
  for (const MeshAxis& axis : axes_) {
    text += fmt::format("{}{}: {}", text.size() > 1 ? ", " : "", axis.name, axis.size);
  }
  return text + "}";
}

}  // namespace hyper::partition
