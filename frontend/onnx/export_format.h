// What taking the weights out of a model (strip_weights.cc) and putting trained ones in (export.cc)
// agree on.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "base/status.h"
#include "ir/types.h"
#include "onnx/onnx_pb.h"

namespace hyper::onnx_frontend {

// Metadata of a stripped model: a JSON list with one entry per place of a tensor: {name, place,
// tensor, dims, file_dims, permutation, operands: [{node, slot}], type}. The tensor in the file has
// `file_dims` and is the parameter (`dims`), permuted, then reshaped.
inline constexpr const char* kTensorsKey = "hyper.tensors";
// Bytes of the largest protobuf message.
inline constexpr int64_t kMaxMessage = std::numeric_limits<int>::max();

// Removes the values of a tensor, wherever they lie.
inline void ClearData(onnx::TensorProto* t) {
  t->clear_raw_data();
  t->clear_float_data();
  t->clear_int32_data();
  t->clear_int64_data();
  t->clear_double_data();
  t->clear_uint64_data();
  t->clear_external_data();
  t->clear_data_location();
}

// A new initializer without data; listed as an input too where the IR version asks for it.
inline onnx::TensorProto* AddInitializer(onnx::ModelProto* model, const std::string& name,
                                         int onnx_type, const ir::Dims& dims) {
  onnx::GraphProto* graph = model->mutable_graph();
  if (model->ir_version() < 4) {
    onnx::ValueInfoProto* input = graph->add_input();
    input->set_name(name);
    auto* type = input->mutable_type()->mutable_tensor_type();
    type->set_elem_type(onnx_type);
    type->mutable_shape();
    for (int64_t d : dims) type->mutable_shape()->add_dim()->set_dim_value(d);
  }
  onnx::TensorProto* t = graph->add_initializer();
  t->set_name(name);
  t->set_data_type(onnx_type);
  *t->mutable_dims() = {dims.begin(), dims.end()};
  return t;
}

// Lets operand `slot` of `node` read `tensor`; the slot may be the one behind the last.
inline Status SetOperand(onnx::NodeProto* node, int slot, const std::string& tensor) {
  if (slot < 0 || slot > node->input_size()) {
    return DataLoss("node '" + node->name() + "' has no operand for '" + tensor + "'");
  }
  if (slot == node->input_size()) node->add_input();
  node->set_input(slot, tensor);
  return Status::Ok();
}

}  // namespace hyper::onnx_frontend
