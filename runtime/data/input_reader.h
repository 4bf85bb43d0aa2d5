// Where the samples of one model input come from. A reader writes one sample at a time, row-major,
// in the element type of the input.
// Thread safety: const calls are safe from several threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "frontend/strategy/launch_config.h"
#include "ir/types.h"

namespace hyper::runtime {

// A model input or label as the program holds it; dim 0 is the micro-batch.
struct InputSpec {
  std::string name;
  ir::TensorType type;
  ir::Dims SampleDims() const { return {type.dims.begin() + 1, type.dims.end()}; }
  int64_t SampleElements() const { return ir::ElementCount(std::span(type.dims).subspan(1)); }
  int64_t SampleBytes() const { return SampleElements() * ir::DTypeBytes(type.dtype); }
};

// Values that a label may have: [0, classes) or `ignore_index`; or an index into a tensor of
// `classes` entries: [-classes, classes), below zero from the end. With `unit` they are targets,
// any number in [0, 1], as the model gets them (scaled).
struct LabelRange {
  int64_t classes = 0;
  std::optional<int64_t> ignore_index;
  bool index = false;
  bool unit = false;
  int class_axis = -1;  // of the logits, -1: unknown; for messages
  bool Accepts(int64_t label) const {
    if (unit) return label == 0 || label == 1;
    const int64_t low = index ? -classes : 0;
    return (label >= low && label < classes) || (ignore_index && label == *ignore_index);
  }
  std::string ToString() const;
};

class InputReader {
 public:
  virtual ~InputReader() = default;
  virtual int64_t samples() const = 0;
  // What a message calls it: the file's name, or "synthetic".
  virtual const std::string& source() const = 0;
  // `out`: SampleBytes() of the spec. kInvalidArgument for a value that the input's type lacks.
  virtual Status Read(int64_t sample, std::byte* out) const = 0;
  // Checks every label; the message names file, index, value and what is accepted.
  virtual Status CheckLabels(const LabelRange& range) const = 0;
};

// The samples that made-up data has.
inline constexpr int64_t kSyntheticSamples = 1024;

// idx and npy: `tensor` has a sample per index of dim 0, whose shape must equal the input's after
// extents of 1 are dropped. A stored value v becomes (v * scale - mean) / std, computed in double;
// only a float input may be scaled. Float data cannot feed an integer input. `labels`: what the
// input is to a loss, or null; where the shapes differ the message then names class axes that fit.
Result<std::unique_ptr<InputReader>> MakeTensorReader(const InputSpec& spec,
                                                      const strategy::InputSource& source,
                                                      ir::HostTensor tensor,
                                                      const std::string& path,
                                                      const LabelRange* labels = nullptr);

// tokens: sample k is the tokens [k*S, k*S + S) of the file (field `tokens`) or the same window one
// token later (`next_tokens`), for an integer input [batch, S]. Windows do not overlap; the file
// has (tokens - 1) / S samples.
Result<std::unique_ptr<InputReader>> MakeTokenReader(const InputSpec& spec,
                                                     const strategy::InputSource& source,
                                                     strategy::TokenType dtype,
                                                     const std::string& path);

// synthetic: `normal`, `uniform` in [low, high) or `integers` in [low, high), drawn by (seed, input
// name, sample, element).
Result<std::unique_ptr<InputReader>> MakeSyntheticReader(const InputSpec& spec,
                                                         const strategy::InputSource& source,
                                                         int64_t seed);

}  // namespace hyper::runtime
