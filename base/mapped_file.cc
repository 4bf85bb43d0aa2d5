#include "base/mapped_file.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

namespace hyper {
namespace {

class Mapping {
 public:
  Mapping(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  ~Mapping() { ::munmap(data_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

 private:
  void* data_;
  size_t bytes_;
};

Result<FileBytes> MapDescriptor(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, "cannot read", path);
  HYPER_RETURN_IF_ERROR(CheckRegular(info.st_mode, path));
  const size_t bytes = static_cast<size_t>(info.st_size);
  if (bytes == 0) return FileBytes{};  // mmap refuses a length of zero
  void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return ErrnoStatus(errno, "cannot map", path);
  return FileBytes{std::make_shared<const Mapping>(data, bytes),
                   {static_cast<const std::byte*>(data), bytes}};
}

}  // namespace

Result<FileBytes> MapFile(const std::string& path) {
  // O_NONBLOCK: a named pipe is refused instead of waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoStatus(errno, "cannot open", path);
  Result<FileBytes> mapped = MapDescriptor(fd, path);
  ::close(fd);
  return mapped;
}

}  // namespace hyper
