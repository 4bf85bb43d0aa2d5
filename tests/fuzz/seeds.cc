// Writes the seeds that the project's own writers make, and small broken files of each foreign
// format: fuzz_seeds FOLDER fills FOLDER/TARGET.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <onnx/defs/parser.h>

#include "base/file.h"
#include "codegen/bundle.h"
#include "codegen/manifest.h"
#include "runtime/checkpoint.h"
#include "tests/codegen/codegen_fixture.h"
#include "tests/fuzz/target.h"
#include "tests/runtime/fake_executor.h"
#include "tests/runtime/test_files.h"

namespace {

namespace fs = std::filesystem;

std::map<std::string, std::string> FilesBelow(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    files[fs::relative(entry.path(), folder).string()] = {std::istreambuf_iterator<char>(in),
                                                          std::istreambuf_iterator<char>()};
  }
  return files;
}

void Write(const std::string& path, const std::string& content) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

// A model from ONNX text, its IR version and opset before it.
onnx::ModelProto Model(const std::string& graph) {
  onnx::ModelProto model;
  const auto status = onnx::OnnxParser::Parse(
      model, ("<ir_version: 8, opset_import: [\"\" : 17]>\n" + graph).c_str());
  if (!status.IsOK()) std::cerr << status.ErrorMessage() << "\n";
  return model;
}

// `model` with its first initializer in w.bin: 12 bytes from `location` and `offset`.
std::string WithExternalData(onnx::ModelProto model, const std::string& location,
                             const std::string& offset, const std::string& content) {
  onnx::TensorProto* tensor = model.mutable_graph()->mutable_initializer(0);
  tensor->clear_float_data();
  tensor->clear_raw_data();
  tensor->set_data_location(onnx::TensorProto::EXTERNAL);
  for (const auto& [key, value] : std::map<std::string, std::string>{
           {"location", location}, {"offset", offset}, {"length", "12"}}) {
    auto* entry = tensor->add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  }
  return hyper::fuzz::Pack({{"model.onnx", model.SerializeAsString()}, {"w.bin", content}});
}

void WriteModels(const std::string& out) {
  const onnx::ModelProto good = Model(
      "g (float[n, 3] x) => (float y) <float[3, 1] w = {1, 2, 3}> { m = MatMul(x, w) y = "
      "ReduceMean <keepdims = 0> (m) }");
  Write(out + "/external", WithExternalData(good, "w.bin", "4", std::string(16, '\x3f')));
  Write(out + "/external_short", WithExternalData(good, "w.bin", "8", std::string(16, '\x3f')));
  Write(out + "/external_outside", WithExternalData(good, "../w.bin", "0", "0123456789ab"));
  Write(out + "/external_negative", WithExternalData(good, "w.bin", "-4", "0123456789ab"));
  for (const int64_t extent : {int64_t{-3}, int64_t{0}, int64_t{1} << 40}) {
    onnx::ModelProto bad = good;
    bad.mutable_graph()->mutable_initializer(0)->set_dims(0, extent);
    Write(out + "/extent_" + std::to_string(extent), bad.SerializeAsString());
  }
  const std::pair<const char*, const char*> broken[] = {
      {"cycle", "g (float[2] x) => (float[2] y) { y = Add(x, y) }"},
      {"no_producer", "g (float[2] x) => (float[2] y) { y = Add(x, ghost) }"},
      {"two_producers", "g (float[2] x) => (float[2] y) { y = Relu(x) y = Exp(x) }"},
      {"unknown_operator", "g (float[2] x) => (float[2] y) { y = Relo(x) }"},
      {"strides_of_zero",
       "g (float[1, 1, 4, 4] x) => (float[a, b, c, d] y) { y = MaxPool <kernel_shape = [2, 2], "
       "strides = [0, 1]> (x) }"},
      {"pads_of_2_to_62",
       "g (float[1, 1, 4, 4] x) => (float[a, b, c, d] y) { y = MaxPool <kernel_shape = [2, 2], "
       "pads = [4611686018427387904, 0, 0, 0]> (x) }"},
      {"constant_of_2_to_80",
       "g (float[2] x) => (float[a, b] y) <int64[2] s = {1099511627776, 1099511627776}> { y = "
       "ConstantOfShape(s) }"},
      {"endless_range",
       "g (float[2] x) => (int64[a] y) <int64 n = {9223372036854775807}, int64 z = {0}, int64 d = "
       "{1}> { y = Range(z, n, d) }"},
      {"endless_loop",
       "g (float[2] x) => (float[2] y) <int64 n = {9223372036854775807}, bool c = {1}> { y = Loop "
       "(n, c, x) <body = b (int64 i, bool k, float[2] v) => (bool l, float[2] w) { l = "
       "Identity(k) w = Neg(v) }> }"},
  };
  for (const auto& [name, graph] : broken) {
    Write(out + "/" + name, Model(graph).SerializeAsString());
  }
}

