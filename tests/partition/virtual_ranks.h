// Tensors of virtual ranks: cut from a whole, joined again. Plain loops that share no code with
// partition/.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ir/op_def.h"
#include "ir/reference/reference.h"
#include "partition/redistribute.h"

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

// Elements of any type as numbers, and back.
inline Local ToLocal(const ir::HostTensor& tensor) {
  Local local{tensor.type().dims, {}};
  for (int64_t k = 0; k < tensor.type().elements(); ++k) {
    local.values.push_back(ir::IsFloat(tensor.type().dtype)
                               ? tensor.ElementAsDouble(k)
                               : static_cast<double>(tensor.ElementAsInt(k)));
  }
  return local;
}

inline ir::HostTensor FromLocal(ir::DType dtype, const Local& local) {
  const auto as = [&](auto zero) {
    std::vector<decltype(zero)> values;
    for (const double v : local.values) values.push_back(static_cast<decltype(zero)>(v));
    return ir::HostTensor::FromVector(dtype, local.extents, values);
  };
  switch (dtype) {
    case ir::DType::kF32: return as(float{});
    case ir::DType::kI64: return as(int64_t{});
    case ir::DType::kI32: return as(int32_t{});
    case ir::DType::kU8: return as(uint8_t{});
    case ir::DType::kBool: return as(uint8_t{});
    default: return as(double{});
  }
}

// The reference kernel of one op.
inline std::vector<Local> Run(const ir::OpDef& op, const ir::Attributes& attributes,
                              const std::vector<ir::TensorType>& in,
                              const std::vector<ir::TensorType>& out,
                              const std::vector<Local>& values) {
  std::vector<ir::HostTensor> tensors;
  std::vector<ir::ConstTensorRef> inputs;
  for (size_t i = 0; i < in.size(); ++i) tensors.push_back(FromLocal(in[i].dtype, values[i]));
  for (size_t i = 0; i < in.size(); ++i) inputs.push_back({&in[i], tensors[i].bytes().data()});
  std::vector<std::vector<std::byte>> storage;
  std::vector<ir::TensorRef> outputs;
  for (const ir::TensorType& type : out) {
    storage.emplace_back(static_cast<size_t>(type.bytes()));
    outputs.push_back({&type, storage.back().data()});
  }
  const Status status = ir::RunReference(op, attributes, 1, inputs, outputs);
  EXPECT_TRUE(status.ok()) << op.name << ": " << status.ToString();
  std::vector<Local> results;
  for (size_t i = 0; i < out.size(); ++i)
    results.push_back(ToLocal(ir::HostTensor(out[i], storage[i])));
  return results;
}

inline double Combine(Partial partial, double a, double b) {
  switch (partial) {
    case Partial::kMax: return std::max(a, b);
    case Partial::kMin: return std::min(a, b);
    case Partial::kProd: return a * b;
    case Partial::kAnd: return a != 0 && b != 0;
    case Partial::kOr: return a != 0 || b != 0;
    default: return a + b;
  }
}

// What every rank has after `step`, from what the members of its group had before.
inline std::vector<Local> Apply(const Mesh& mesh, const std::vector<int64_t>& extents,
                                const Step& step, const Layout& before,
                                const std::vector<Local>& have) {
  std::vector<Local> next;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    const std::vector<int64_t> group = mesh.Group(rank, step.axes);
    const int64_t parts = static_cast<int64_t>(group.size());
    const int64_t index = mesh.IndexAlong(rank, step.axes);
    const Local& mine = have[static_cast<size_t>(rank)];
    Local sum;
    std::vector<Local> all, blocks;
    for (const int64_t member : group) {
      all.push_back(have[static_cast<size_t>(member)]);
      if (all.size() == 1) sum = all.back();
      for (size_t k = 0; all.size() > 1 && k < sum.values.size(); ++k) {
        sum.values[k] = Combine(step.reduction, sum.values[k], all.back().values[k]);
      }
    }
    switch (step.kind) {
      case StepKind::kSlice: next.push_back(Block(mine, step.dim, index, parts)); break;
      case StepKind::kAllGather: next.push_back(Concat(all, step.dim)); break;
      case StepKind::kAllReduce: next.push_back(sum); break;
      case StepKind::kReduceScatter: next.push_back(Block(sum, step.dim, index, parts)); break;
      case StepKind::kAllToAll:
        for (const Local& other : all) blocks.push_back(Block(other, step.dim, index, parts));
        next.push_back(Concat(blocks, step.from_dim));
        break;
      case StepKind::kPermute: {
        const Box wanted = SliceOf(mesh, step.after, extents, rank);
        const auto source = std::find_if(group.begin(), group.end(), [&](int64_t member) {
          return SliceOf(mesh, before, extents, member) == wanted;
        });
        EXPECT_NE(source, group.end()) << "nobody in the group holds the slice";
        next.push_back(source == group.end() ? mine : have[static_cast<size_t>(*source)]);
        break;
      }
    }
  }
  return next;
}

}  // namespace hyper::partition
