// Writing by index into a copy, and orders that depend on lengths.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/strings.h"
#include "frontend/onnx/importer.h"
#include "frontend/onnx/indexing.h"

namespace hyper::onnx_frontend {
namespace {

std::string Reduction(const NodeContext& c) {
  static const std::map<std::string, std::string> kinds = {
      {"none", "none"}, {"add", "sum"}, {"mul", "prod"}, {"max", "max"}, {"min", "min"}};
  const std::string name = c.String("reduction", "none");
  const auto kind = kinds.find(name);
  if (kind == kinds.end()) {
    Fail(fmt::format("the reduction is '{}'; none, add, mul, max or min is expected", name));
  }
  return kind->second;
}

// Which of two updates of one place stays is not defined by ONNX: where the indices are known such
// a model is refused, otherwise the last one does.
class Places {
 public:
  void Add(const std::vector<int64_t>& place, int64_t update) {
    const auto [first, is_new] = seen_.emplace(place, update);
    if (is_new) return;
    Fail(fmt::format(
        "updates {} and {} write the same place {}, and without a reduction their order is not "
        "defined; say reduction add, mul, max or min, or drop one",
        first->second, update, FormatDims(place)));
  }

 private:
  std::map<std::vector<int64_t>, int64_t> seen_;
};

ValueId ScatterAlong(NodeContext& c, ValueId x, ValueId indices, ValueId updates, int64_t axis,
                     const std::string& reduction) {
  return c.Add1("scatter_elements", {x, indices, updates},
                {{"axis", axis}, {"reduction", reduction}});
}

void ScatterElements(NodeContext& c) {
  RequireIndices(c, 1);
  if (c.Type(1).rank() != c.Type(0).rank() || c.Shape(2) != c.Shape(1)) {
    Fail(fmt::format(
        "the data are {}, the indices {} and the updates {}; all have one rank, and the "
        "updates the shape of the indices",
        FormatDims(c.Shape(0)), FormatDims(c.Shape(1)), FormatDims(c.Shape(2))));
  }
  const int axis = NormalAxis(c.Int("axis", 0), c.Type(0).rank());
  const std::string reduction = Reduction(c);
  const int64_t extent = c.Shape(0)[static_cast<size_t>(axis)];
  CheckRange(c, 1, extent);
  if (const ir::HostTensor* known = c.Known(1); known != nullptr && reduction == "none") {
    Places places;
    const Dims& dims = c.Shape(1);
    for (int64_t k = 0; k < known->type().elements(); ++k) {
      std::vector<int64_t> place(dims.size());
      int64_t rest = k;
      for (size_t d = dims.size(); d-- > 0; rest /= dims[d]) place[d] = rest % dims[d];
      const int64_t index = known->ElementAsInt(k);
      place[static_cast<size_t>(axis)] = index < 0 ? index + extent : index;
      places.Add(place, k);
    }
  }
  c.Out(0, ScatterAlong(c, c.In(0), c.In(1), c.In(2), axis, reduction));
}

// Rows of the flattened leading dims; one index serves all elements of its row.
void ScatterNd(NodeContext& c) {
  RequireIndices(c, 1);
  const Dims data = c.Shape(0);
  const Dims indices = c.Shape(1);
  if (indices.empty() || data.empty()) Fail("data and indices must have at least one dim");
  const std::string reduction = Reduction(c);
  const ValueId flat = FlatTuples(c, data, 0);
  const auto outer = static_cast<size_t>(indices.back());
  Dims wanted(indices.begin(), indices.end() - 1);
  wanted.insert(wanted.end(), data.begin() + static_cast<long>(outer), data.end());
  if (c.Shape(2) != wanted) {
    Fail(fmt::format("the updates are {}; for data {} and indices {} they must be {}",
                     FormatDims(c.Shape(2)), FormatDims(data), FormatDims(indices),
                     FormatDims(wanted)));
  }
  if (const ir::HostTensor* known = c.Known(1); known != nullptr && reduction == "none") {
    Places places;
    for (int64_t k = 0; k < known->type().elements() / std::max<int64_t>(1, indices.back()); ++k) {
      std::vector<int64_t> place;
      for (size_t j = 0; j < outer; ++j) {
        const int64_t index = known->ElementAsInt(k * indices.back() + static_cast<int64_t>(j));
        place.push_back(index < 0 ? index + data[j] : index);
      }
      places.Add(place, k);
    }
  }
  const int64_t rows = ir::ElementCount(std::span(data).first(outer));
  const int64_t row = ir::ElementCount(std::span(data).subspan(outer));
  const int64_t count = ir::ElementCount(std::span(indices).first(indices.size() - 1));
  const ValueId places = c.b().Broadcast(c.Reshape(flat, {count}), {count, row}, {0});
  const ValueId y = ScatterAlong(c, c.Reshape(c.In(0), {rows, row}), places,
                                 c.Reshape(c.In(2), {count, row}), 0, reduction);
  c.Out(0, c.Reshape(y, data));
}

ValueId Positions(NodeContext& c, const Dims& dims, int axis) {
  return c.Add1("iota", {}, {{"shape", dims}, {"axis", int64_t{axis}}, {"dtype", DType::kI64}});
}

// A cache with new entries behind those of earlier calls.
void TensorScatter(NodeContext& c) {
  const Dims& cache = c.Shape(0);
  const Dims& update = c.Shape(1);
  const int axis = NormalAxis(c.Int("axis", -2), c.Type(0).rank());
  if (axis == 0) Fail("axis is 0, the batch dim, to which write_indices belong");
  for (size_t d = 0; d < cache.size(); ++d) {
    const bool fits = update.size() == cache.size() &&
                      (static_cast<int>(d) == axis ? update[d] <= cache[d] : update[d] == cache[d]);
    if (fits) continue;
    Fail(
        fmt::format("the update is {}; dims of the cache {} are expected, at most those along axis "
                    "{}",
                    FormatDims(update), FormatDims(cache), axis));
  }
  const std::string mode = c.String("mode", "linear");
  if (mode != "linear" && mode != "circular") {
    Fail(fmt::format("mode is '{}'; linear or circular is expected", mode));
  }
  ValueId at = Positions(c, update, axis);
  const int64_t extent = cache[static_cast<size_t>(axis)];
  if (c.Has(2)) {
    RequireIndices(c, 2);
    if (c.Shape(2) != Dims{cache[0]}) {
      Fail(fmt::format("write_indices are {}; one per batch entry, [{}], is expected",
                       FormatDims(c.Shape(2)), cache[0]));
    }
    if (const ir::HostTensor* known = c.Known(2)) {
      const int64_t last =
          mode == "linear" ? extent - update[static_cast<size_t>(axis)] : extent - 1;
      for (int64_t k = 0; k < known->type().elements(); ++k) {
        const int64_t v = known->ElementAsInt(k);
        if (v >= 0 && v <= last) continue;
        Fail(fmt::format("write index {} of batch entry {}; 0 to {} is expected in {} mode", v, k,
                         last, mode));
      }
    }
    const ValueId begin = c.b().Broadcast(c.b().Cast(DType::kI64, c.In(2)), update, {0});
    at = c.MapValues({at, begin}, [&](ExprBuilder& e, Args a) {
      const int sum = e.Binary(ScalarOp::kAdd, a[0], a[1]);
      if (mode == "linear") return sum;
      return e.Binary(ScalarOp::kMod, sum, e.ConstantInt(DType::kI64, extent));
    });
  }
  c.Out(0, ScatterAlong(c, c.In(0), at, c.In(1), axis, "none"));
}

// The first entries of each sequence, as many as it has, backwards.
void ReverseSequence(NodeContext& c) {
  const Dims& x = c.Shape(0);
  const int time = NormalAxis(c.Int("time_axis", 0), c.Type(0).rank());
  const int batch = NormalAxis(c.Int("batch_axis", 1), c.Type(0).rank());
  if (x.size() < 2 || time == batch || time > 1 || batch > 1) {
    Fail(fmt::format("time_axis is {} and batch_axis {}; 0 and 1 or 1 and 0 are expected", time,
                     batch));
  }
  RequireIndices(c, 1);
  const int64_t sequences = x[static_cast<size_t>(batch)];
  if (c.Shape(1) != Dims{sequences}) {
    Fail(fmt::format("sequence_lens are {}; one per sequence, [{}], is expected",
                     FormatDims(c.Shape(1)), sequences));
  }
  const int64_t steps = x[static_cast<size_t>(time)];
  if (const ir::HostTensor* known = c.Known(1)) {
    for (int64_t k = 0; k < sequences; ++k) {
      const int64_t length = known->ElementAsInt(k);
      if (length < 0 || length > steps) {
        Fail(fmt::format("sequence {} has length {}; 0 to {} is expected", k, length, steps));
      }
    }
  }
  const ValueId lengths = c.b().Broadcast(c.b().Cast(DType::kI64, c.In(1)), x, {batch});
  const ValueId from = c.MapValues({Positions(c, x, time), lengths}, [&](ExprBuilder& e, Args a) {
    const int last = e.Binary(ScalarOp::kSub, a[1], e.ConstantInt(DType::kI64, 1));
    return e.Select(e.Binary(ScalarOp::kLt, a[0], a[1]), e.Binary(ScalarOp::kSub, last, a[0]),
                    a[0]);
  });
  c.Out(0, c.Add1("gather_elements", {c.In(0), from}, {{"axis", int64_t{time}}}));
}

}  // namespace

void RegisterScatterImporters(ImportTable& t) {
  constexpr std::string_view kRepeated =
      "scatter_elements; known indices that repeat a place without a reduction are refused, of "
      "others the last update stays";
  t.Add({"Scatter", 9, 11, ScatterElements, kRepeated});
  t.Add({"ScatterElements", 11, 18, ScatterElements, kRepeated});
  t.Add({"ScatterND", 11, 18, ScatterNd, kRepeated});
  t.Add({"TensorScatter", 24, 24, TensorScatter, "scatter_elements"});
  t.Add({"ReverseSequence", 10, 10, ReverseSequence, "map on positions and gather_elements"});
}

}  // namespace hyper::onnx_frontend
