#include "runtime/data/input_reader.h"

#include <cmath>
#include <cstring>
#include <numbers>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "base/strings.h"
#include "runtime/data/convert.h"
#include "runtime/data/random.h"

namespace hyper::runtime {
namespace {

using ir::DType;

ir::Dims WithoutOnes(const ir::Dims& dims) {
  ir::Dims kept;
  for (const int64_t extent : dims) {
    if (extent != 1) kept.push_back(extent);
  }
  return kept;
}

Status BadLabel(const std::string& source, int64_t sample, int64_t position, int64_t label,
                const LabelRange& range) {
  return InvalidArgument(
      fmt::format("'{}': {} {} of sample {} (position {} in it) is outside the "
                  "{}; accepted are {}",
                  source, range.index ? "index" : "label", label, sample, position,
                  range.index ? "model's table" : "classes", range.ToString()));
}

Status BadTarget(const std::string& source, int64_t sample, int64_t position, double value) {
  return InvalidArgument(
      fmt::format("'{}': target {} of sample {} (position {} in it) is no probability; binary "
                  "cross-entropy accepts 0 to 1",
                  source, value, sample, position));
}

// Element i of what a reader wrote for an input of this type.
double ElementAt(DType dtype, const std::vector<std::byte>& sample, int64_t i) {
  const std::byte* data = sample.data() + i * ir::DTypeBytes(dtype);
  switch (dtype) {
    case DType::kF32: return static_cast<double>(*reinterpret_cast<const float*>(data));
    case DType::kF64: return *reinterpret_cast<const double*>(data);
    case DType::kI64: return static_cast<double>(*reinterpret_cast<const int64_t*>(data));
    case DType::kI32: return static_cast<double>(*reinterpret_cast<const int32_t*>(data));
    default: return static_cast<double>(std::to_integer<uint8_t>(*data));
  }
}

// Every target as the model gets it.
Status CheckTargets(const InputReader& reader, DType dtype, int64_t elements) {
  std::vector<std::byte> sample(static_cast<size_t>(elements * ir::DTypeBytes(dtype)));
  for (int64_t s = 0; s < reader.samples(); ++s) {
    HYPER_RETURN_IF_ERROR(reader.Read(s, sample.data()));
    for (int64_t i = 0; i < elements; ++i) {
      const double value = ElementAt(dtype, sample, i);
      // Not a number is refused too.
      if (!(value >= 0 && value <= 1)) return BadTarget(reader.source(), s, i, value);
    }
  }
  return Status::Ok();
}

// Axes of the logits behind which labels stored as `stored` (without extents of 1) would fit; the
// shape of the logits follows from the labels that the loss expects.
std::string OtherClassAxes(const InputSpec& spec, const ir::Dims& stored,
                           const LabelRange& labels) {
  if (labels.class_axis < 0 || labels.class_axis > spec.type.rank()) return {};
  ir::Dims logits = spec.type.dims;
  logits.insert(logits.begin() + labels.class_axis, labels.classes);
  std::vector<std::string> fits;
  for (size_t axis = 1; axis < logits.size(); ++axis) {
    ir::Dims rows(logits.begin() + 1, logits.end());
    rows.erase(rows.begin() + static_cast<ptrdiff_t>(axis) - 1);
    if (WithoutOnes(rows) == stored) fits.push_back(fmt::format("class_axis: {}", axis));
  }
  return fmt::format(
      "; the loss takes axis {} of its logits {} as the classes{}", labels.class_axis,
      FormatDims(logits),
      fits.empty() ? "" : fmt::format("; with {} these labels would fit", Join(fits, " or ")));
}

class TensorReader final : public InputReader {
 public:
  TensorReader(const InputSpec& spec, ir::HostTensor tensor, ConvertFunction convert,
               const Affine& affine, std::string path)
      : tensor_(std::move(tensor)),
        path_(std::move(path)),
        name_(spec.name),
        dtype_(spec.type.dtype),
        elements_(spec.SampleElements()),
        stored_bytes_(elements_ * ir::DTypeBytes(tensor_.type().dtype)),
        convert_(convert),
        affine_(affine) {
    const DType stored = tensor_.type().dtype;
    by_table_ = spec.type.dtype == DType::kF32 && (stored == DType::kU8 || stored == DType::kI8);
    if (by_table_) FillByteTable(stored, affine_, table_);
  }

