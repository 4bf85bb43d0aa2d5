// Models of several gigabytes: sparse files cost neither disk nor memory.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/mapped_file.h"
#include "frontend/onnx/export.h"
#include "frontend/onnx/inspect.h"
#include "test_models.h"

namespace hyper::onnx_frontend {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

// Writes at places of a file, leaving holes, with the given size in the end.
void WriteSparse(const std::string& path, int64_t size,
                 const std::vector<std::pair<int64_t, std::vector<float>>>& pieces) {
  const int fd = ::open(path.c_str(), O_CREAT | O_WRONLY, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::ftruncate(fd, size), 0);
  for (const auto& [offset, values] : pieces) {
    const size_t bytes = values.size() * sizeof(float);
    ASSERT_EQ(::pwrite(fd, values.data(), bytes, offset), static_cast<ssize_t>(bytes));
  }
  ::close(fd);
}

int64_t DiskBytes(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return int64_t{512} * info.st_blocks;
}

void AddExternal(onnx::ModelProto* model, const std::string& name, std::vector<int64_t> dims,
                 int64_t offset, int64_t length) {
  onnx::TensorProto* t = model->mutable_graph()->add_initializer();
  t->set_name(name);
  t->set_data_type(onnx::TensorProto::FLOAT);
  *t->mutable_dims() = {dims.begin(), dims.end()};
  t->set_data_location(onnx::TensorProto::EXTERNAL);
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"location", "weights.data"},
                                                        {"offset", std::to_string(offset)},
                                                        {"length", std::to_string(length)}}) {
    auto* entry = t->add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  }
}

std::unique_ptr<LoadedModel> LoadFrom(const TempDir& dir, const onnx::ModelProto& model) {
  WriteBytes(dir.File("m.onnx"), model.SerializeAsString());
  Diagnostics diagnostics;
  auto loaded = LoadModel(dir.File("m.onnx"), {}, &diagnostics);
  EXPECT_TRUE(loaded.ok()) << diagnostics.Render();
  return loaded.ok() ? std::move(loaded).value() : nullptr;
}

TEST(LargeFiles, ATensorBeyondFourGigabytesIsReadRight) {
  TempDir dir;
  const int64_t offset = 4 * kGiB + 192;
  WriteSparse(dir.File("weights.data"), offset + 16, {{offset, {1.5F, -2, 3, 4}}});
  onnx::ModelProto model = GraphModel("g (float[1,2] x) => (float[1,2] y) { y = MatMul(x, w) }");
  AddExternal(&model, "w", {2, 2}, offset, 16);
  const auto loaded = LoadFrom(dir, model);
  ASSERT_NE(loaded, nullptr);
  EXPECT_EQ(loaded->FindTensor("w")->value,
            ir::HostTensor::FromVector<float>(ir::DType::kF32, {2, 2}, {1.5F, -2, 3, 4}));
  const auto y =
      Evaluated(MustImport(*loaded, {}), "eval",
                {{"x", ir::HostTensor::FromVector<float>(ir::DType::kF32, {1, 2}, {1, 10})}});
  EXPECT_EQ(y[0].as<float>()[0], 31.5F);
  EXPECT_EQ(y[0].as<float>()[1], 38.0F);
  // One byte further there is nothing; sums of offset and length do not wrap.
  for (const auto& [at, length] : std::vector<std::pair<int64_t, int64_t>>{
           {offset + 1, 16}, {INT64_MAX, 16}, {16, INT64_MAX}}) {
    onnx::ModelProto bad = GraphModel("g (float[1,2] x) => (float[1,2] y) { y = MatMul(x, w) }");
    AddExternal(&bad, "w", {2, 2}, at, length);
    EXPECT_THAT(RefuseLoad(bad, dir.path()), HasSubstr("lies beyond the 4294967504 bytes"));
  }
}

// One weight of 2.25 GiB: w[r,c] is zero but in the first and the last row.
class LargeTensor : public ::testing::Test {
 protected:
  static constexpr int64_t kRows = 9 << 16;
  static constexpr int64_t kColumns = 1024;
  static constexpr int64_t kBytes = kRows * kColumns * 4;
  static_assert(kBytes > 2 * kGiB);

  void SetUp() override {
    WriteSparse(dir_.File("weights.data"), kBytes, {{0, {7}}, {kBytes - 8, {8, 9}}});
    onnx::ModelProto model = GraphModel("g (int64[2] ids) => (float[2,1024] y) <float[1024] b = {" +
                                        Zeros(1024) + "}> { e = Gather(w, ids) y = Add(e, b) }");
    AddExternal(&model, "w", {kRows, kColumns}, 0, kBytes);
    loaded_ = LoadFrom(dir_, model);
    ASSERT_NE(loaded_, nullptr);
  }

  static std::string Zeros(int count) {
    std::string text = "0";
    for (int i = 1; i < count; ++i) text += ", 0";
    return text;
  }

  TempDir dir_;
  std::unique_ptr<LoadedModel> loaded_;
};

TEST_F(LargeTensor, IsLoadedAndReported) {
  const ir::HostTensor& w = loaded_->FindTensor("w")->value;
  EXPECT_EQ(w.type().bytes(), kBytes);
  EXPECT_EQ(w.ElementAsDouble(0), 7);
  EXPECT_EQ(w.ElementAsDouble(kRows * kColumns - 1), 9);
  const ModelReport report = BuildReport(*loaded_, {});
  EXPECT_TRUE(report.problems.empty());
  EXPECT_EQ(report.trained_elements, kRows * kColumns + 1024);
}

