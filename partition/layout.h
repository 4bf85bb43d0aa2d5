// How a tensor lies on a mesh. Each dim is cut by an ordered list of axes, the outer (major) one
// first; an axis cuts at most one dim. What no axis cuts is the same on all ranks along it, or,
// where an axis is partial, has still to be combined over it.
//
// The slice of a rank along a dim of extent n that is cut into p parts: with id = mixed radix of
// the rank's coordinates along the dim's axes, [id*n/p, (id+1)*n/p).
//
// Thread safety: values and pure functions.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "partition/mesh.h"

namespace hyper::partition {

// How the shares of the ranks along an axis become the value.
enum class Partial : uint8_t { kNone, kSum, kMax, kMin, kProd, kAnd, kOr };
std::string_view PartialName(Partial partial);  // "none", "sum", ...

struct Layout {
  // One list per dim.
  std::vector<std::vector<AxisId>> dims;
  // One entry per mesh axis.
  std::vector<Partial> partial;

  // Nothing cut, nothing partial.
  static Layout Replicated(const Mesh& mesh, int rank);

  auto operator<=>(const Layout&) const = default;

  bool IsPartial() const;
  bool IsReplicated() const;
  // The dim that `axis` cuts, or -1.
  int DimOf(AxisId axis) const;
  // The axis neither cuts a dim nor is partial.
  bool IsFree(AxisId axis) const;
  // "[dp, -, sp>tp]" and, where there is one, " partial {tp: sum}".
  std::string ToString(const Mesh& mesh) const;
};

// kInvalidArgument names the axis that is used twice, or the dim that its axes do not divide
// together with the counts of ranks that would.
Status CheckLayout(const Mesh& mesh, const Layout& layout, std::span<const int64_t> extents);

// One text per dim, as a strategy writes a layout: "-" for none, an axis, or several joined by '>'
// (outer first). Unknown names get a suggestion.
Result<Layout> ParseLayout(const Mesh& mesh, std::span<const std::string> dims);

// Number of parts of a dim.
int64_t Parts(const Mesh& mesh, const Layout& layout, int dim);
// Extents of the slice of every rank; the layout has passed CheckLayout.
std::vector<int64_t> LocalExtents(const Mesh& mesh, const Layout& layout,
                                  std::span<const int64_t> extents);

// Half-open, one entry per dim.
struct Box {
  std::vector<int64_t> begin;
  std::vector<int64_t> end;
  bool operator==(const Box&) const = default;
};
// What `rank` holds.
Box SliceOf(const Mesh& mesh, const Layout& layout, std::span<const int64_t> extents, int64_t rank);

}  // namespace hyper::partition
