#include "frontend/onnx/tie_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "base/strings.h"
#include "frontend/onnx/parameter_looks.h"

namespace hyper::onnx_frontend {
namespace {

constexpr int64_t kTile = 32;     // rows and columns that are compared together
constexpr int64_t kSamples = 16;  // elements that a fingerprint reads
constexpr size_t kShownGroups = 8;

// What two tensors are compared by; `first` and `other` hold equally many elements of `Word`.
template <typename Word>
class Elements {
 public:
  explicit Elements(const ir::HostTensor& t) : data_(t.bytes().data()) {}
  Word operator[](int64_t i) const {
    Word word;
    std::memcpy(&word, data_ + static_cast<size_t>(i) * sizeof(Word), sizeof(Word));
    return word;
  }

 private:
  const std::byte* data_;
};

// Tells `visit(i, k)` for all pairs of elements that a transposed copy pairs, tile by tile; stops
// when it returns false.
template <typename Visit>
bool ForTransposed(int64_t rows, int64_t columns, Visit visit) {
  for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
    for (int64_t c0 = 0; c0 < columns; c0 += kTile) {
      for (int64_t r = r0; r < std::min(rows, r0 + kTile); ++r) {
        for (int64_t c = c0; c < std::min(columns, c0 + kTile); ++c) {
          if (!visit(r * columns + c, c * rows + r)) return false;
        }
      }
    }
  }
  return true;
}

template <typename Word>
bool IsTransposed(const ir::HostTensor& first, const ir::HostTensor& other) {
  const Elements<Word> a(first);
  const Elements<Word> b(other);
  return ForTransposed(first.type().dims[0], first.type().dims[1],
                       [&](int64_t i, int64_t k) { return a[i] == b[k]; });
}

bool SwappedDims(const ir::TensorType& a, const ir::TensorType& b) {
  return a.rank() == 2 && b.rank() == 2 && a.dims[0] == b.dims[1] && a.dims[1] == b.dims[0];
}

bool SameElement(const ir::HostTensor& a, int64_t i, const ir::HostTensor& b, int64_t k) {
  const size_t size = static_cast<size_t>(ir::DTypeBytes(a.type().dtype));
  return std::memcmp(a.bytes().data() + static_cast<size_t>(i) * size,
                     b.bytes().data() + static_cast<size_t>(k) * size, size) == 0;
}

// Where the elements of `other` stand in `first`: as they are or transposed.
struct Differences {
  int64_t count = 0;
  int64_t first = 0;  // of the smallest index that differs, and its partner
  int64_t other = 0;
};

Differences Compare(const ir::HostTensor& first, const ir::HostTensor& other, bool transposed) {
  Differences found;
  const auto visit = [&](int64_t i, int64_t k) {
    if (!SameElement(first, i, other, k)) {
      if (found.count == 0 || i < found.first) std::tie(found.first, found.other) = std::pair(i, k);
      ++found.count;
    }
    return true;
  };
  if (transposed) {
    ForTransposed(first.type().dims[0], first.type().dims[1], visit);
  } else {
    for (int64_t i = 0; i < first.type().elements(); ++i) visit(i, i);
  }
  return found;
}

ir::Dims IndexOf(int64_t element, const ir::Dims& dims) {
  ir::Dims index(dims.size(), 0);
  for (size_t i = dims.size(); i-- > 0;) {
    index[i] = element % dims[i];
    element /= dims[i];
  }
  return index;
}

// "element [0,1] is 2, in 'a' 3 (1 of 6 elements differs)"
std::string DescribeDifference(const std::string& first_name, const ir::HostTensor& first,
                               const ir::HostTensor& other) {
  const bool same = first.type().dims == other.type().dims;
  Differences found = Compare(first, other, !same);
  bool transposed = !same;
  if (same && first.type().rank() == 2 && SwappedDims(first.type(), other.type())) {
    // Of a square matrix the likelier reading.
    if (Differences swapped = Compare(first, other, true); swapped.count < found.count) {
      found = swapped;
      transposed = true;
    }
  }
  return fmt::format(
      "element {} is {}, in '{}'{} {} ({} of {} {})",
      FormatDims(IndexOf(found.other, other.type().dims)), other.ElementAsDouble(found.other),
      first_name, transposed ? " transposed" : "", first.ElementAsDouble(found.first), found.count,
      first.type().elements(), found.count == 1 ? "elements differs" : "elements differ");
}

// The file's tensor as a view of the tied parameter, of which the old one is the transpose or not.
TensorView Through(TensorView view, bool transposed) {
  if (!transposed) return view;
  if (view.permutation.empty()) {
    view.permutation = {1, 0};
  } else {
    for (int& d : view.permutation) d = 1 - d;
    if (std::is_sorted(view.permutation.begin(), view.permutation.end())) view.permutation.clear();
  }
  return view;
}

class Tier {
 public:
  Tier(const ParameterPlan& listing, const std::string& model_path, Diagnostics* diagnostics,
       ParameterPlan* plan)
      : listing_(listing), model_path_(model_path), diagnostics_(diagnostics), plan_(plan) {
    for (const ParameterDecision& d : listing.tensors) {
      if (!d.alias.empty()) by_alias_.emplace(d.alias, d.name);
    }
  }

