// Models as ONNX text, loaded and imported.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "frontend/onnx/import.h"
#include "frontend/onnx/load.h"
#include "ir/reference/reference.h"
#include "ir/text.h"
#include "onnx/defs/parser.h"

namespace hyper::onnx_frontend {

inline onnx::ModelProto ParseModel(const std::string& text) {
  onnx::ModelProto model;
  const auto status = onnx::OnnxParser::Parse(model, text.c_str());
  EXPECT_TRUE(status.IsOK()) << status.ErrorMessage();
  return model;
}

// A model of IR 8 with the graph given.
inline onnx::ModelProto GraphModel(const std::string& graph, int opset = 17) {
  return ParseModel("<ir_version: 8, opset_import: [\"\" : " + std::to_string(opset) + "]>\n" +
                    graph);
}

// Two underscores in names become a dot, which the text form does not take.
inline onnx::ModelProto Dotted(onnx::ModelProto model) {
  const auto dot = [](std::string* name) {
    for (size_t at = name->find("__"); at != std::string::npos; at = name->find("__")) {
      name->replace(at, 2, ".");
    }
  };
  for (auto& t : *model.mutable_graph()->mutable_initializer()) dot(t.mutable_name());
  for (auto& node : *model.mutable_graph()->mutable_node()) {
    for (std::string& name : *node.mutable_input()) dot(&name);
    for (std::string& name : *node.mutable_output()) dot(&name);
  }
  return model;
}

inline std::unique_ptr<LoadedModel> MustLoad(onnx::ModelProto model) {
  Diagnostics diagnostics;
  auto loaded = LoadModelProto(std::move(model), "m.onnx", "", &diagnostics);
  EXPECT_TRUE(loaded.ok()) << diagnostics.Render();
  return loaded.ok() ? std::move(loaded).value() : nullptr;
}

// All messages of loading a model that must be refused.
inline std::string RefuseLoad(onnx::ModelProto model, const std::string& folder = "") {
  Diagnostics diagnostics;
  auto loaded = LoadModelProto(std::move(model), "m.onnx", folder, &diagnostics);
  EXPECT_FALSE(loaded.ok());
  return diagnostics.Render();
}

inline ImportedModel MustImport(const LoadedModel& model, const ImportOptions& options,
                                Diagnostics* out = nullptr) {
  Diagnostics own;
  Diagnostics* diagnostics = out == nullptr ? &own : out;
  auto imported = Import(model, options, diagnostics);
  EXPECT_TRUE(imported.ok()) << diagnostics->Render();
  if (!imported.ok()) return {};
  const Status verified = ir::Verify(imported->forward.module);
  EXPECT_TRUE(verified.ok()) << verified.message() << "\n" << ir::Print(imported->forward.module);
  return std::move(imported).value();
}

// Training on a scalar output of the graph.
inline ImportOptions TrainOn(const std::string& output) {
  ImportOptions options;
  options.training = true;
  LossSpec loss;
  loss.kind = ir::LossKind::kOutput;
  loss.prediction = output;
  options.losses.push_back(loss);
  return options;
}

inline std::string RefuseImport(const LoadedModel& model, const ImportOptions& options) {
  Diagnostics diagnostics;
  auto imported = Import(model, options, &diagnostics);
  EXPECT_FALSE(imported.ok());
  return diagnostics.Render();
}

// Runs a function with the inputs given by name and the initial values of its tensors; rng is
// (1, 0, 0).
inline std::vector<ir::HostTensor> Evaluated(const ImportedModel& model,
                                             const std::string& function,
                                             const std::map<std::string, ir::HostTensor>& inputs) {
  const ir::Function& f = *model.forward.module.Find(function);
  std::vector<ir::HostTensor> arguments;
  for (const ir::Argument& a : f.arguments()) {
    if (a.kind == ir::ArgumentKind::kRng) {
      arguments.push_back(ir::HostTensor::FromVector<int64_t>(ir::DType::kI64, {3}, {1, 0, 0}));
    } else if (a.kind == ir::ArgumentKind::kInput) {
      arguments.push_back(inputs.count(a.name) > 0 ? inputs.at(a.name)
                                                   : ir::HostTensor::Zeros(f.type(a.value)));
    } else {
      arguments.push_back(model.forward.module.FindTensor(a.name)->initial);
    }
  }
  auto results = ir::Evaluate(f, arguments);
  EXPECT_TRUE(results.ok()) << results.status().message();
  return results.ok() ? *results : std::vector<ir::HostTensor>();
}

inline int CountOps(const ir::Function& f, std::string_view op) {
  int count = 0;
  for (ir::NodeId id : f.order()) count += f.node(id).op->name == op;
  return count;
}

// A folder of its own per test, removed afterwards.
class TempDir {
 public:
  TempDir() {
    std::string name = std::filesystem::temp_directory_path() / "hyper_onnx_XXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  ~TempDir() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out << bytes;
}

}  // namespace hyper::onnx_frontend
