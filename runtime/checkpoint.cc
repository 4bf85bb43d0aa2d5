#include "runtime/checkpoint.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "runtime/program_io.h"
#include "runtime/safetensors.h"

namespace hyper::runtime {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "hyper-checkpoint";
constexpr char kManifest[] = "manifest.json";
constexpr char kModelFile[] = "model.safetensors";
constexpr char kOptimizerFile[] = "optimizer.safetensors";
constexpr char kLatest[] = "latest";
constexpr int64_t kManifestLimit = 256 << 20;
constexpr int64_t kFileLimit = int64_t{1} << 44;

bool IsModelStorage(program::Storage storage) {
  return storage == program::PARAMETER || storage == program::FROZEN || storage == program::STATE;
}

const char* StorageName(program::Storage storage) {
  switch (storage) {
    case program::PARAMETER: return "parameter";
    case program::FROZEN: return "frozen";
    case program::STATE: return "state";
    default: return "optimizer";
  }
}

// The format has one name for itself. A colon more keeps all keys apart.
bool IsReserved(std::string_view name) {
  const size_t text = name.find_first_not_of(':');
  return text != std::string_view::npos && name.substr(text) == "__metadata__";
}

std::string KeyOf(const program::Slot& slot) {
  if (slot.storage() == program::OPTIMIZER) return slot.slot() + ":" + slot.name();
  return IsReserved(slot.name()) ? ":" + slot.name() : slot.name();
}

std::string FolderName(int64_t step) { return fmt::format("step-{:08}", step); }

// Step of "step-00000100", or -1 for another name.
int64_t StepOfName(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix) || name.size() < kPrefix.size() + 8 || name.size() > 23) {
    return -1;
  }
  int64_t step = 0;
  for (const char c : std::string_view(name).substr(kPrefix.size())) {
    if (c < '0' || c > '9') return -1;
    step = step * 10 + (c - '0');
  }
  return step;
}

Json SliceOf(const program::Slot& slot, const char* file) {
  const ir::TensorType type = TypeOf(slot.place());
  Json box = Json::array();
  for (const int64_t extent : type.dims) box.push_back({0, extent});
  std::vector<int> order(type.dims.size());
  std::iota(order.begin(), order.end(), 0);
  return {{"name", slot.name()}, {"storage", StorageName(slot.storage())},
          {"slot", slot.slot()}, {"dtype", ir::DTypeName(type.dtype)},
          {"shape", type.dims},  {"box", box},
          {"order", order},      {"file", file},
          {"key", KeyOf(slot)}};
}

// Writes the slots that `wanted` picks into one file and lists them in the manifest.
template <typename Wanted>
Status WriteTensors(FileSystem* fs, const std::string& folder, const char* file,
                    const Executor& executor, Wanted wanted, Json* manifest) {
  std::vector<SafetensorsEntry> entries;
  for (const program::Slot& slot : executor.program().slots()) {
    if (!wanted(slot.storage())) continue;
    entries.push_back(
        {KeyOf(slot), TypeOf(slot.place()), [&executor, &slot](std::span<std::byte> out) {
           executor.ReadOperand(slot.place(), out);
           return Status::Ok();
         }});
    (*manifest)["tensors"].push_back(SliceOf(slot, file));
  }
  if (entries.empty()) return Status::Ok();
  HYPER_ASSIGN_OR_RETURN(const WrittenFile written,
                         WriteSafetensors(fs, JoinPath(folder, file), entries));
  (*manifest)["files"][file] = {{"bytes", written.bytes}, {"sha256", written.sha256}};
  return Status::Ok();
}

Status WriteFolder(FileSystem* fs, const std::string& folder, const CheckpointInfo& info,
                   const Executor& executor) {
  Json manifest = {{"format", kFormat},         {"version", kCheckpointVersion},
                   {"model", info.model},       {"step", info.step},
                   {"position", info.position}, {"seed", info.seed},
                   {"files", Json::object()},   {"tensors", Json::array()}};
  HYPER_RETURN_IF_ERROR(WriteTensors(fs, folder, kModelFile, executor, IsModelStorage, &manifest));
  HYPER_RETURN_IF_ERROR(WriteTensors(
      fs, folder, kOptimizerFile, executor,
      [](program::Storage storage) { return storage == program::OPTIMIZER; }, &manifest));
  return WriteFile(fs, JoinPath(folder, kManifest), manifest.dump(1) + "\n");
}

