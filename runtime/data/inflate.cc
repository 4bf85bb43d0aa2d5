#include "runtime/data/inflate.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <zlib.h>

namespace hyper::runtime {
namespace {

// What lies beyond `limit` bytes is cut off, or refused.
enum class Beyond { kCut, kRefused };

Result<FileBytes> Inflate(const std::string& path, int64_t limit, Beyond beyond) {
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
      if (beyond == Beyond::kCut) {
        text->resize(static_cast<size_t>(limit));
        break;
      }
      status = DataLoss(fmt::format(
          "'{}' inflates to more than the {} bytes that its header announces", path, limit));
    }
  }
  inflateEnd(&stream);
  if (!status.ok()) return status;
  return FileBytes{text, std::as_bytes(std::span(text->data(), text->size()))};
}

}  // namespace

Result<FileBytes> InflateFile(const std::string& path, int64_t limit) {
  return Inflate(path, limit, Beyond::kRefused);
}

Result<FileBytes> InflateBegin(const std::string& path, int64_t most) {
  return Inflate(path, most, Beyond::kCut);
}

}  // namespace hyper::runtime
