#include "partition/layout.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/strings.h"

namespace hyper::partition {

std::string_view PartialName(Partial partial) {
  switch (partial) {
    case Partial::kNone: return "none";
    case Partial::kSum: return "sum";
    case Partial::kMax: return "max";
    case Partial::kMin: return "min";
    case Partial::kProd: return "prod";
    case Partial::kAnd: return "and";
    case Partial::kOr: return "or";
  }
  return "?";
}

Layout Layout::Replicated(const Mesh& mesh, int rank) {
  return {std::vector<std::vector<AxisId>>(static_cast<size_t>(rank)),
          std::vector<Partial>(mesh.axes().size(), Partial::kNone)};
}

bool Layout::IsPartial() const {
  return std::any_of(partial.begin(), partial.end(), [](Partial p) { return p != Partial::kNone; });
}

bool Layout::IsReplicated() const {
  return !IsPartial() &&
         std::all_of(dims.begin(), dims.end(), [](const auto& d) { return d.empty(); });
}

int Layout::DimOf(AxisId axis) const {
  for (size_t d = 0; d < dims.size(); ++d) {
    if (std::find(dims[d].begin(), dims[d].end(), axis) != dims[d].end()) {
      return static_cast<int>(d);
    }
  }
  return -1;
}

bool Layout::IsFree(AxisId axis) const {
  return DimOf(axis) < 0 && partial[static_cast<size_t>(axis)] == Partial::kNone;
}

std::string Layout::ToString(const Mesh& mesh) const {
  std::vector<std::string> texts;
  for (const auto& axes : dims) {
    std::vector<std::string> names;
    for (const AxisId axis : axes) names.push_back(mesh.name(axis));
    texts.push_back(names.empty() ? "-" : Join(names, ">"));
  }
  std::string text = fmt::format("[{}]", Join(texts, ", "));
  if (!IsPartial()) return text;
  texts.clear();
  for (size_t a = 0; a < partial.size(); ++a) {
    if (partial[a] == Partial::kNone) continue;
    texts.push_back(
        fmt::format("{}: {}", mesh.name(static_cast<AxisId>(a)), PartialName(partial[a])));
  }
  return fmt::format("{} partial {{{}}}", text, Join(texts, ", "));
}

Status CheckLayout(const Mesh& mesh, const Layout& layout, std::span<const int64_t> extents) {
  if (layout.dims.size() != extents.size()) {
    return InvalidArgument(fmt::format("layout {} has {} entries, the tensor has {} dims",
                                       layout.ToString(mesh), layout.dims.size(), extents.size()));
  }
  std::vector<int> uses(mesh.axes().size());
  for (const auto& axes : layout.dims) {
    for (const AxisId axis : axes) ++uses[static_cast<size_t>(axis)];
  }
  for (size_t a = 0; a < uses.size(); ++a) {
    const std::string& name = mesh.name(static_cast<AxisId>(a));
    if (uses[a] > 1) {
      return InvalidArgument(
          fmt::format("layout {} uses axis '{}' {} times; an axis can cut one dim only",
                      layout.ToString(mesh), name, uses[a]));
    }
    if (uses[a] == 1 && layout.partial[a] != Partial::kNone) {
      return InvalidArgument(fmt::format("layout {} cuts a dim by axis '{}' that is partial",
                                         layout.ToString(mesh), name));
    }
  }
  for (size_t d = 0; d < extents.size(); ++d) {
    const int64_t parts = Parts(mesh, layout, static_cast<int>(d));
    if (extents[d] % parts == 0) continue;
    std::vector<std::string> fits;
    for (int64_t p = 1; p <= std::min(extents[d], 2 * parts); ++p) {
      if (extents[d] % p == 0) fits.push_back(std::to_string(p));
    }
    return InvalidArgument(fmt::format(
        "layout {} cuts dim {} of extent {} into {} parts, which do not divide it; these do: {}",
        layout.ToString(mesh), d, extents[d], parts, Join(fits, ", ")));
  }
  return Status::Ok();
}

Result<Layout> ParseLayout(const Mesh& mesh, std::span<const std::string> dims) {
  Layout layout = Layout::Replicated(mesh, static_cast<int>(dims.size()));
  std::vector<std::string> names;
  for (const MeshAxis& axis : mesh.axes()) names.push_back(axis.name);
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] == "-") continue;
    for (size_t at = 0; at <= dims[d].size();) {
      const size_t end = std::min(dims[d].find('>', at), dims[d].size());
      const std::string name = dims[d].substr(at, end - at);
      const AxisId axis = mesh.Find(name);
      if (axis < 0) {
        const std::string near = DidYouMean(name, names);
        return InvalidArgument(fmt::format("'{}' is no axis of the mesh {}{}{}", name,
                                           mesh.ToString(), near.empty() ? "" : "; ", near));
      }
      layout.dims[d].push_back(axis);
      at = end + 1;
    }
  }
  return layout;
}

int64_t Parts(const Mesh& mesh, const Layout& layout, int dim) {
  return mesh.Size(layout.dims[static_cast<size_t>(dim)]);
}

std::vector<int64_t> LocalExtents(const Mesh& mesh, const Layout& layout,
                                  std::span<const int64_t> extents) {
  std::vector<int64_t> local(extents.begin(), extents.end());
  for (size_t d = 0; d < local.size(); ++d) local[d] /= Parts(mesh, layout, static_cast<int>(d));
  return local;
}

Box SliceOf(const Mesh& mesh, const Layout& layout, std::span<const int64_t> extents,
            int64_t rank) {
  Box box;
  for (size_t d = 0; d < extents.size(); ++d) {
    const int64_t parts = Parts(mesh, layout, static_cast<int>(d));
    const int64_t id = mesh.IndexAlong(rank, layout.dims[d]);
    box.begin.push_back(id * extents[d] / parts);
    box.end.push_back((id + 1) * extents[d] / parts);
  }
  return box;
}

}  // namespace hyper::partition