  void Tie(const TieGroup& group) {
    std::vector<const ParameterDecision*> members;  // of the listing
    bool good = true;
    for (size_t i = 0; i < group.names.size(); ++i) {
      members.push_back(Resolve(group, i));
      good = good && members.back() != nullptr;
    }
    if (!good) return;
    std::vector<bool> transposed(members.size(), false);
    for (size_t i = 1; i < members.size(); ++i) {
      const Repeat repeat = Check(group, i, *members[0], *members[i]);
      good = good && repeat != Repeat::kNot;
      transposed[i] = repeat == Repeat::kTransposed;
    }
    if (!good) return;
    for (size_t i = 1; i < members.size(); ++i) Merge(*members[0], *members[i], transposed[i]);
  }

  // Takes the merged tensors out of the plan.
  void Finish() {
    std::vector<ParameterDecision> kept;
    plan_->index.clear();
    for (ParameterDecision& d : plan_->tensors) {
      if (merged_.count(d.name) > 0) continue;
      plan_->index.emplace(d.name, static_cast<int>(kept.size()));
      kept.push_back(std::move(d));
    }
    plan_->tensors = std::move(kept);
  }

 private:
  ParameterDecision* Find(const std::string& name) {
    const auto it = plan_->index.find(name);
    return it == plan_->index.end() ? nullptr : &plan_->tensors[static_cast<size_t>(it->second)];
  }

  void Error(const TieGroup& group, size_t i, std::string message, std::string help = {}) {
    const SourceLocation where = i < group.locations.size() ? group.locations[i] : SourceLocation{};
    diagnostics_->Error(where.file.empty() ? SourceLocation{model_path_} : where,
                        "model.tie: " + std::move(message), std::move(help));
  }

  // The tensor of the listing that a name means, if it can be tied.
  const ParameterDecision* Resolve(const TieGroup& group, size_t i) {
    const std::string& name = group.names[i];
    const ParameterDecision* d = listing_.Find(name);
    if (const auto it = by_alias_.find(name); d == nullptr && it != by_alias_.end()) {
      d = listing_.Find(it->second);
    }
    if (d == nullptr) {
      std::vector<std::string> names;
      for (const ParameterDecision& t : listing_.tensors) {
        if (t.constant && !t.can_train) continue;
        names.push_back(t.name);
        if (!t.alias.empty()) names.push_back(t.alias);
      }
      Error(group, i,
            fmt::format("'{}' is none of the {} weights of the model (hyperc inspect lists them)",
                        name, listing_.tensors.size()),
            DidYouMean(name, names));
      return nullptr;
    }
    if ((d->constant && !d->can_train) || d->kind == ir::ArgumentKind::kState ||
        Find(d->name) == nullptr) {
      Error(group, i, fmt::format("'{}' is no parameter: {}", name, d->reason),
            "tie tensors that hyperc inspect lists as trained or frozen");
      return nullptr;
    }
    if (const auto [it, fresh] = taken_.emplace(d->name, name); !fresh) {
      Error(group, i,
            fmt::format("'{}' is the tensor '{}', which is tied as '{}' already", name, d->name,
                        it->second),
            "name every tensor once; a group may have more than two names");
      return nullptr;
    }
    return d;
  }

