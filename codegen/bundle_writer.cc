#include <algorithm>

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>

#include "base/sha256.h"
#include "codegen/bundle.h"
#include "codegen/manifest.h"
#include "codegen/validate.h"

namespace hyper::codegen {
namespace {

constexpr int64_t kTensorAlignment = 64;

// kInvalidArgument for names that no reader would take back: they come from the model file.
Result<std::string> SerializeProgram(const program::Program& program) {
  const google::protobuf::LogSilencer quiet;
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    program.SerializeToCodedStream(&coded);
  }
  program::Program copy;
  if (!copy.ParseFromString(bytes)) {
    return InvalidArgument("a name in the model is not valid UTF-8");
  }
  return bytes;
}

// A folder that a writer may replace: one of ours, possibly unfinished, or an empty one.
Status CheckReplaceable(FileSystem* fs, const std::string& path, bool unfinished) {
  const Result<std::vector<std::string>> names = fs->List(path);
  const std::string refuse =
      fmt::format("'{}' exists and is not a bundle: remove it or choose another name", path);
  if (!names.ok()) return FailedPrecondition(refuse);
  if (names->empty()) return Status::Ok();
  const std::string manifest_path = JoinPath(path, kManifestFile);
  if (!unfinished) {
    constexpr int64_t kLimit = 16 << 20;
    const Result<std::string> text = fs->ReadAll(manifest_path, kLimit);
    if (!text.ok()) return FailedPrecondition(refuse);
    const Status status = ParseManifest(*text, path).status();
    // A damaged bundle or one of another version is still a bundle.
    if (status.code() == StatusCode::kInvalidArgument) return FailedPrecondition(refuse);
  }
  // Never remove something that a user put there.
  for (const std::string& name : *names) {
    const bool known = name == kManifestFile || name == "group0" ||
                       std::any_of(BundleFiles().begin(), BundleFiles().end(),
                                   [&](const BundleFile& file) { return file.name == name; });
    if (!known) {
      return FailedPrecondition(fmt::format(
          "'{}' would be replaced but holds '{}', which is not of a bundle", path, name));
    }
  }
  return Status::Ok();
}

class Writer {
 public:
  Writer(FileSystem* fs, std::string folder, BundleContent& content)
      : fs_(fs), folder_(std::move(folder)), content_(content) {}

  Status Run() {
    HYPER_RETURN_IF_ERROR(fs_->MakeDirs(JoinPath(folder_, "group0")));
    const int64_t tensors_bytes = LayOutTensors();
    const bool has_kernels = !content_.kernels_object.empty();
    const Status valid = ValidateProgram(
        content_.program, {.tensors_bytes = tensors_bytes, .has_kernels = has_kernels});
    if (!valid.ok()) return Internal(fmt::format("bundle writer: {}", valid.message()));
    HYPER_RETURN_IF_ERROR(WriteTensors());
    HYPER_ASSIGN_OR_RETURN(const std::string program, SerializeProgram(content_.program));
    HYPER_RETURN_IF_ERROR(WriteText(kProgramFile, program));
    if (has_kernels) {
      HYPER_RETURN_IF_ERROR(WriteText(kKernelsFile, content_.kernels_object));
      HYPER_RETURN_IF_ERROR(WriteText(kKernelsSourceFile, content_.kernels_source));
    }
    HYPER_RETURN_IF_ERROR(WriteText(kStrategyFile, content_.strategy_yaml));
    HYPER_RETURN_IF_ERROR(WriteText(kLaunchFile, content_.launch_json));
    HYPER_RETURN_IF_ERROR(WriteText(kModuleFile, content_.module_text));
    HYPER_RETURN_IF_ERROR(WriteText(kPlanFile, content_.plan_json));
    HYPER_RETURN_IF_ERROR(WriteText(kModelFile, content_.model_onnx));
    // Last: a folder without it is no bundle.
    return WriteFile(fs_, JoinPath(folder_, kManifestFile), PrintManifest(content_.manifest));
  }