// A file system whose files have holes where zeros are written.
class SparseFile : public WritableFile {
 public:
  explicit SparseFile(int fd) : fd_(fd) {}
  ~SparseFile() override { ::close(fd_); }
  Status Append(std::span<const std::byte> data) override {
    constexpr size_t kPiece = 1 << 16;
    static const std::vector<std::byte> zeros(kPiece);
    for (size_t at = 0; at < data.size(); at += kPiece) {
      const auto piece = data.subspan(at, std::min(kPiece, data.size() - at));
      if (std::memcmp(piece.data(), zeros.data(), piece.size()) != 0 &&
          ::pwrite(fd_, piece.data(), piece.size(), end_) != static_cast<ssize_t>(piece.size())) {
        return Internal("pwrite");
      }
      end_ += static_cast<int64_t>(piece.size());
    }
    return Status::Ok();
  }
  Status Sync() override { return Status::Ok(); }
  Status Close() override { return ::ftruncate(fd_, end_) == 0 ? Status::Ok() : Internal("size"); }

 private:
  int fd_;
  int64_t end_ = 0;
};

class SparseFileSystem : public FileSystem {
 public:
  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (fd < 0) return Internal("open");
    return std::unique_ptr<WritableFile>(std::make_unique<SparseFile>(fd));
  }
  Result<std::string> ReadAll(const std::string& path, int64_t limit) override {
    return RealFileSystem()->ReadAll(path, limit);
  }
  Status ReadAt(const std::string& path, int64_t offset, std::span<std::byte> out) override {
    return RealFileSystem()->ReadAt(path, offset, out);
  }
  Result<int64_t> Size(const std::string& path) override { return RealFileSystem()->Size(path); }
  bool Exists(const std::string& path) override { return RealFileSystem()->Exists(path); }
  Status MakeDirs(const std::string& path) override { return RealFileSystem()->MakeDirs(path); }
  Status Rename(const std::string& from, const std::string& to) override {
    return RealFileSystem()->Rename(from, to);
  }
  Status RemoveAll(const std::string& path) override { return RealFileSystem()->RemoveAll(path); }
  Result<std::vector<std::string>> List(const std::string& path) override {
    return RealFileSystem()->List(path);
  }
};

TEST_F(LargeTensor, IsExportedAsExternalDataWhateverTheLimit) {
  const ImportedModel imported = MustImport(*loaded_, {});
  const auto stripped = StripWeights(*loaded_, imported.plan);
  ASSERT_TRUE(stripped.ok()) << stripped.status().message();
  EXPECT_LT(stripped->size(), 4096u);
  std::map<std::string, ir::HostTensor> values;
  for (const ir::PersistentTensor& t : imported.forward.module.tensors) values[t.name] = t.initial;
  SparseFileSystem files;
  ExportOptions options;
  options.file_system = &files;
  options.external_above = INT64_MAX;  // a message has a limit of its own
  const Status status = ExportTrained(*stripped, values, dir_.File("out.onnx"), options);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_LT(std::filesystem::file_size(dir_.File("out.onnx")), 4096u);
  EXPECT_EQ(static_cast<int64_t>(std::filesystem::file_size(dir_.File("out.onnx.data"))),
            kBytes + 4096);
  EXPECT_LT(DiskBytes(dir_.File("out.onnx.data")), 1 << 20);
  Diagnostics diagnostics;
  const auto again = LoadModel(dir_.File("out.onnx"), {}, &diagnostics);
  ASSERT_TRUE(again.ok()) << diagnostics.Render();
  const ir::HostTensor& w = (*again)->FindTensor("w")->value;
  EXPECT_EQ(w.ElementAsDouble(0), 7);
  EXPECT_EQ(w.ElementAsDouble(kRows * kColumns - 2), 8);
  EXPECT_EQ(w.ElementAsDouble(kRows * kColumns - 1), 9);
}

// A weight that is a constant of the program stays in the model that the bundle carries.
TEST_F(LargeTensor, AsAConstantItIsRefusedByName) {
  ImportedModel imported = MustImport(*loaded_, {});
  for (ParameterDecision& d : imported.plan.tensors) d.constant = d.constant || d.name == "w";
  const Status status = StripWeights(*loaded_, imported.plan).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("constant 'w'"), HasSubstr(std::to_string(kBytes))));
}

TEST(LargeFiles, AModelFileBeyondTwoGigabytesIsRefusedWithTheWayOut) {
  TempDir dir;
  const std::string path = dir.File("m.onnx");
  for (const int64_t size : {2 * kGiB, 2 * kGiB + 1, 5 * kGiB}) {
    WriteBytes(path,
               GraphModel("g (float[2] x) => (float[2] y) { y = Relu(x) }").SerializeAsString());
    std::filesystem::resize_file(path, static_cast<uintmax_t>(size));
    Diagnostics diagnostics;
    EXPECT_FALSE(LoadModel(path, {}, &diagnostics).ok());
    EXPECT_THAT(diagnostics.Render(),
                AllOf(HasSubstr(path), HasSubstr(std::to_string(size) + " bytes"),
                      HasSubstr("a model file ends at 2147483647"), HasSubstr("external data")));
  }
  // The largest size that is read at all: zeros are no fields.
  std::filesystem::resize_file(path, static_cast<uintmax_t>(2 * kGiB - 1));
  Diagnostics diagnostics;
  EXPECT_FALSE(LoadModel(path, {}, &diagnostics).ok());
  EXPECT_THAT(diagnostics.Render(), HasSubstr("parsing stopped at byte"));
}

}  // namespace
}  // namespace hyper::onnx_frontend