  Repeat Check(const TieGroup& group, size_t i, const ParameterDecision& first,
               const ParameterDecision& other) {
    const std::string& name = group.names[i];
    const ir::TensorType& a = first.type;
    const ir::TensorType& b = other.type;
    if (first.buffer != other.buffer || first.literal != other.literal) {
      Error(group, i,
            fmt::format("'{}' is {}, '{}' is {}", name, other.origin, group.names[0], first.origin),
            "tie parameters with parameters");
      return Repeat::kNot;
    }
    if (a.dtype != b.dtype || (a.dims != b.dims && !SwappedDims(a, b))) {
      std::string accepted = a.ToString();
      if (a.rank() == 2 && a.dims[0] != a.dims[1]) {
        accepted +=
            fmt::format(" or {}", ir::TensorType{a.dtype, {a.dims[1], a.dims[0]}}.ToString());
      }
      Error(group, i,
            fmt::format("'{}' is {}, '{}' is {}; expected {}", name, b.ToString(), group.names[0],
                        a.ToString(), accepted));
      return Repeat::kNot;
    }
    const Repeat repeat = RepeatOf(first.value, other.value);
    if (repeat == Repeat::kNot) {
      Error(group, i,
            fmt::format("'{}' has other values than '{}': {}", name, group.names[0],
                        DescribeDifference(group.names[0], first.value, other.value)),
            "tied parameters begin with one value: expected the same elements bit for bit, of "
            "matrices perhaps transposed");
    }
    return repeat;
  }

  void Merge(const ParameterDecision& listed, const ParameterDecision& other, bool transposed) {
    ParameterDecision& into = *Find(listed.name);
    const ParameterDecision& from = *Find(other.name);
    if (into.alias.empty()) into.alias = listed.alias;
    for (auto& [tensor, view] : plan_->views) {
      if (view.parameter == from.name) view = {into.name, Through(view.view, transposed)};
    }
    for (TensorPlacement place : from.places) {
      place.view = Through(std::move(place.view), transposed);
      plan_->views[place.tensor] = {into.name, place.view};
      into.places.push_back(std::move(place));
    }
    // Operands that an exporter left out read it by its own name.
    plan_->views.emplace(from.name,
                         ParameterView{into.name, Through({{}, from.type.dims}, transposed)});
    into.tied.push_back({from.name, other.alias, transposed});
    merged_.insert(from.name);
  }

  const ParameterPlan& listing_;
  const std::string& model_path_;
  Diagnostics* diagnostics_;
  ParameterPlan* plan_;
  std::map<std::string, std::string> by_alias_;
  std::map<std::string, std::string> taken_;  // tensor -> the name that a group gives it
  std::set<std::string> merged_;
};

// Elements at fixed places, equal for two tensors that repeat one another whichever of them is
// transposed: of matrices in the order of the one with fewer rows, of square ones on the diagonal.
std::string Fingerprint(const ir::HostTensor& t) {
  const ir::Dims& dims = t.type().dims;
  const size_t size = static_cast<size_t>(ir::DTypeBytes(t.type().dtype));
  std::string print;
  for (int64_t s = 0; s < kSamples; ++s) {
    int64_t at = s * (t.type().elements() - 1) / (kSamples - 1);
    if (dims.size() == 2 && dims[0] == dims[1]) {
      at = s * (dims[0] - 1) / (kSamples - 1) * (dims[1] + 1);
    } else if (dims.size() == 2 && dims[0] > dims[1]) {
      at = at % dims[0] * dims[1] + at / dims[0];
    }
    print.append(reinterpret_cast<const char*>(t.bytes().data()) + static_cast<size_t>(at) * size,
                 size);
  }
  return print;
}

}  // namespace