  int64_t samples() const override { return tensor_.type().dims[0]; }
  const std::string& source() const override { return path_; }

  Status Read(int64_t sample, std::byte* out) const override {
    const std::byte* in = tensor_.bytes().data() + sample * stored_bytes_;
    if (by_table_) {
      float* values = reinterpret_cast<float*>(out);
      for (int64_t i = 0; i < elements_; ++i) values[i] = table_[std::to_integer<uint8_t>(in[i])];
      return Status::Ok();
    }
    if (convert_(in, elements_, affine_, out)) return Status::Ok();
    return InvalidArgument(fmt::format("'{}': sample {} has a value that input '{}' cannot hold",
                                       path_, sample, name_));
  }

  Status CheckLabels(const LabelRange& range) const override {
    if (range.unit) return CheckTargets(*this, dtype_, elements_);
    for (int64_t i = 0; i < samples() * elements_; ++i) {
      const int64_t label = tensor_.ElementAsInt(i);
      if (!range.Accepts(label)) {
        return BadLabel(path_, i / elements_, i % elements_, label, range);
      }
    }
    return Status::Ok();
  }

 private:
  ir::HostTensor tensor_;
  std::string path_;
  std::string name_;
  DType dtype_;
  int64_t elements_;
  int64_t stored_bytes_;  // of one sample
  ConvertFunction convert_;
  Affine affine_;
  bool by_table_ = false;
  float table_[256] = {};
};

class TokenReader final : public InputReader {
 public:
  TokenReader(const InputSpec& spec, FileBytes file, DType stored, ConvertFunction convert,
              int64_t shift, std::string path)
      : file_(std::move(file)),
        path_(std::move(path)),
        name_(spec.name),
        stored_(stored),
        width_(ir::DTypeBytes(stored)),
        window_(spec.SampleElements()),
        shift_(shift),
        tokens_(static_cast<int64_t>(file_.bytes.size()) / width_),
        convert_(convert) {}

  int64_t samples() const override { return (tokens_ - 1) / window_; }
  const std::string& source() const override { return path_; }

  Status Read(int64_t sample, std::byte* out) const override {
    const std::byte* in = file_.bytes.data() + (sample * window_ + shift_) * width_;
    if (convert_(in, window_, Affine{}, out)) return Status::Ok();
    return InvalidArgument(fmt::format("'{}': sample {} has a token that input '{}' cannot hold",
                                       path_, sample, name_));
  }

  // The whole file: what is a label here is also the next input.
  Status CheckLabels(const LabelRange& range) const override {
    const ir::HostTensor all({stored_, {tokens_}}, file_.owner, file_.bytes.data());
    for (int64_t i = 0; i < tokens_; ++i) {
      const int64_t token = all.ElementAsInt(i);
      if (!range.Accepts(token)) {
        return InvalidArgument(fmt::format(
            "'{}': token {} at index {} is outside the {}; "
            "accepted are {}",
            path_, token, i, range.index ? "model's table" : "classes", range.ToString()));
      }
    }
    return Status::Ok();
  }

 private:
  FileBytes file_;
  std::string path_;
  std::string name_;
  DType stored_;
  int64_t width_;
  int64_t window_;
  int64_t shift_;
  int64_t tokens_;
  ConvertFunction convert_;
};

enum class Synthetic { kNormal, kUniform, kIntegers };

class SyntheticReader final : public InputReader {
 public:
  SyntheticReader(const InputSpec& spec, Synthetic kind, double low, double high, int64_t seed)
      : kind_(kind),
        dtype_(spec.type.dtype),
        elements_(spec.SampleElements()),
        low_(low),
        high_(high),
        key_(StreamKey(seed, spec.name)) {}

  int64_t samples() const override { return kSyntheticSamples; }
  const std::string& source() const override { return source_; }

