// Real models, cut and damaged: whatever stands in a file, loading, reporting and importing answer.
// Fixed seeds, so that a failure can be repeated.
#include <random>

#include "frontend/onnx/export.h"
#include "frontend/onnx/inspect.h"
#include "test_models.h"

namespace hyper::onnx_frontend {
namespace {

using ::testing::HasSubstr;

std::string RecipeBytes(const std::string& recipe) {
  std::ifstream file(std::string(HYPER_SOURCE_DIR) + "/recipes/" + recipe + "/model.onnx",
                     std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_GT(bytes.size(), 1000u);
  return bytes;
}

TEST(Hostile, CutAtEvery64thByte) {
  TempDir dir;
  const std::string path = dir.File("cut.onnx");
  const std::string good = RecipeBytes("fashion_mnist");
  WriteBytes(path, good);
  for (size_t length = good.size() / 64 * 64;; length -= 64) {
    std::filesystem::resize_file(path, length);
    Diagnostics diagnostics;
    const auto loaded = LoadModel(path, {}, &diagnostics);
    ASSERT_FALSE(loaded.ok()) << length;
    ASSERT_GT(diagnostics.error_count(), 0) << length;
    ASSERT_NE(diagnostics.Render().find(path), std::string::npos) << diagnostics.Render();
    if (length == 0) break;
  }
}

// Everything that hyperc does with a model before it compiles.
// Returns whether the model was imported.
bool Answer(const std::string& path, const ImportOptions& options) {
  Diagnostics diagnostics;
  const auto loaded = LoadModel(path, {}, &diagnostics);
  if (!loaded.ok()) {
    EXPECT_GT(diagnostics.error_count(), 0);
    EXPECT_NE(loaded.status().code(), StatusCode::kInternal) << diagnostics.Render();
    return false;
  }
  EXPECT_FALSE(ReportText(BuildReport(**loaded, {})).empty());
  const auto imported = Import(**loaded, options, &diagnostics);
  if (!imported.ok()) {
    EXPECT_GT(diagnostics.error_count(), 0) << imported.status().message();
    EXPECT_NE(imported.status().code(), StatusCode::kInternal) << diagnostics.Render();
    return false;
  }
  EXPECT_TRUE(ir::Verify(imported->forward.module).ok());
  (void)StripWeights(**loaded, imported->plan);
  return true;
}

struct FlipCase {
  const char* recipe;
  const char* logits;
  std::map<std::string, int64_t> dims;
};

class Flipped : public ::testing::TestWithParam<FlipCase> {};

// Bits of everything but the weights: the structure stands before and behind them.
TEST_P(Flipped, BitsAreAnswered) {
  TempDir dir;
  const std::string path = dir.File("flipped.onnx");
  const std::string good = RecipeBytes(GetParam().recipe);
  ImportOptions options;
  options.dims = GetParam().dims;
  options.training = true;
  options.losses.push_back(
      {ir::LossKind::kCrossEntropy, GetParam().logits, "labels", std::nullopt, 1});
  WriteBytes(path, good);
  ASSERT_TRUE(Answer(path, options));
  std::mt19937 random(23);
  int imported = 0;
  int refused = 0;
  constexpr size_t kEnd = 12000;
  for (int round = 0; round < 150; ++round) {
    std::string bad = good;
    for (unsigned flips = 1 + random() % 3; flips > 0; --flips) {
      const size_t at = random() % std::min(kEnd, bad.size());
      char& byte = bad[round % 2 == 0 ? at : bad.size() - 1 - at];
      byte = static_cast<char>(byte ^ (1 << random() % 8));
    }
    WriteBytes(path, bad);
    ++(Answer(path, options) ? imported : refused);
  }
  EXPECT_GT(refused, 20);
  EXPECT_GT(imported, 0);
}

INSTANTIATE_TEST_SUITE_P(Hostile, Flipped,
                         ::testing::Values(FlipCase{"fashion_mnist", "logits", {{"batch", 2}}},
                                           FlipCase{"bytes_gpt", "logits", {{"batch", 1}}}),
                         [](const auto& info) { return std::string(info.param.recipe); });

// Nodes in nodes in nodes: the parser gives up, not the stack.
TEST(Hostile, DeeplyNestedSubgraphs) {
  onnx::ModelProto model = GraphModel("g (float[2] x) => (float[2] y) { y = Relu(x) }");
  std::string inner = model.graph().SerializeAsString();
  auto wrap = [](int field, const std::string& payload) {
    std::string out(1, static_cast<char>(field << 3 | 2));
    for (size_t n = payload.size();; n >>= 7) {
      out += static_cast<char>((n & 127) | (n > 127 ? 128 : 0));
      if (n <= 127) break;
    }
    return out + payload;
  };
  // GraphProto.node = 1, NodeProto.attribute = 5, AttributeProto.g = 6.
  for (int depth = 0; depth < 2000; ++depth) inner = wrap(1, wrap(5, wrap(6, inner)));
  TempDir dir;
  model.clear_graph();
  WriteBytes(dir.File("deep.onnx"), model.SerializeAsString() + wrap(7, inner));
  Diagnostics diagnostics;
  EXPECT_FALSE(LoadModel(dir.File("deep.onnx"), {}, &diagnostics).ok());
  EXPECT_THAT(diagnostics.Render(), HasSubstr("parsing stopped at byte"));
}

// A shape of the model that asks for more than any machine has is not computed.
TEST(Hostile, ConstantsThatWouldFillTheMemory) {
  for (const char* graph :
       {"g (float[2] x) => (float[a,b] y) <int64[2] s = {1099511627776, 1099511627776}, float c = "
        "{1}> "
        "{ y = Expand(c, s) }",
        "g (float[2] x) => (float[a,b] y) <int64[2] s = {1099511627776, 16}> "
        "{ y = ConstantOfShape(s) }",
        "g (float[2] x) => (int64[a] y) <int64 n = {9223372036854775807}, int64 z = {0}, int64 d = "
        "{1}> "
        "{ y = Range(z, n, d) }",
        "g (float[2] x) => (float[a] y) <int64[1] r = {4611686018427387904}> { y = Tile(x, r) }"}) {
    SCOPED_TRACE(graph);
    const auto loaded = MustLoad(GraphModel(graph));
    ASSERT_NE(loaded, nullptr);
    Diagnostics diagnostics;
    const auto imported = Import(*loaded, {}, &diagnostics);
    EXPECT_FALSE(imported.ok());
    EXPECT_GT(diagnostics.error_count(), 0);
  }
}

}  // namespace
}  // namespace hyper::onnx_frontend