// A slice of the manifest checked against the tensor found in its file.
Status CheckSlice(const Json& slice, const ir::HostTensor& tensor, const std::string& where) {
  ir::Dims shape = slice.at("shape").get<ir::Dims>();
  std::vector<int> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  Json box = Json::array();
  for (const int64_t extent : shape) box.push_back({0, extent});
  if (slice.at("box") != box || slice.at("order").get<std::vector<int>>() != order) {
    return Unimplemented(
        fmt::format("{}: it is stored in parts or another order, which this "
                    "version does not read",
                    where));
  }
  const std::string dtype = slice.at("dtype").get<std::string>();
  if (tensor.type().dims != shape || ir::DTypeName(tensor.type().dtype) != dtype) {
    return DataLoss(fmt::format("{}: the manifest says {}{}, the file {}", where, dtype,
                                slice.at("shape").dump(), tensor.type().ToString()));
  }
  return Status::Ok();
}

Result<NamedTensors> ReadFile(FileSystem* fs, const std::string& path, const Json& entry) {
  HYPER_ASSIGN_OR_RETURN(std::string text, fs->ReadAll(path, kFileLimit));
  const int64_t bytes = entry.at("bytes").get<int64_t>();
  if (static_cast<int64_t>(text.size()) != bytes) {
    return DataLoss(
        fmt::format("'{}' has {} bytes, the manifest says {}", path, text.size(), bytes));
  }
  if (Sha256Hex(text) != entry.at("sha256").get<std::string>()) {
    return DataLoss(fmt::format("'{}' is damaged: its SHA-256 differs from the manifest", path));
  }
  return ParseSafetensors(std::make_shared<const std::string>(std::move(text)), path);
}

Result<Json> ReadManifest(FileSystem* fs, const std::string& folder) {
  const std::string path = JoinPath(folder, kManifest);
  HYPER_ASSIGN_OR_RETURN(const std::string text, fs->ReadAll(path, kManifestLimit));
  Json manifest = Json::parse(text, nullptr, false);
  if (!manifest.is_object() || manifest.value("format", Json()) != kFormat) {
    return DataLoss(fmt::format("'{}' is no checkpoint manifest", path));
  }
  if (manifest.value("version", Json()) != kCheckpointVersion) {
    return FailedPrecondition(fmt::format("'{}' has version {}; this release reads version {}",
                                          path, manifest.value("version", Json()).dump(),
                                          kCheckpointVersion));
  }
  return manifest;
}

Result<LoadedCheckpoint> ReadFolder(FileSystem* fs, const std::string& folder,
                                    bool with_optimizer) {
  HYPER_ASSIGN_OR_RETURN(const Json manifest, ReadManifest(fs, folder));
  LoadedCheckpoint loaded;
  loaded.path = folder;
  loaded.info = {manifest.at("model").get<std::string>(), manifest.at("step").get<int64_t>(),
                 manifest.at("position").get<int64_t>(), manifest.at("seed").get<int64_t>()};
  for (const auto& [file, entry] : manifest.at("files").items()) {
    if (file != kModelFile && file != kOptimizerFile) {
      return DataLoss(fmt::format("'{}': the manifest names the file '{}'", folder, file));
    }
    if (file == kOptimizerFile && !with_optimizer) continue;
    HYPER_ASSIGN_OR_RETURN(NamedTensors tensors, ReadFile(fs, JoinPath(folder, file), entry));
    (file == kModelFile ? loaded.tensors : loaded.optimizer) = std::move(tensors);
  }
  size_t slices = 0;
  for (const Json& slice : manifest.at("tensors")) {
    const std::string file = slice.at("file").get<std::string>();
    if (file == kOptimizerFile && !with_optimizer) continue;
    const NamedTensors& tensors = file == kModelFile ? loaded.tensors : loaded.optimizer;
    const std::string key = slice.at("key").get<std::string>();
    const std::string where = fmt::format("'{}', tensor '{}'", folder, key);
    const auto found = tensors.find(key);
    if (found == tensors.end()) return DataLoss(fmt::format("{} is missing", where));
    HYPER_RETURN_IF_ERROR(CheckSlice(slice, found->second, where));
    ++slices;
  }
  if (slices != loaded.tensors.size() + loaded.optimizer.size()) {
    return DataLoss(fmt::format("'{}' holds tensors that its manifest does not list", folder));
  }
  return loaded;
}