  Status Read(int64_t sample, std::byte* out) const override {
    for (int64_t i = 0; i < elements_; ++i) {
      Store(Draw(static_cast<uint64_t>(sample * elements_ + i)), i, out);
    }
    return Status::Ok();
  }

  Status CheckLabels(const LabelRange& range) const override {
    if (range.unit) {
      const double last = kind_ == Synthetic::kIntegers ? high_ - 1 : high_;
      if (kind_ != Synthetic::kNormal && low_ >= 0 && last <= 1) return Status::Ok();
      return InvalidArgument(fmt::format(
          "'{}': targets of binary cross-entropy are in 0 to 1, '{}' draws {}", source_,
          kind_ == Synthetic::kNormal    ? "normal"
          : kind_ == Synthetic::kUniform ? "uniform"
                                         : "integers",
          kind_ == Synthetic::kNormal ? std::string("any number; use 'uniform' or 'integers'")
                                      : fmt::format("{} to {}", low_, last)));
    }
    const int64_t low = static_cast<int64_t>(low_);
    const int64_t last = static_cast<int64_t>(high_) - 1;
    for (const int64_t label : {low, last}) {
      if (!range.Accepts(label)) return BadLabel(source_, 0, 0, label, range);
    }
    return Status::Ok();
  }

 private:
  double Draw(uint64_t position) const {
    const double first = UniformFrom(HashCounter(key_, 2 * position));
    switch (kind_) {
      case Synthetic::kUniform: return low_ + (high_ - low_) * first;
      case Synthetic::kIntegers: return low_ + std::floor((high_ - low_) * first);
      case Synthetic::kNormal: break;
    }
    // Box and Muller; 1 - u is never 0.
    const double second = UniformFrom(HashCounter(key_, 2 * position + 1));
    return std::sqrt(-2 * std::log(1 - first)) * std::cos(2 * std::numbers::pi * second);
  }

  void Store(double value, int64_t i, std::byte* out) const {
    switch (dtype_) {
      case DType::kF32: reinterpret_cast<float*>(out)[i] = static_cast<float>(value); break;
      case DType::kF64: reinterpret_cast<double*>(out)[i] = value; break;
      case DType::kI64: reinterpret_cast<int64_t*>(out)[i] = static_cast<int64_t>(value); break;
      case DType::kI32: reinterpret_cast<int32_t*>(out)[i] = static_cast<int32_t>(value); break;
      default: reinterpret_cast<uint8_t*>(out)[i] = static_cast<uint8_t>(value); break;
    }
  }