Repeat RepeatOf(const ir::HostTensor& first, const ir::HostTensor& other) {
  const ir::TensorType& a = first.type();
  const ir::TensorType& b = other.type();
  if (a.dtype != b.dtype) return Repeat::kNot;
  const auto x = first.bytes();
  const auto y = other.bytes();
  if (a.dims == b.dims && (x.empty() || std::memcmp(x.data(), y.data(), x.size()) == 0)) {
    return Repeat::kSame;
  }
  if (!SwappedDims(a, b)) return Repeat::kNot;
  bool transposed = false;
  switch (ir::DTypeBytes(a.dtype)) {
    case 1: transposed = IsTransposed<uint8_t>(first, other); break;
    case 2: transposed = IsTransposed<uint16_t>(first, other); break;
    case 4: transposed = IsTransposed<uint32_t>(first, other); break;
    case 8: transposed = IsTransposed<uint64_t>(first, other); break;
    default: break;
  }
  return transposed ? Repeat::kTransposed : Repeat::kNot;
}

void TieParameters(const std::vector<TieGroup>& groups, const ParameterPlan& listing,
                   const std::string& model_path, Diagnostics* diagnostics, ParameterPlan* plan) {
  Tier tier(listing, model_path, diagnostics, plan);
  for (const TieGroup& group : groups) tier.Tie(group);
  tier.Finish();
}

std::optional<std::string> SuggestTies(const std::vector<const ParameterDecision*>& candidates) {
  using Key = std::tuple<ir::DType, ir::Dims, std::string>;
  std::map<Key, std::vector<size_t>> buckets;  // of positions in `groups`
  std::vector<std::vector<const ParameterDecision*>> groups;
  for (const ParameterDecision* d : candidates) {
    if (d->type.elements() < 2 || AllEqual(d->value)) continue;
    ir::Dims dims = d->type.dims;
    if (dims.size() == 2) std::sort(dims.begin(), dims.end());
    std::vector<size_t>& bucket = buckets[{d->type.dtype, dims, Fingerprint(d->value)}];
    const auto found = std::find_if(bucket.begin(), bucket.end(), [&](size_t g) {
      return RepeatOf(groups[g].front()->value, d->value) != Repeat::kNot;
    });
    if (found != bucket.end()) {
      groups[*found].push_back(d);
    } else {
      bucket.push_back(groups.size());
      groups.push_back({d});
    }
  }
  std::vector<std::string> lists;
  for (const auto& group : groups) {
    if (group.size() < 2) continue;
    std::vector<std::string> names;
    // An exporter's invented name is the copy: the group is called by another where there is one.
    for (const bool invented : {false, true}) {
      for (const ParameterDecision* d : group) {
        if (IsGeneratedName(d->name) == invented) names.push_back(YamlScalar(d->name));
      }
    }
    lists.push_back("[" + Join(names, ", ") + "]");
  }
  if (lists.empty()) return std::nullopt;
  std::string more;
  if (lists.size() > kShownGroups) {
    more = fmt::format(" and {} more groups", lists.size() - kShownGroups);
    lists.resize(kShownGroups);
  }
  return fmt::format(
      "parameters that hold the same numbers bit for bit, as they are or transposed; each is "
      "trained on its own. Exporters untie tied weights that way, and layers that were copied "
      "begin "
      "alike. To train each group as one: model: {{tie: [{}]}}{}",
      Join(lists, ", "), more);
}

}  // namespace hyper::onnx_frontend
