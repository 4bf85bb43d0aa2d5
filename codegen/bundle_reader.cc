#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>

#include "base/sha256.h"
#include "codegen/bundle.h"
#include "codegen/kernel_library.h"
#include "codegen/manifest.h"
#include "codegen/validate.h"

namespace hyper::codegen {
namespace {

constexpr int64_t kManifestLimit = 16 << 20;

Status Damaged(const std::string& path, std::string_view name, const std::string& actual,
               const std::string& expected) {
  return DataLoss(fmt::format("bundle '{}': '{}' is damaged: SHA-256 begins with {}, expected {}",
                              path, name, actual.substr(0, 12), expected.substr(0, 12)));
}

class FolderReader : public BundleReader {
 public:
  FolderReader(FileSystem* fs, std::string path) : fs_(fs), path_(std::move(path)) {}

  Status Load() {
    HYPER_RETURN_IF_ERROR(ReadManifest());
    HYPER_RETURN_IF_ERROR(CheckFileList());
    for (const auto& [name, hash] : manifest_.checksums) {
      HYPER_RETURN_IF_ERROR(CheckFile(name, hash));
    }
    return ReadProgram();
  }

  const Manifest& manifest() const override { return manifest_; }
  const program::Program& program() const override { return program_; }

  Status ReadSlot(const program::Slot& slot, std::span<std::byte> out) const override {
    if (slot.data_bytes() != static_cast<int64_t>(out.size())) {
      return InvalidArgument(fmt::format("slot '{}' has {} bytes of data, {} were asked for",
                                         slot.name(), slot.data_bytes(), out.size()));
    }
    if (out.empty()) return Status::Ok();
    return fs_->ReadAt(FilePath(kTensorsFile), slot.data_offset(), out);
  }

  Result<std::string> ReadText(const std::string& name) const override {
    const auto hash = manifest_.checksums.find(name);
    if (hash == manifest_.checksums.end()) {
      return NotFound(fmt::format("bundle '{}' has no file '{}'", path_, name));
    }
    return ReadChecked(name, hash->second);
  }

  Result<std::unique_ptr<KernelLibrary>> LoadKernels() const override {
    const std::string name(kKernelsFile);
    const auto hash = manifest_.checksums.find(name);
    if (hash == manifest_.checksums.end()) return std::unique_ptr<KernelLibrary>();
    return LoadKernelLibrary(fs_, FilePath(name), manifest_.sizes.at(name), hash->second, program_);
  }

 private:
  std::string FilePath(std::string_view name) const { return JoinPath(path_, name); }

  Status ReadManifest() {
    if (!fs_->Exists(path_)) return NotFound(fmt::format("there is no bundle '{}'", path_));
    const std::string file = FilePath(kManifestFile);
    if (!fs_->Exists(file)) {
      return InvalidArgument(
          fmt::format("'{}' is not a bundle: it holds no {}", path_, kManifestFile));
    }
    HYPER_ASSIGN_OR_RETURN(const std::string text, fs_->ReadAll(file, kManifestLimit));
    HYPER_ASSIGN_OR_RETURN(manifest_, ParseManifest(text, path_));
    return Status::Ok();
  }

  // The folder holds exactly what the manifest names, and no links to elsewhere.
  Status CheckFileList() const {
    std::set<std::string> found;
    HYPER_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs_->List(path_));
    for (const std::string& name : names) {
      if (name != kManifestFile && name != "group0") found.insert(name);
      HYPER_RETURN_IF_ERROR(RefuseLink(name));
    }
    HYPER_ASSIGN_OR_RETURN(const std::vector<std::string> group, fs_->List(FilePath("group0")));
    for (const std::string& name : group) {
      found.insert("group0/" + name);
      HYPER_RETURN_IF_ERROR(RefuseLink("group0/" + name));
    }
    for (const std::string& name : found) {
      if (!manifest_.checksums.contains(name)) {
        return DataLoss(
            fmt::format("bundle '{}' holds '{}', which its manifest does not name", path_, name));
      }
    }
    for (const auto& [name, hash] : manifest_.checksums) {
      if (!found.contains(name)) {
        return DataLoss(fmt::format("bundle '{}' lacks its file '{}'", path_, name));
      }
    }
    return Status::Ok();
  }

  Status RefuseLink(const std::string& name) const {
    std::error_code error;
    if (std::filesystem::is_symlink(FilePath(name), error)) {
      return DataLoss(fmt::format("bundle '{}': '{}' is a symbolic link", path_, name));
    }
    return Status::Ok();
  }

  Status CheckFile(const std::string& name, const std::string& hash) const {
    const int64_t expected = manifest_.sizes.at(name);
    HYPER_ASSIGN_OR_RETURN(const int64_t bytes, fs_->Size(FilePath(name)));
    if (bytes != expected) {
      return DataLoss(
          fmt::format("bundle '{}': '{}' has {} bytes, expected {}", path_, name, bytes, expected));
    }
    if (name == kProgramFile) return Status::Ok();  // hashed as it is read, below
    HYPER_ASSIGN_OR_RETURN(const std::string actual, HashFile(fs_, FilePath(name), bytes));
    return actual == hash ? Status::Ok() : Damaged(path_, name, actual, hash);
  }

  // The bytes that were hashed are the bytes that are returned.
  Result<std::string> ReadChecked(const std::string& name, const std::string& hash) const {
    HYPER_ASSIGN_OR_RETURN(std::string text,
                           fs_->ReadAll(FilePath(name), manifest_.sizes.at(name)));
    const std::string actual = Sha256Hex(text);
    if (actual != hash) return Damaged(path_, name, actual, hash);
    return text;
  }

  Status ReadProgram() {
    const std::string name(kProgramFile);
    HYPER_ASSIGN_OR_RETURN(const std::string bytes,
                           ReadChecked(name, manifest_.checksums.at(name)));
    const google::protobuf::LogSilencer quiet;  // what is wrong is said by our status
    if (!program_.ParseFromString(bytes)) {
      return DataLoss(fmt::format("bundle '{}': '{}' is not a program", path_, name));
    }
    const ProgramContext context{
        .tensors_bytes = manifest_.sizes.at(std::string(kTensorsFile)),
        .has_kernels = manifest_.checksums.contains(std::string(kKernelsFile))};
    return ValidateProgram(program_, context).WithContext(fmt::format("bundle '{}'", path_));
  }

  FileSystem* fs_;
  std::string path_;
  Manifest manifest_;
  program::Program program_;
};

}  // namespace

Result<std::unique_ptr<BundleReader>> BundleReader::Open(FileSystem* fs, const std::string& path) {
  auto reader = std::make_unique<FolderReader>(fs, path);
  HYPER_RETURN_IF_ERROR(reader->Load());
  return std::unique_ptr<BundleReader>(std::move(reader));
}

}  // namespace hyper::codegen
