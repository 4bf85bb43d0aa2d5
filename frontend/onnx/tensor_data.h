// Tensors of ONNX files <-> host tensors of the IR. Sizes are checked against the dims exactly, so
// that a hostile file never makes us read outside its bytes.
// Thread safety: pure functions; an ExternalData belongs to one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/mapped_file.h"
#include "base/status.h"
#include "ir/types.h"
#include "onnx/onnx_pb.h"

namespace hyper::onnx_frontend {

// nullopt for element types that the IR does not have (string, complex, float8, 4 and 2 bits).
std::optional<ir::DType> DTypeFromOnnx(int onnx_type);
int DTypeToOnnx(ir::DType dtype);
// "float", "int64", "float8e4m3fn"; "type 99" for a number that ONNX does not know.
std::string OnnxTypeName(int onnx_type);

// Number of elements, or an error for a negative extent or a product above `limit`.
Result<int64_t> CheckedElementCount(std::span<const int64_t> dims,
                                    int64_t limit = int64_t{1} << 44);

// Opens the files named by tensors with external data. Only regular files inside `folder` with one
// hard link are read; the error tells the path that a location resolves to.
class ExternalData {
 public:
  explicit ExternalData(std::string folder) : folder_(std::move(folder)) {}
  // The bytes of `tensor` (offset and length checked), mapped.
  Result<FileBytes> Find(const onnx::TensorProto& tensor);

 private:
  Result<std::string> Resolve(const std::string& location) const;
  std::string folder_;
  std::map<std::string, FileBytes> files_;  // by resolved path
};

// The content of `tensor`. `owner` keeps the protobuf alive, so that large raw data is shared
// instead of copied (null: always copy). `external` may be null when the model has none.
Result<ir::HostTensor> ReadTensor(const onnx::TensorProto& tensor, ExternalData* external,
                                  const std::shared_ptr<const void>& owner);

// Checks dims, element type and that exactly the bytes that the dims ask for are there, for every
// element type of ONNX; reads nothing.
Status CheckTensor(const onnx::TensorProto& tensor, ExternalData* external);

// The same values in another element type (round to nearest even; floats to integers truncate).
ir::HostTensor ConvertTensor(const ir::HostTensor& value, ir::DType dtype);

}  // namespace hyper::onnx_frontend
