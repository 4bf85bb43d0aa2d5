// Reads and checks a model file. Everything wrong with it is reported in one run.
// Thread safety: a LoadedModel is immutable after loading and safe to read from several threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/diagnostics.h"
#include "base/status.h"
#include "frontend/onnx/refusal.h"
#include "frontend/onnx/tensor_data.h"
#include "ir/types.h"
#include "onnx/onnx_pb.h"

namespace hyper::onnx_frontend {

inline constexpr int kMinOpset = 7;
inline constexpr int kMinIrVersion = 3;
// The newest version of the default domain that the ONNX library knows.
int MaxOpset();

struct LoadOptions {
  // Largest model file read; external data does not count. Protocol Buffers end at 2^31 - 1.
  int64_t max_file_bytes = (int64_t{1} << 31) - 1;
};

enum class TensorOrigin { kInitializer, kConstantNode };

// A tensor whose value stands in the file.
struct NamedTensor {
  std::string name;
  ir::HostTensor value;  // undefined when the IR does not have the element type
  int onnx_type = 0;
  TensorOrigin origin = TensorOrigin::kInitializer;
  bool also_input = false;                   // listed as a graph input too
  Refusal refusal = Refusal::kElementTypes;  // why `value` is undefined
};

struct LoadedModel {
  std::string path;  // as given, for messages
  // The model with its functions inlined and its nodes in topological order.
  std::shared_ptr<const onnx::ModelProto> proto;
  // The model as it stands in the file; the same object when nothing was inlined.
  std::shared_ptr<const onnx::ModelProto> original;
  // Version of the default domain per node of proto->graph() (functions may import their own).
  std::vector<int> node_opset;
  std::vector<NamedTensor> tensors;         // initializers, then Constant nodes, in file order
  std::map<std::string, int> tensor_index;  // name -> index in `tensors`
  std::vector<const onnx::ValueInfoProto*> inputs;  // without those that are initializers
  // Values of the initializers of subgraphs, undefined where the IR lacks the element type.
  std::map<const onnx::TensorProto*, ir::HostTensor> inner_tensors;
  bool has_external_data = false;

  const onnx::GraphProto& graph() const { return proto->graph(); }
  const NamedTensor* FindTensor(const std::string& name) const;
};

// "model.onnx: node 'conv1' (Conv)" for messages.
std::string NodeLocation(const std::string& path, const onnx::NodeProto& node);
// The node's name, or its first output when it has none.
std::string NodeTitle(const onnx::NodeProto& node);

// Refuses (kInvalidArgument, all reasons in `diagnostics`) unreadable, truncated, hostile and
// malformed files. Warns when nodes had to be sorted.
Result<std::unique_ptr<LoadedModel>> LoadModel(const std::string& path, const LoadOptions& options,
                                               Diagnostics* diagnostics);

// The same for a model in memory; `path` is for messages, external data lies in `folder`.
Result<std::unique_ptr<LoadedModel>> LoadModelProto(onnx::ModelProto model, const std::string& path,
                                                    const std::string& folder,
                                                    Diagnostics* diagnostics);

// The value of a Constant node: kUnimplemented for strings and sparse tensors.
Result<ir::HostTensor> ReadConstantNode(const onnx::NodeProto& node, ExternalData* external,
                                        const std::shared_ptr<const void>& owner);

// Parts of loading (validate.cc, sort_nodes.cc).
void ValidateModel(const onnx::ModelProto& model, const std::string& path, ExternalData* external,
                   Diagnostics* diagnostics);
void ValidateNodes(const onnx::ModelProto& model, const std::vector<int>& node_opset,
                   const std::string& path, Diagnostics* diagnostics);
// Sorts the nodes (and `node_opset` with them); stable. A cycle is an error that prints it.
void SortNodes(onnx::GraphProto* graph, std::vector<int>* node_opset, const std::string& path,
               Diagnostics* diagnostics);
// Names that the node reads, captured names of its subgraphs and those of the function that a
// Gradient differentiates included, without empty ones.
std::vector<std::string> NamesRead(const onnx::NodeProto& node);

}  // namespace hyper::onnx_frontend
