// GPT-2 of any size as an ONNX file, for tests of scale.
#pragma once

#include <cstdint>
#include <string>

namespace hyper::tools {

struct GptShape {
  int64_t layers = 1;
  int64_t width = 64;
  int64_t heads = 4;
  int64_t vocabulary = 64;
  int64_t context = 16;
  int64_t batch = 1;
};

// Writes `path` and, beside it, `path`.data with all weights: a sparse file of zeros. Opset 20:
// pre-norm blocks of LayerNormalization, fused query-key-value projection, causal attention spelled
// out, Gelu; the embedding is the output projection, too. Input ids [batch, context], output
// logits. Returns the number of nodes.
int64_t WriteGpt(const std::string& path, const GptShape& shape);

}  // namespace hyper::tools