  Synthetic kind_;
  DType dtype_;
  int64_t elements_;
  double low_;
  double high_;
  uint64_t key_;
  std::string source_ = "synthetic";
};

DType StoredType(strategy::TokenType type) {
  switch (type) {
    case strategy::TokenType::kUint8: return DType::kU8;
    case strategy::TokenType::kUint16: return DType::kU16;
    case strategy::TokenType::kUint32: return DType::kU32;
  }
  return DType::kU16;
}

std::string InputContext(const InputSpec& spec, const std::string& path) {
  return fmt::format("input '{}' {} from '{}'", spec.name, spec.type.ToString(), path);
}

}  // namespace

std::string LabelRange::ToString() const {
  if (unit) return "0 to 1";
  std::string text = fmt::format("{} to {}", index ? -classes : 0, classes - 1);
  if (ignore_index) text += fmt::format(" and {} (ignored)", *ignore_index);
  return text;
}

Result<std::unique_ptr<InputReader>> MakeTensorReader(const InputSpec& spec,
                                                      const strategy::InputSource& source,
                                                      ir::HostTensor tensor,
                                                      const std::string& path,
                                                      const LabelRange* labels) {
  const ir::Dims& dims = tensor.type().dims;
  const ir::Dims stored(dims.begin() + 1, dims.end());
  if (WithoutOnes(stored) != WithoutOnes(spec.SampleDims())) {
    return InvalidArgument(fmt::format(
        "'{}' is {}: {} samples of shape {}; input '{}' is {} and needs samples of shape {} "
        "(extents of 1 aside){}",
        path, tensor.type().ToString(), dims[0], FormatDims(stored), spec.name,
        spec.type.ToString(), FormatDims(spec.SampleDims()),
        labels == nullptr ? "" : OtherClassAxes(spec, WithoutOnes(stored), *labels)));
  }
  if (dims[0] == 0) return InvalidArgument(fmt::format("'{}' has no samples", path));
  const Affine affine{source.scale, source.mean, source.std};
  const Result<ConvertFunction> convert =
      FindConversion(tensor.type().dtype, spec.type.dtype, affine);
  if (!convert.ok()) return convert.status().WithContext(InputContext(spec, path));
  return std::unique_ptr<InputReader>(
      std::make_unique<TensorReader>(spec, std::move(tensor), *convert, affine, path));
}

Result<std::unique_ptr<InputReader>> MakeTokenReader(const InputSpec& spec,
                                                     const strategy::InputSource& source,
                                                     strategy::TokenType dtype,
                                                     const std::string& path) {
  if (source.field != "tokens" && source.field != "next_tokens") {
    return InvalidArgument(
        fmt::format("input '{}': field '{}' of a token file; expected 'tokens' "
                    "or 'next_tokens'",
                    spec.name, source.field));
  }
  const DType stored = StoredType(dtype);
  if (!ir::IsInteger(spec.type.dtype) || WithoutOnes(spec.SampleDims()).size() > 1 ||
      spec.SampleElements() < 1) {
    return InvalidArgument(
        fmt::format("input '{}' is {}; tokens feed an integer input "
                    "[batch, length]",
                    spec.name, spec.type.ToString()));
  }
  const Result<ConvertFunction> convert = FindConversion(stored, spec.type.dtype, Affine{});
  if (!convert.ok()) return convert.status().WithContext(InputContext(spec, path));
  HYPER_ASSIGN_OR_RETURN(FileBytes file, MapFile(path));
  const int64_t bytes = static_cast<int64_t>(file.bytes.size());
  const int64_t width = ir::DTypeBytes(stored);
  if (bytes % width != 0) {
    return DataLoss(fmt::format("'{}' has {} bytes, which is no multiple of the {} of a {} token",
                                path, bytes, width, ir::DTypeName(stored)));
  }
  if (bytes / width < spec.SampleElements() + 1) {
    return InvalidArgument(fmt::format("'{}' has {} tokens; one sample of input '{}' needs {}",
                                       path, bytes / width, spec.name, spec.SampleElements() + 1));
  }
  return std::unique_ptr<InputReader>(std::make_unique<TokenReader>(
      spec, std::move(file), stored, *convert, source.field == "tokens" ? 0 : 1, path));
}

Result<std::unique_ptr<InputReader>> MakeSyntheticReader(const InputSpec& spec,
                                                         const strategy::InputSource& source,
                                                         int64_t seed) {
  const bool float_input = ir::IsFloat(spec.type.dtype);
  Synthetic kind;
  if (source.field == "normal") {
    kind = Synthetic::kNormal;
  } else if (source.field == "uniform") {
    kind = Synthetic::kUniform;
  } else if (source.field == "integers") {
    kind = Synthetic::kIntegers;
  } else {
    return InvalidArgument(
        fmt::format("input '{}': synthetic field '{}'; expected 'normal', "
                    "'uniform' or 'integers'",
                    spec.name, source.field));
  }
  if (!float_input && kind != Synthetic::kIntegers) {
    return InvalidArgument(fmt::format("input '{}' is {}; synthetic '{}' needs a float input",
                                       spec.name, spec.type.ToString(), source.field));
  }
  if (!FindConversion(DType::kI64, spec.type.dtype, Affine{}).ok()) {
    return InvalidArgument(
        fmt::format("input '{}' is {}; synthetic data feeds f32, f64, i64, i32, "
                    "u8 or bool",
                    spec.name, spec.type.ToString()));
  }
  if (kind != Synthetic::kNormal && !(source.low < source.high)) {
    return InvalidArgument(
        fmt::format("input '{}': low {} is not below high {}", spec.name, source.low, source.high));
  }
  return std::unique_ptr<InputReader>(
      std::make_unique<SyntheticReader>(spec, kind, source.low, source.high, seed));
}

}  // namespace hyper::runtime
