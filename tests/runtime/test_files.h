// Small data files for tests, in a folder that is removed at the end.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

namespace hyper::runtime::testing {

class TestFolder {
 public:
  TestFolder() {
    static std::atomic<int> count = 0;  // ranks are threads
    path_ = std::filesystem::temp_directory_path() /
            fmt::format("hyper_runtime_test.{}.{}", ::getpid(), count++);
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string File(const std::string& name) const { return (path_ / name).string(); }
  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return File(name);
  }

 private:
  std::filesystem::path path_;
};

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// A version 1 .npy file; `descr` as NumPy writes it ("<f8"), `shape` with its parentheses.
inline std::string NpyBytes(const std::string& descr, const std::string& shape,
                            const std::string& data, char version = 1,
                            const std::string& fortran = "False") {
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}", descr, fortran, shape);
  const size_t prefix = version == 1 ? 10 : 12;
  while ((prefix + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string file = std::string("\x93NUMPY") + version + '\0';
  for (size_t i = 0; i < prefix - 8; ++i) {
    file += static_cast<char>(header.size() >> (8 * i) & 255);
  }
  return file + header + data;
}

// Big-endian extents after the magic number.
inline std::string IdxBytes(char type, const std::vector<int>& dims, const std::string& data) {
  std::string file{'\0', '\0', type, static_cast<char>(dims.size())};
  for (const int extent : dims) {
    for (int shift = 24; shift >= 0; shift -= 8) file += static_cast<char>(extent >> shift & 255);
  }
  return file + data;
}

// One gzip member.
inline std::string Gzip(const std::string& data) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(compressBound(data.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace hyper::runtime::testing
