// Sequences and optionals of tensors that vanish at compile time: lists of the import itself, as
// exporters write them around Split and Concat. What is left of one in the program is refused.
#include <fmt/format.h>

#include "base/strings.h"
#include "frontend/onnx/importer.h"
#include "frontend/onnx/tensor_data.h"

namespace hyper::onnx_frontend {
namespace {

using ir::HostTensor;
using TensorList = std::vector<Tensor>;

Tensor Sequence(TensorList elements, DType dtype) {
  Tensor tensor;
  tensor.type = elements.empty() ? ir::TensorType{dtype, {}} : elements.front().type;
  tensor.sequence = std::make_shared<const TensorList>(std::move(elements));
  return tensor;
}

const TensorList& List(const NodeContext& c, int i) {
  const Tensor& tensor = c.AnyOperand(i);
  if (tensor.sequence == nullptr) Fail(fmt::format("operand {} is not a sequence", i));
  return *tensor.sequence;
}

// Position of operand `i` in [0, count); `count` is the extent that negative ones count from.
int64_t Position(const NodeContext& c, int i, int64_t extent, int64_t count) {
  if (c.Known(i) == nullptr) {
    Refuse(Refusal::kSequences,
           fmt::format("the position ('{}') depends on data", c.node().input(i)),
           c.Operand(i).value);
  }
  if (c.Type(i).elements() != 1) Fail("one position is expected");
  const int64_t given = c.Ints(i, "the position")[0];
  const int64_t position = given < 0 ? given + extent : given;
  if (position < 0 || position >= count) {
    Fail(fmt::format("position {} in a sequence of {}", given, extent));
  }
  return position;
}

void SequenceConstruct(NodeContext& c) {
  TensorList elements;
  for (int i = 0; i < c.input_count(); ++i) {
    elements.push_back(c.Operand(i));
    if (elements.back().type.dtype != elements.front().type.dtype) {
      Fail("the elements have different types");
    }
  }
  if (elements.empty()) Fail("no element is given");
  c.OutTensor(0, Sequence(std::move(elements), DType::kF32));
}

void SequenceEmpty(NodeContext& c) {
  const int type = static_cast<int>(c.Int("dtype", onnx::TensorProto::FLOAT));
  const auto dtype = DTypeFromOnnx(type);
  if (!dtype.has_value()) Refuse(RefusalOfElementType(type), OnnxTypeName(type));
  c.OutTensor(0, Sequence({}, *dtype));
}

void SequenceAt(NodeContext& c) {
  const TensorList& list = List(c, 0);
  const int64_t count = static_cast<int64_t>(list.size());
  c.OutTensor(0, list[static_cast<size_t>(Position(c, 1, count, count))]);
}

void SequenceLength(NodeContext& c) {
  c.OutConstant(0, HostTensor::ScalarI64(static_cast<int64_t>(List(c, 0).size())));
}

void SequenceInsert(NodeContext& c) {
  TensorList list = List(c, 0);
  const int64_t count = static_cast<int64_t>(list.size());
  const Tensor& added = c.Operand(1);
  if (added.type.dtype != c.AnyOperand(0).type.dtype) {
    Fail(fmt::format("a tensor of {} into a sequence of {}", ir::DTypeName(added.type.dtype),
                     ir::DTypeName(c.AnyOperand(0).type.dtype)));
  }
  const int64_t at = c.Has(2) ? Position(c, 2, count, count + 1) : count;
  list.insert(list.begin() + at, added);
  c.OutTensor(0, Sequence(std::move(list), added.type.dtype));
}

void SequenceErase(NodeContext& c) {
  TensorList list = List(c, 0);
  const int64_t count = static_cast<int64_t>(list.size());
  if (count == 0) Fail("the sequence is empty: there is nothing to erase");
  list.erase(list.begin() + (c.Has(1) ? Position(c, 1, count, count) : count - 1));
  c.OutTensor(0, Sequence(std::move(list), c.AnyOperand(0).type.dtype));
}

void ConcatFromSequence(NodeContext& c) {
  TensorList list = List(c, 0);
  if (list.empty()) Fail("the sequence is empty");
  const bool stack = c.Int("new_axis", 0) != 0;
  const int rank = list.front().type.rank() + (stack ? 1 : 0);
  const int axis = NormalAxis(c.Int("axis", 0), rank);
  if (stack) {
    for (Tensor& t : list) {
      Dims dims = t.type.dims;
      if (static_cast<int>(dims.size()) + 1 != rank) Fail("the elements differ in rank");
      dims.insert(dims.begin() + axis, 1);
      t = c.ComputeReshape(std::move(t), dims);
    }
  }
  c.OutTensor(
      0, list.size() == 1 ? list.front() : c.Compute("concat", list, {{"axis", int64_t{axis}}}));
}

void SplitToSequence(NodeContext& c) {
  const Tensor& x = c.Operand(0);
  const int axis = NormalAxis(c.Int("axis", 0), x.type.rank());
  const size_t at = static_cast<size_t>(axis);
  const int64_t extent = x.type.dims[at];
  std::vector<int64_t> sizes;
  if (!c.services().reserve_nodes(extent)) Unsupported(fmt::format("up to {} parts", extent));
  const bool keep = c.Has(1) || c.Int("keepdims", 1) != 0;
  if (!c.Has(1)) {
    sizes.assign(static_cast<size_t>(extent), 1);
  } else if (const std::vector<int64_t> given = c.Ints(1, "the list of lengths");
             c.Type(1).rank() == 0) {
    if (given[0] < 1) Fail(fmt::format("chunks of {}", given[0]));
    for (int64_t left = extent; left > 0; left -= given[0]) {
      sizes.push_back(std::min(left, given[0]));
    }
  } else {
    sizes = given;
  }
  TensorList parts;
  int64_t start = 0;
  for (int64_t size : sizes) {
    if (size < 0 || size > extent - start)
      Fail(fmt::format("parts {} of a dim of {}", FormatDims(sizes), extent));
    Dims starts(x.type.dims.size(), 0);
    Dims limits = x.type.dims;
    starts[at] = start;
    limits[at] = start + size;
    start += size;
    Tensor part =
        c.Compute("slice", {x},
                  {{"starts", starts}, {"limits", limits}, {"strides", Dims(starts.size(), 1)}});
    if (!keep) {
      Dims dims = part.type.dims;
      dims.erase(dims.begin() + axis);
      part = c.ComputeReshape(std::move(part), dims);
    }
    parts.push_back(std::move(part));
  }
  if (start != extent) Fail(fmt::format("parts {} of a dim of {}", FormatDims(sizes), extent));
  c.OutTensor(0, Sequence(std::move(parts), x.type.dtype));
}

void Optional(NodeContext& c) {
  if (c.Has(0)) return c.OutTensor(0, c.AnyOperand(0));
  Tensor nothing;
  nothing.absent = true;
  c.OutTensor(0, std::move(nothing));
}

void OptionalHasElement(NodeContext& c) {
  const bool has = c.Has(0) && !c.AnyOperand(0).absent;
  c.OutConstant(0, HostTensor::FromVector<uint8_t>(
                       DType::kBool, {}, std::vector<uint8_t>{has ? uint8_t{1} : uint8_t{0}}));
}

void OptionalGetElement(NodeContext& c) {
  if (c.AnyOperand(0).absent) Fail("the optional has no element");
  c.OutTensor(0, c.AnyOperand(0));
}

}  // namespace

void RegisterSequenceImporters(ImportTable& t) {
  const std::string_view list = "a list of the import; nothing in the program";
  auto add = [&](std::string_view op, int oldest, int newest, void (*import)(NodeContext&),
                 std::string_view doc, std::vector<int> constants = {}) {
    ImportTarget target{op, oldest, newest, import, doc, std::move(constants)};
    target.structural = true;
    t.Add(std::move(target));
  };
  add("SequenceConstruct", 11, 11, SequenceConstruct, list);
  add("SequenceEmpty", 11, 11, SequenceEmpty, list);
  add("SequenceAt", 11, 11, SequenceAt, "the element at a known position", {1});
  add("SequenceLength", 11, 11, SequenceLength, "a constant");
  add("SequenceInsert", 11, 11, SequenceInsert, list, {2});
  add("SequenceErase", 11, 11, SequenceErase, list, {1});
  add("ConcatFromSequence", 11, 11, ConcatFromSequence, "concat");
  add("SplitToSequence", 11, 24, SplitToSequence, "slices", {1});
  add("Optional", 15, 15, Optional, "nothing");
  add("OptionalHasElement", 15, 18, OptionalHasElement, "a constant");
  add("OptionalGetElement", 15, 18, OptionalGetElement, "nothing");
}

}  // namespace hyper::onnx_frontend
