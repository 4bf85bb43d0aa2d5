// The bundle: a folder with manifest.json and, per rank group, program.pb, kernels.so and
// tensors.bin (see codegen/bundle.md). Writer for hyperc, reader for hyperrun.
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "codegen/program.pb.h"
#include "ir/types.h"

namespace hyper::codegen {

inline constexpr int kBundleFormatVersion = 1;

struct Manifest {
  int format_version = kBundleFormatVersion;
  std::string producer;  // "hyperc 0.1.0"
  std::string model_name;
  std::string target = "cpu";
  std::string march;                      // as given or resolved
  std::vector<std::string> cpu_features;  // /proc/cpuinfo names that the kernels need
  int ranks_per_replica = 1;
  std::map<std::string, std::string> checksums;  // file -> SHA-256
  std::map<std::string, int64_t> sizes;          // file -> bytes
};

// What hyperc hands to the writer. Paths inside the bundle are fixed names.
struct BundleContent {
  Manifest manifest;                      // checksums and sizes are filled by the writer
  program::Program program;               // slots' data_offset/data_bytes filled by the writer
  std::vector<ir::HostTensor> slot_data;  // per slot; undefined where none is stored
  std::string kernels_source;             // kernels.cc, for reading
  std::string kernels_object;             // kernels.so bytes; empty without generated kernels
  std::string strategy_yaml;              // canonical strategy
  std::string launch_json;                // launch keys
  std::string module_text;                // the IR
  std::string plan_json;                  // plan report (hyperc show)
  std::string model_onnx;                 // original model without weights
};

// Writes into `path`.tmp and renames; refuses an existing path that is neither a bundle nor an
// empty folder. Equal content gives equal bytes. The program is validated first (kInternal).
Status WriteBundle(FileSystem* fs, const std::string& path, BundleContent content);

// A loaded library of generated kernels, sealed in memory.
class KernelLibrary {
 public:
  virtual ~KernelLibrary() = default;
  using Function = void (*)(char* const* operands, int64_t task, int64_t tasks);
  virtual Result<Function> Find(const std::string& symbol) const = 0;
};

class BundleReader {
 public:
  // Checks versions, the file list and every checksum before anything is used. kDataLoss for
  // damage, kFailedPrecondition for another format version, kInvalidArgument for a foreign folder.
  static Result<std::unique_ptr<BundleReader>> Open(FileSystem* fs, const std::string& path);
  virtual ~BundleReader() = default;

  virtual const Manifest& manifest() const = 0;
  virtual const program::Program& program() const = 0;
  // Row-major bytes of a slot's initial value.
  virtual Status ReadSlot(const program::Slot& slot, std::span<std::byte> out) const = 0;
  virtual Result<std::string> ReadText(const std::string& name) const = 0;  // strategy.yaml, ...
  // Hashes while copying into a sealed memfd and loads that. Null when there are no kernels. Every
  // generated call of the program is checked against what its kernel was compiled to touch.
  virtual Result<std::unique_ptr<KernelLibrary>> LoadKernels() const = 0;
};

}  // namespace hyper::codegen