void WriteData(const std::string& out) {
  using namespace hyper::runtime::testing;
  const std::string idx = IdxBytes(0x08, {2, 3}, "abcdef");
  Write(out + "/bytes.idx", idx);
  Write(out + "/floats.idx", IdxBytes(0x0D, {2}, std::string(8, '\x3f')));
  Write(out + "/cut.idx", idx.substr(0, 9));
  Write(out + "/more_than_addressable.idx", IdxBytes(0x0E, {-1, -1, -1, -1}, ""));
  Write(out + "/bytes.idx.gz", Gzip(idx));
  Write(out + "/longer_than_announced.idx.gz", Gzip(idx + std::string(1 << 20, '\0')));
  Write(out + "/cut.idx.gz", Gzip(idx).substr(0, 16));
  const std::string six(24, '\1');
  Write(out + "/floats.npy", NpyBytes("<f4", "(2, 3)", six));
  Write(out + "/cut.npy", NpyBytes("<f4", "(2, 3)", six.substr(4)));
  Write(out + "/version_9.npy", NpyBytes("<f4", "(2, 3)", six, 9));
  Write(out + "/scalar.npy", NpyBytes("<i8", "()", six.substr(16)));
  Write(out + "/fortran.npy", NpyBytes("|u1", "(1,)", "a", 1, "True"));
  Write(out + "/more_than_addressable.npy", NpyBytes("<f8", "(9223372036854775807, 4)", "a"));
}

hyper::Status Main(const std::string& out) {
  using namespace hyper;
  WriteModels(out + "/onnx");
  WriteData(out + "/data");
  const std::string folder = fuzz::FreshFolder();
  HYPER_RETURN_IF_ERROR(
      codegen::WriteBundle(RealFileSystem(), folder + "/b", hyper::testing::ToyBundle()));
  auto files = FilesBelow(folder + "/b");
  // The kernels are checked by their hash and never run here: a few bytes do.
  files[std::string(codegen::kKernelsFile)] =
      "\x7f"
      "ELF";
  Write(out + "/bundle/toy", fuzz::Pack(files));
  Write(out + "/text_ir/toy", files[std::string(codegen::kModuleFile)]);
  Write(out + "/strategy/toy", files[std::string(codegen::kStrategyFile)]);
  Write(out + "/strategy/launch", files[std::string(codegen::kLaunchFile)]);

  runtime::testing::FakeExecutor executor({});
  for (const int64_t step : {3, 5}) {
    const runtime::CheckpointInfo info{.model = "toy", .step = step, .position = 8, .seed = 1};
    HYPER_RETURN_IF_ERROR(
        runtime::SaveCheckpoint(RealFileSystem(), folder + "/c", info, executor).status());
  }
  Write(out + "/checkpoint/folder", fuzz::Pack(FilesBelow(folder + "/c")));
  Write(out + "/checkpoint/one", fuzz::Pack(FilesBelow(runtime::CheckpointPath(folder + "/c", 3))));
  return Status::Ok();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const hyper::Status status = Main(argv[1]);
  if (!status.ok()) std::cerr << status.ToString() << "\n";
  return status.ok() ? 0 : 1;
}
