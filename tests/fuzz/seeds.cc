// Writes the seeds that the project's own writers make: fuzz_seeds FOLDER fills FOLDER/bundle,
// FOLDER/checkpoint, FOLDER/text_ir and FOLDER/strategy.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/file.h"
#include "codegen/bundle.h"
#include "codegen/manifest.h"
#include "runtime/checkpoint.h"
#include "tests/codegen/codegen_fixture.h"
#include "tests/fuzz/target.h"
#include "tests/runtime/fake_executor.h"

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

hyper::Status Main(const std::string& out) {
  using namespace hyper;
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