// Wrong types inside a manifest surface as exceptions of the JSON library.
Result<LoadedCheckpoint> TryFolder(FileSystem* fs, const std::string& folder, bool with_optimizer) {
  try {
    return ReadFolder(fs, folder, with_optimizer);
  } catch (const nlohmann::json::exception& e) {
    return DataLoss(fmt::format("'{}': the manifest is damaged: {}", folder, e.what()));
  }
}

// Names of checkpoints in `folder`, in the order in which they are tried.
Result<std::vector<std::string>> Candidates(FileSystem* fs, const std::string& folder) {
  HYPER_ASSIGN_OR_RETURN(std::vector<std::string> names, fs->List(folder));
  std::erase_if(names, [](const std::string& name) { return StepOfName(name) < 0; });
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return StepOfName(a) > StepOfName(b);
  });
  const std::string latest_path = JoinPath(folder, kLatest);
  if (fs->Exists(latest_path)) {
    HYPER_ASSIGN_OR_RETURN(std::string latest, fs->ReadAll(latest_path, 4096));
    while (!latest.empty() && latest.back() == '\n') latest.pop_back();
    const auto found = std::find(names.begin(), names.end(), latest);
    if (found != names.end()) std::rotate(names.begin(), found, found + 1);
  }
  return names;
}

Result<LoadedCheckpoint> Load(FileSystem* fs, const std::string& path, bool with_optimizer) {
  if (fs->Exists(JoinPath(path, kManifest))) return TryFolder(fs, path, with_optimizer);
  if (!fs->Exists(path)) return NotFound(fmt::format("there is no checkpoint '{}'", path));
  HYPER_ASSIGN_OR_RETURN(const std::vector<std::string> names, Candidates(fs, path));
  if (names.empty()) return NotFound(fmt::format("'{}' holds no checkpoint", path));
  Status first;
  std::vector<std::string> notes;
  std::vector<int64_t> damaged;
  for (const std::string& name : names) {
    Result<LoadedCheckpoint> loaded = TryFolder(fs, JoinPath(path, name), with_optimizer);
    if (loaded.ok()) {
      loaded->notes = std::move(notes);
      loaded->damaged = std::move(damaged);
      return loaded;
    }
    if (first.ok()) first = loaded.status();
    notes.push_back(loaded.status().message());
    damaged.push_back(StepOfName(name));
  }
  return first;
}

Status CheckFits(const NamedTensors& tensors, const program::Slot& slot, const std::string& path) {
  const ir::TensorType type = TypeOf(slot.place());
  const auto found = tensors.find(KeyOf(slot));
  if (found == tensors.end()) {
    return FailedPrecondition(
        fmt::format("checkpoint '{}' has no {} '{}', which the bundle needs; "
                    "it belongs to another model or optimizer",
                    path, StorageName(slot.storage()), KeyOf(slot)));
  }
  if (found->second.type() != type) {
    return FailedPrecondition(fmt::format("checkpoint '{}': '{}' is {}, the bundle has {}", path,
                                          KeyOf(slot), found->second.type().ToString(),
                                          type.ToString()));
  }
  return Status::Ok();
}

}  // namespace

std::string CheckpointPath(const std::string& folder, int64_t step) {
  return JoinPath(folder, FolderName(step));
}

