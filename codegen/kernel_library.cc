#include "codegen/kernel_library.h"

#include <cerrno>
#include <cstring>

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sha256.h"

namespace hyper::codegen {
namespace {

class SealedLibrary : public KernelLibrary {
 public:
  // Owns the descriptor, and keeps it open as long as the library: the loader finds libraries by
  // name, and a number in use again would find the wrong one.
  explicit SealedLibrary(int fd) : fd_(fd) {}
  ~SealedLibrary() override {
    if (handle_ != nullptr) ::dlclose(handle_);
    ::close(fd_);
  }

  bool Open() {
    handle_ = ::dlopen(fmt::format("/proc/self/fd/{}", fd_).c_str(), RTLD_NOW | RTLD_LOCAL);
    return handle_ != nullptr;
  }

  Result<Function> Find(const std::string& symbol) const override {
    void* address = ::dlsym(handle_, symbol.c_str());
    if (address == nullptr) {
      return DataLoss(fmt::format("kernels.so has no kernel '{}'", symbol.substr(0, 80)));
    }
    return reinterpret_cast<Function>(address);
  }

  Status CheckCall(const program::Instruction& call) const {
    const std::string& symbol = call.generated().symbol();
    HYPER_RETURN_IF_ERROR(Find(symbol).status());
    const auto* extents = static_cast<const int64_t*>(
        ::dlsym(handle_, fmt::format("{}{}", symbol, kExtentsSuffix).c_str()));
    if (extents == nullptr) {
      return DataLoss(fmt::format("kernels.so does not say what '{}' touches", symbol));
    }
    if (extents[0] != call.operands_size()) {
      return DataLoss(fmt::format("kernel '{}' takes {} operands, the program gives {}", symbol,
                                  extents[0], call.operands_size()));
    }
    for (int i = 0; i < call.operands_size(); ++i) {
      const program::Operand& operand = call.operands(i);
      const int64_t begin = extents[1 + 2 * i];
      const int64_t end = extents[2 + 2 * i];
      if (begin == end) continue;
      if (begin < operand.begin() - operand.offset() || end > operand.end() - operand.offset()) {
        return DataLoss(fmt::format(
            "kernel '{}' touches bytes [{}, {}) of operand {}, the program gives it [{}, {})",
            symbol, begin, end, i, operand.begin() - operand.offset(),
            operand.end() - operand.offset()));
      }
    }
    return Status::Ok();
  }

 private:
  int fd_;
  void* handle_ = nullptr;
};

Status WriteAll(int fd, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t written = ::write(fd, data.data(), data.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return ResourceExhausted(
          fmt::format("cannot copy kernels into memory: {}", std::strerror(errno)));
    }
    data = data.subspan(static_cast<size_t>(written));
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<KernelLibrary>> LoadKernelLibrary(FileSystem* fs, const std::string& path,
                                                         int64_t bytes, const std::string& sha256,
                                                         const program::Program& program) {
  const int fd = ::memfd_create("hyper-kernels", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) {
    return ResourceExhausted(
        fmt::format("cannot make a memory file for kernels: {}", std::strerror(errno)));
  }
  auto library = std::make_unique<SealedLibrary>(fd);
  HYPER_ASSIGN_OR_RETURN(const std::string actual,
                         HashFile(fs, path, bytes, [&](std::span<const std::byte> piece) {
                           return WriteAll(fd, piece);
                         }));
  if (actual != sha256) {
    return DataLoss(fmt::format("'{}' is damaged: SHA-256 begins with {}, expected {}", path,
                                actual.substr(0, 12), sha256.substr(0, 12)));
  }
  // From here on nobody can change what was hashed.
  if (::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Internal(fmt::format("cannot seal the kernels in memory: {}", std::strerror(errno)));
  }
  if (!library->Open()) {
    const char* reason = ::dlerror();
    return DataLoss(fmt::format("'{}' cannot be loaded: {}", path,
                                reason == nullptr ? "unknown reason" : reason));
  }
  for (const program::SubProgram& sub : program.subprograms()) {
    for (int i = 0; i < sub.instructions_size(); ++i) {
      if (!sub.instructions(i).has_generated()) continue;
      const Status status = library->CheckCall(sub.instructions(i));
      if (!status.ok()) return status.WithContext(fmt::format("@{} instruction {}", sub.name(), i));
    }
  }
  return std::unique_ptr<KernelLibrary>(std::move(library));
}

}  // namespace hyper::codegen