 private:
  int64_t LayOutTensors() {
    int64_t end = 0;
    for (int i = 0; i < content_.program.slots_size(); ++i) {
      const ir::HostTensor& data = content_.slot_data[static_cast<size_t>(i)];
      program::Slot* slot = content_.program.mutable_slots(i);
      slot->set_data_offset(0);
      slot->set_data_bytes(0);
      if (!data.defined() || data.type().bytes() == 0) continue;
      slot->set_data_offset(end);
      slot->set_data_bytes(data.type().bytes());
      end += (data.type().bytes() + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
    }
    return end;
  }

  Status WriteTensors() {
    static constexpr std::byte kZeros[kTensorAlignment] = {};
    HYPER_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                           fs_->Create(JoinPath(folder_, kTensorsFile)));
    Sha256 hash;
    int64_t written = 0;
    const auto append = [&](std::span<const std::byte> data) {
      hash.Update(data);
      written += static_cast<int64_t>(data.size());
      return file->Append(data);
    };
    for (int i = 0; i < content_.program.slots_size(); ++i) {
      if (content_.program.slots(i).data_bytes() == 0) continue;
      HYPER_RETURN_IF_ERROR(append(content_.slot_data[static_cast<size_t>(i)].bytes()));
      const int64_t padding = (kTensorAlignment - written % kTensorAlignment) % kTensorAlignment;
      HYPER_RETURN_IF_ERROR(append(std::span(kZeros, static_cast<size_t>(padding))));
    }
    HYPER_RETURN_IF_ERROR(file->Sync());
    HYPER_RETURN_IF_ERROR(file->Close());
    Record(kTensorsFile, written, hash.FinishHex());
    return Status::Ok();
  }

  Status WriteText(std::string_view name, const std::string& text) {
    Record(name, static_cast<int64_t>(text.size()), Sha256Hex(text));
    return WriteFile(fs_, JoinPath(folder_, name), text);
  }

  void Record(std::string_view name, int64_t bytes, std::string hash) {
    content_.manifest.sizes[std::string(name)] = bytes;
    content_.manifest.checksums[std::string(name)] = std::move(hash);
  }

  FileSystem* fs_;
  std::string folder_;
  BundleContent& content_;
};

Status CheckSlotData(const BundleContent& content) {
  if (content.slot_data.size() != static_cast<size_t>(content.program.slots_size())) {
    return Internal(fmt::format("bundle writer: data for {} slots of {}", content.slot_data.size(),
                                content.program.slots_size()));
  }
  for (int i = 0; i < content.program.slots_size(); ++i) {
    const ir::HostTensor& data = content.slot_data[static_cast<size_t>(i)];
    const program::Operand& place = content.program.slots(i).place();
    const ir::Dims dims(place.dims().begin(), place.dims().end());
    if (!data.defined()) continue;
    if (data.type().dims != dims ||
        static_cast<int>(data.type().dtype) != static_cast<int>(place.dtype())) {
      // A default HostTensor counts as defined only when it has no elements; ignore those.
      if (data.bytes().data() == nullptr) continue;
      return Internal(fmt::format("bundle writer: data of '{}' is {}, its slot is {}",
                                  content.program.slots(i).name(), data.type().ToString(),
                                  place.ShortDebugString()));
    }
  }
  return Status::Ok();
}

}  // namespace

Status WriteBundle(FileSystem* fs, const std::string& path, BundleContent content) {
  std::string target = path;
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  const std::string temporary = target + ".tmp";
  const std::string old = target + ".old";
  HYPER_RETURN_IF_ERROR(CheckSlotData(content));
  if (fs->Exists(target)) {
    HYPER_RETURN_IF_ERROR(CheckReplaceable(fs, target, /*unfinished=*/false));
  }
  for (const std::string& left_over : {temporary, old}) {  // of a run that was killed
    if (!fs->Exists(left_over)) continue;
    HYPER_RETURN_IF_ERROR(CheckReplaceable(fs, left_over, /*unfinished=*/true));
    HYPER_RETURN_IF_ERROR(fs->RemoveAll(left_over));
  }
  Status status = Writer(fs, temporary, content).Run();
  const bool replaces = status.ok() && fs->Exists(target);
  if (replaces) status = fs->Rename(target, old);
  if (status.ok()) status = fs->Rename(temporary, target);
  if (!status.ok()) {
    // Best effort: the first error is the one to report.
    if (replaces && !fs->Exists(target)) (void)fs->Rename(old, target);
    (void)fs->RemoveAll(temporary);
    return status.WithContext(fmt::format("cannot write bundle '{}'", path));
  }
  return replaces ? fs->RemoveAll(old) : Status::Ok();
}

}  // namespace hyper::codegen