Result<std::vector<int64_t>> CheckpointSteps(FileSystem* fs, const std::string& folder) {
  std::vector<int64_t> steps;
  if (!fs->Exists(folder)) return steps;
  HYPER_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs->List(folder));
  for (const std::string& name : names) {
    if (const int64_t step = StepOfName(name); step >= 0) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Status RemoveCheckpointsAfter(FileSystem* fs, const std::string& folder, int64_t step) {
  if (!fs->Exists(folder)) return Status::Ok();
  HYPER_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs->List(folder));
  // First what names one of them. Without it the highest step that is left is the newest.
  HYPER_RETURN_IF_ERROR(fs->RemoveAll(JoinPath(folder, kLatest)));
  for (const std::string& name : names) {
    const bool left = name.ends_with(".tmp") || name.ends_with(".old");
    const std::string whole = left ? name.substr(0, name.size() - 4) : name;
    if (StepOfName(whole) > step) HYPER_RETURN_IF_ERROR(fs->RemoveAll(JoinPath(folder, name)));
  }
  return Status::Ok();
}

Result<std::string> SaveCheckpoint(FileSystem* fs, const std::string& folder,
                                   const CheckpointInfo& info, const Executor& executor) {
  const std::string name = FolderName(info.step);
  const std::string target = JoinPath(folder, name);
  const std::string temporary = target + ".tmp";
  const std::string replaced = target + ".old";
  HYPER_RETURN_IF_ERROR(fs->MakeDirs(folder));
  HYPER_RETURN_IF_ERROR(fs->RemoveAll(temporary));
  HYPER_RETURN_IF_ERROR(fs->MakeDirs(temporary));
  const Status written = WriteFolder(fs, temporary, info, executor);
  if (!written.ok()) {
    // Frees the disk that may just have filled up; the error that matters is the first.
    (void)fs->RemoveAll(temporary);
    return written.WithContext(fmt::format("checkpoint of step {}", info.step));
  }
  const bool replaces = fs->Exists(target);
  if (replaces) {
    HYPER_RETURN_IF_ERROR(fs->RemoveAll(replaced));
    HYPER_RETURN_IF_ERROR(fs->Rename(target, replaced));
  }
  HYPER_RETURN_IF_ERROR(fs->Rename(temporary, target));
  HYPER_RETURN_IF_ERROR(WriteFileAtomic(fs, JoinPath(folder, kLatest), name + "\n"));
  if (replaces) HYPER_RETURN_IF_ERROR(fs->RemoveAll(replaced));
  return target;
}

Result<LoadedCheckpoint> LoadCheckpoint(FileSystem* fs, const std::string& path) {
  // "folder/" and "folder" are one checkpoint, which lies in what stands before its name.
  std::string plain = path;
  while (plain.size() > 1 && plain.back() == '/') plain.pop_back();
  return Load(fs, plain, true);
}

Result<NamedTensors> LoadTensors(FileSystem* fs, const std::string& path) {
  HYPER_ASSIGN_OR_RETURN(LoadedCheckpoint loaded, Load(fs, path, false));
  NamedTensors tensors;
  for (auto& [key, value] : loaded.tensors) {
    tensors.emplace(IsReserved(key) ? key.substr(1) : key, std::move(value));
  }
  return tensors;
}

Status RestoreCheckpoint(const LoadedCheckpoint& checkpoint, Executor* executor) {
  const auto tensors_of = [&](program::Storage storage) -> const NamedTensors& {
    return storage == program::OPTIMIZER ? checkpoint.optimizer : checkpoint.tensors;
  };
  const auto wanted = [](program::Storage storage) {
    return IsModelStorage(storage) || storage == program::OPTIMIZER;
  };
  for (const program::Slot& slot : executor->program().slots()) {
    if (!wanted(slot.storage())) continue;
    HYPER_RETURN_IF_ERROR(CheckFits(tensors_of(slot.storage()), slot, checkpoint.path));
  }
  for (const program::Slot& slot : executor->program().slots()) {
    if (!wanted(slot.storage())) continue;
    executor->WriteOperand(slot.place(), tensors_of(slot.storage()).at(KeyOf(slot)).bytes());
  }
  return Status::Ok();
}

NamedTensors CollectTensors(const Executor& executor) {
  NamedTensors tensors;
  for (const program::Slot& slot : executor.program().slots()) {
    if (!IsModelStorage(slot.storage())) continue;
    const ir::TensorType type = TypeOf(slot.place());
    auto data = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(type.bytes()));
    executor.ReadOperand(slot.place(), *data);
    tensors[slot.name()] = ir::HostTensor(type, data, data->data());
  }
  return tensors;
}

}  // namespace hyper::runtime
