#include "runtime/data/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

namespace hyper::runtime {
namespace {

Status FileError(const std::string& path, int error) {
  const std::string message = fmt::format("cannot read '{}': {}", path, std::strerror(error));
  return error == ENOENT || error == ENOTDIR ? NotFound(message) : FailedPrecondition(message);
}

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

}  // namespace

Result<FileBytes> MapFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError(path, errno);
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    return FileError(path, error);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return InvalidArgument(fmt::format("'{}' is not a regular file", path));
  }
  if (info.st_size == 0) {
    ::close(fd);
    return FileBytes{};
  }
  const size_t bytes = static_cast<size_t>(info.st_size);
  void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  const int error = errno;
  ::close(fd);
  if (data == MAP_FAILED) return FileError(path, error);
  return FileBytes{std::make_shared<const Mapping>(data, bytes),
                   {static_cast<const std::byte*>(data), bytes}};
}

Result<FileBytes> InflateFile(const std::string& path, int64_t limit) {
  HYPER_ASSIGN_OR_RETURN(const FileBytes file, MapFile(path));
  z_stream stream{};
  // 16: gzip header and trailer (with its checksum) are required and verified.
  if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) return ResourceExhausted("zlib: no memory");
  auto text = std::make_shared<std::string>();
  std::string buffer(1 << 20, '\0');
  size_t consumed = 0;
  int code = Z_OK;
  Status status;
  // Input is fed in pieces because zlib counts in unsigned ints.
  while (status.ok()) {
    if (stream.avail_in == 0 && consumed < file.bytes.size()) {
      const size_t piece = std::min<size_t>(file.bytes.size() - consumed, 1 << 30);
      stream.next_in =
          reinterpret_cast<Bytef*>(const_cast<std::byte*>(file.bytes.data())) + consumed;
      stream.avail_in = static_cast<uInt>(piece);
      consumed += piece;
    }
    if (code == Z_STREAM_END) {
      if (stream.avail_in == 0) break;
      code = inflateReset(&stream);  // a further member follows
    }
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    code = inflate(&stream, Z_NO_FLUSH);
    text->append(buffer, 0, buffer.size() - stream.avail_out);
    if (code == Z_BUF_ERROR && stream.avail_in == 0) {
      status = DataLoss(fmt::format("'{}' ends inside its gzip data", path));
    } else if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
      status = DataLoss(fmt::format("'{}' is not intact gzip data: {}", path,
                                    stream.msg != nullptr ? stream.msg : "unknown format"));
    } else if (static_cast<int64_t>(text->size()) > limit) {
      status = InvalidArgument(
          fmt::format("'{}' inflates to more than {} bytes, the most accepted", path, limit));
    }
  }
  inflateEnd(&stream);
  if (!status.ok()) return status;
  return FileBytes{text, std::as_bytes(std::span(text->data(), text->size()))};
}

}  // namespace hyper::runtime
