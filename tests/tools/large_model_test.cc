// A model whose weights are larger than any protobuf message, from inspecting it to its outputs.
// The weights are a sparse file; the bundle has their bytes (2.3 GB of disk for a minute).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "onnx/onnx_pb.h"
#include "tests/tools/cli_runner.h"

namespace hyper::tools {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int64_t kRows = 9 << 16;
constexpr int64_t kColumns = 1024;
constexpr int64_t kBytes = kRows * kColumns * 4;
static_assert(kBytes > int64_t{1} << 31);

void AddValue(onnx::ValueInfoProto* value, const std::string& name, int type,
              const std::vector<int64_t>& dims) {
  value->set_name(name);
  auto* tensor = value->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type);
  for (const int64_t d : dims) tensor->mutable_shape()->add_dim()->set_dim_value(d);
}

// y = w[ids]
void WriteModel(const std::string& path) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto* graph = model.mutable_graph();
  graph->set_name("table");
  AddValue(graph->add_input(), "ids", onnx::TensorProto::INT64, {4});
  AddValue(graph->add_output(), "y", onnx::TensorProto::FLOAT, {4, kColumns});
  onnx::NodeProto* node = graph->add_node();
  node->set_op_type("Gather");
  node->add_input("w");
  node->add_input("ids");
  node->add_output("y");
  onnx::TensorProto* w = graph->add_initializer();
  w->set_name("w");
  w->set_data_type(onnx::TensorProto::FLOAT);
  w->add_dims(kRows);
  w->add_dims(kColumns);
  w->set_data_location(onnx::TensorProto::EXTERNAL);
  auto* entry = w->add_external_data();
  entry->set_key("location");
  entry->set_value("weights.data");
  WriteBytes(path, model.SerializeAsString());
}

TEST(LargeModel, IsInspectedCompiledAndRun) {
  const std::string model = Scratch("large/model.onnx");
  WriteModel(model);
  WriteBytes(Scratch("large/weights.data"), "");
  fs::resize_file(Scratch("large/weights.data"), static_cast<uintmax_t>(kBytes) - sizeof(float));
  const float last = 1.5F;  // behind all offsets of 31 bits
  std::ofstream(Scratch("large/weights.data"), std::ios::binary | std::ios::app)
      .write(reinterpret_cast<const char*>(&last), sizeof(last));

  const CliRun inspected = Hyperc({"inspect", model});
  EXPECT_EQ(inspected.exit_code, 0) << inspected.err;
  EXPECT_THAT(inspected.out, HasSubstr("603979776 elements"));

  WriteBytes(Scratch("large.yaml"),
             "version: 1\ndata: {kind: npy, inputs: {ids: {file: large/ids.npy}}}\n");
  std::string ids;
  for (const int64_t id : {int64_t{0}, int64_t{1}, int64_t{2}, kRows - 1}) {
    ids.append(reinterpret_cast<const char*>(&id), sizeof(id));
  }
  WriteBytes(Scratch("large/ids.npy"), Npy("<i8", "4,", ids));
  const std::string bundle = Scratch("large.bundle");
  const CliRun compiled = Hyperc({"compile", model, "-s", Scratch("large.yaml"), "-o", bundle});
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  int64_t bytes = 0;
  for (const std::string& file : FilesBelow(bundle)) {
    bytes += static_cast<int64_t>(fs::file_size(bundle + "/" + file));
  }
  EXPECT_GE(bytes, kBytes);
  EXPECT_LT(bytes, kBytes + (1 << 20));  // once
  EXPECT_LT(fs::file_size(bundle + "/model.onnx"), 4096u);
  const CliRun run = Hyperrun({bundle, "--threads", "1", "--outputs", Scratch("large/out")});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::string y = ReadBytes(Scratch("large/out/y.npy"));
  ASSERT_GE(y.size(), 4u * kColumns * sizeof(float));
  EXPECT_EQ(std::memcmp(y.data() + y.size() - sizeof(last), &last, sizeof(last)), 0);
}

}  // namespace
}  // namespace hyper::tools
