#include "runtime/inference.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include "base/strings.h"

namespace hyper::runtime {
namespace {

const std::string kEval = "eval";

// Longer names are cut: a file name has at most 255 bytes, and ".npy.tmp" is added to it.
constexpr size_t kNameBytes = 200;

// What becomes of an output's name in the name of its file; two may become one.
std::string FileNameOf(const std::string& output) {
  std::string name;
  for (const char c : output) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = std::isalnum(byte) != 0 || c == '.' || c == '_' || c == '-' || c == '+';
    name += plain ? c : '_';
  }
  if (name.starts_with('.')) name = "_" + name;
  return name.substr(0, kNameBytes);
}

// Element type as NumPy writes it; empty for types that it lacks.
std::string NpyType(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kF16: return "<f2";
    case ir::DType::kF32: return "<f4";
    case ir::DType::kF64: return "<f8";
    case ir::DType::kI8: return "|i1";
    case ir::DType::kI16: return "<i2";
    case ir::DType::kI32: return "<i4";
    case ir::DType::kI64: return "<i8";
    case ir::DType::kU8: return "|u1";
    case ir::DType::kU16: return "<u2";
    case ir::DType::kU32: return "<u4";
    case ir::DType::kU64: return "<u8";
    case ir::DType::kBool: return "|b1";
    case ir::DType::kBF16: break;
  }
  return {};
}

// Version 1.0: magic, length of the text, the text padded so that data begins at a multiple of 64.
std::string NpyHeader(const ir::TensorType& type) {
  std::vector<std::string> dims;
  for (const int64_t extent : type.dims) dims.push_back(fmt::format("{}", extent));
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                  NpyType(type.dtype), Join(dims, ", "), dims.size() == 1 ? "," : "");
  constexpr size_t kPrefix = 10;
  text.append(63 - (kPrefix + text.size()) % 64, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 0xFF);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

}  // namespace

Result<std::unique_ptr<Inference>> Inference::Create(Executor* executor) {
  std::unique_ptr<Inference> inference(new Inference(executor));
  HYPER_RETURN_IF_ERROR(inference->FindOutputs());
  return inference;
}

Status Inference::FindOutputs() {
  const program::Program& program = executor_->program();
  const program::SubProgram* eval = FindSubProgram(program, kEval);
  if (eval == nullptr) return FailedPrecondition("the bundle has no forward program (@eval)");
  micro_batch_ = program.micro_batch();
  HYPER_ASSIGN_OR_RETURN(inputs_, InputsOf(program));
  input_slots_ = InputSlotsOf(program);
  for (const InputSpec& input : inputs_) {
    buffers_.emplace_back(static_cast<size_t>(input.SampleBytes() * micro_batch_));
  }
  std::set<std::string> losses;
  for (const program::LossTerm& term : program.losses()) losses.insert("loss." + term.name());
  std::set<std::string> files;
  for (const program::Operand& result : eval->results()) {
    if (losses.contains(result.name())) continue;
    const ir::TensorType type = TypeOf(result);
    if (type.rank() < 1 || type.dims[0] != micro_batch_ || NpyType(type.dtype).empty()) {
      return FailedPrecondition(
          fmt::format("output '{}' is {}: only outputs with a row for each of the {} samples of a "
                      "micro-batch, of a type that NumPy has, can be written",
                      result.name(), type.ToString(), micro_batch_));
    }
    Output output;
    output.place = &result;
    const std::string name = FileNameOf(result.name());
    output.file = name + ".npy";
    for (int copy = 2; !files.insert(output.file).second; ++copy) {
      output.file = fmt::format("{}-{}.npy", name, copy);
    }
    output.rows.resize(static_cast<size_t>(type.bytes()));
    output.row_bytes = micro_batch_ == 0 ? 0 : type.bytes() / micro_batch_;
    outputs_.push_back(std::move(output));
  }
  if (outputs_.empty()) return FailedPrecondition("the model has no outputs");
  return Status::Ok();
}

Status Inference::RunMicroBatch(const Dataset& dataset, int64_t first, int64_t real) {
  for (size_t input = 0; input < inputs_.size(); ++input) {
    const int64_t bytes = inputs_[input].SampleBytes();
    for (int64_t row = 0; row < micro_batch_; ++row) {
      HYPER_RETURN_IF_ERROR(dataset.Read(static_cast<int>(input), first + (row < real ? row : 0),
                                         buffers_[input].data() + row * bytes));
    }
    executor_->WriteOperand(input_slots_[input]->place(), buffers_[input]);
  }
  HYPER_RETURN_IF_ERROR(executor_->Run(kEval, {}));
  for (Output& output : outputs_) executor_->ReadOperand(*output.place, output.rows);
  return Status::Ok();
}

std::vector<std::string> Inference::Paths(const std::string& dir) const {
  std::vector<std::string> paths;
  for (const Output& output : outputs_) paths.push_back(JoinPath(dir, output.file));
  return paths;
}

Result<std::vector<WrittenOutput>> Inference::Run(const Dataset& dataset, FileSystem* fs,
                                                  const std::string& dir) {
  std::vector<std::string> made;
  made.reserve(outputs_.size());
  auto written = Guard([&] { return Write(dataset, fs, dir, &made); });
  // They may have filled the disk; the error that matters is the first.
  for (const std::string& path : made) (void)fs->RemoveAll(path);
  return written;
}

Result<std::vector<WrittenOutput>> Inference::Write(const Dataset& dataset, FileSystem* fs,
                                                    const std::string& dir,
                                                    std::vector<std::string>* made) {
  HYPER_RETURN_IF_ERROR(fs->MakeDirs(dir));
  std::vector<WrittenOutput> written;
  std::vector<std::unique_ptr<WritableFile>> files;
  for (const Output& output : outputs_) {
    WrittenOutput item{JoinPath(dir, output.file), TypeOf(*output.place)};
    item.type.dims[0] = dataset.samples();
    const std::string unfinished = item.path + ".tmp";
    HYPER_ASSIGN_OR_RETURN(files.emplace_back(), fs->Create(unfinished));
    made->push_back(unfinished);
    const std::string header = NpyHeader(item.type);
    HYPER_RETURN_IF_ERROR(files.back()->Append(std::as_bytes(std::span(header))));
    written.push_back(std::move(item));
  }
  for (int64_t first = 0; first < dataset.samples(); first += micro_batch_) {
    const int64_t real = std::min(micro_batch_, dataset.samples() - first);
    HYPER_RETURN_IF_ERROR(RunMicroBatch(dataset, first, real));
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const auto bytes = static_cast<size_t>(real * outputs_[i].row_bytes);
      HYPER_RETURN_IF_ERROR(files[i]->Append(std::span(outputs_[i].rows).first(bytes)));
    }
  }
  for (size_t i = 0; i < files.size(); ++i) {
    HYPER_RETURN_IF_ERROR(files[i]->Sync());
    HYPER_RETURN_IF_ERROR(files[i]->Close());
  }
  for (const WrittenOutput& item : written) {
    HYPER_RETURN_IF_ERROR(fs->Rename(made->front(), item.path));
    made->erase(made->begin());
  }
  return written;
}

}  // namespace hyper::runtime
